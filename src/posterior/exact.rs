//! Marginal variances without any sampling: a Cholesky factor of the whole `Q̃`, on rank 0.

use super::Precision;
use super::columns::Columns;
use super::factor::{Lower, Pattern};
use super::gram::Gram;
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::partition::Overlap;
use faer::{Mat, Par, Side};
use rayon::prelude::*;

/// Entries of `G`, `Q̃` or the factor at most: above, `exact` is no choice (2.4 GB).
const LIMIT: usize = 200_000_000;

/// `(Q̃⁻¹)_ii` of the owned rows. All ranks call it; rank 0 does the work.
pub fn variances<E: Engine>(engine: &E, precision: &Precision<E>) -> Result<Vec<f64>> {
    let (world, part) = (engine.world(), engine.part());
    let whole = Overlap::gather(world, part);
    let weight: Vec<f64> = precision.weight().collect();
    let weights = world.gather_rows(part.owned_ids(), &weight, 1, part.nodes);
    let all = match (whole, world.agree(weights)?) {
        (Some(whole), Some(weights)) => inverse_diagonal(&whole, precision, &weights).map(Some),
        _ => Ok(None),
    };
    let all = world.agree(all)?;
    Ok(world.scatter_rows(part.owned_ids(), all.as_deref(), 1))
}

fn inverse_diagonal<E: Engine>(
    whole: &Overlap,
    precision: &Precision<E>,
    weight: &[f64],
) -> Result<Vec<f64>> {
    let columns = Columns::new(whole, precision.coefficients(), whole.owned, LIMIT)
        .map_err(|e| Error::Numeric(format!("{e}: use variance = \"rbmc\" or \"mc\"")))?;
    let matrix = Gram::new(columns).lower(weight);
    let pattern = Pattern::new(&matrix)?;
    let n = whole.owned;
    // Dense kernels are ten times as fast per operation: worth it where little is empty anyway.
    if pattern.entries() > n * n / 8 && n * n <= LIMIT {
        return dense(n, &matrix);
    }
    if pattern.entries() > LIMIT {
        return Err(Error::Numeric(format!(
            "exact variances need a Cholesky factor of {} entries, more than {LIMIT}: use \
             variance = \"rbmc\" or \"mc\"",
            pattern.entries()
        )));
    }
    Ok(pattern.factorise(&matrix)?.inverse_diagonal())
}

/// The same by dense matrices: `(Q̃⁻¹)_jj = Σ_i (L⁻¹)_ij²`.
fn dense(n: usize, matrix: &Lower) -> Result<Vec<f64>> {
    let mut full = Mat::<f64>::zeros(n, n);
    for j in 0..n {
        for at in matrix.ends[j]..matrix.ends[j + 1] {
            full[(matrix.rows[at], j)] = matrix.values[at];
        }
    }
    let factor = full.llt(Side::Lower).map_err(|_| {
        Error::Numeric(
            "the posterior precision is not positive definite in double precision".into(),
        )
    })?;
    drop(full);
    let mut inverse = Mat::<f64>::zeros(n, n);
    faer::linalg::triangular_inverse::invert_lower_triangular(
        inverse.as_mut(),
        factor.L(),
        Par::rayon(0),
    );
    let square = |j: usize| (j..n).map(|i| inverse[(i, j)].powi(2)).sum();
    Ok((0..n).into_par_iter().map(square).collect())
}
