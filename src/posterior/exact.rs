//! Marginal variances without any sampling: a Cholesky factor of the whole `Q̃`, on rank 0.

use super::Precision;
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::linalg::{FactorError, Gram, Lower, Pattern, dense::InverseFactor};
use crate::model::columns;
use crate::partition::Overlap;
use faer::Mat;

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
    let columns = columns::columns_of(whole, precision.coefficients(), whole.owned, LIMIT)
        .map_err(|e| Error::Numeric(format!("{e}: use variance = \"rbmc\" or \"mc\"")))?;
    let matrix = Gram::new(columns).lower(weight);
    let pattern = Pattern::new(&matrix).map_err(not_factorised)?;
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
    Ok(pattern.factorise(&matrix).map_err(not_factorised)?.inverse_diagonal())
}

/// The diagonal of the inverse by dense matrices.
fn dense(n: usize, matrix: &Lower) -> Result<Vec<f64>> {
    let mut full = Mat::<f64>::zeros(n, n);
    for j in 0..n {
        for at in matrix.ends[j]..matrix.ends[j + 1] {
            full[(matrix.rows[at], j)] = matrix.values[at];
        }
    }
    let factor =
        InverseFactor::new(full).ok_or_else(|| not_factorised(FactorError::NotDefinite))?;
    Ok(factor.inverse_diagonal())
}

fn not_factorised(error: FactorError) -> Error {
    Error::Numeric(format!("exact variances from the posterior precision: {error}"))
}
