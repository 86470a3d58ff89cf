//! Marginal variances without any sampling: a Cholesky factor of the whole `Q̃`, on rank 0.

use super::Precision;
use super::columns::Columns;
use super::factor::{Lower, Pattern};
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::partition::Vicinity;
use faer::{Mat, Par, Side};
use rayon::prelude::*;

/// Entries of `G`, `Q̃` or the factor at most: above, `exact` is no choice (2.4 GB).
const LIMIT: usize = 200_000_000;

/// `(Q̃⁻¹)_ii` of the owned rows. All ranks call it; rank 0 does the work.
pub fn variances<E: Engine>(engine: &E, precision: &Precision<E>) -> Result<Vec<f64>> {
    let (world, part) = (engine.world(), engine.part());
    let whole = Vicinity::gather(world, part);
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
    whole: &Vicinity,
    precision: &Precision<E>,
    weight: &[f64],
) -> Result<Vec<f64>> {
    let columns = Columns::new(whole, precision.coefficients(), whole.owned, LIMIT)
        .map_err(|e| Error::Numeric(format!("{e}: use variance = \"rbmc\" or \"mc\"")))?;
    let matrix = lower(&columns, weight);
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

/// The lower half of `GᵀG + diag(weight)`: column `j` holds `⟨G e_i, G e_j⟩` for all `i >= j` whose
/// columns share a row with that of `j`.
fn lower(columns: &Columns, weight: &[f64]) -> Lower {
    let n = columns.count();
    // G by rows, to find the columns that meet in one.
    let mut starts = vec![0usize; n + 1];
    (0..n).for_each(|j| columns.column(j).0.iter().for_each(|&k| starts[k as usize + 1] += 1));
    (0..n).for_each(|k| starts[k + 1] += starts[k]);
    let mut next = starts.clone();
    let mut by_row = vec![(0u32, 0.0); starts[n]];
    for j in 0..n {
        let (rows, values) = columns.column(j);
        for (&k, &v) in rows.iter().zip(values) {
            by_row[next[k as usize]] = (j as u32, v);
            next[k as usize] += 1;
        }
    }
    const TASK: usize = 512;
    let tasks: Vec<Vec<(Vec<usize>, Vec<f64>)>> = (0..n.div_ceil(TASK))
        .into_par_iter()
        .map(|task| {
            let (mut sums, mut marked) = (vec![0.0; n], vec![false; n]);
            let mut met: Vec<usize> = Vec::new();
            (task * TASK..n.min((task + 1) * TASK))
                .map(|j| {
                    let (rows, values) = columns.column(j);
                    for (&k, &v) in rows.iter().zip(values) {
                        for &(i, u) in &by_row[starts[k as usize]..starts[k as usize + 1]] {
                            let i = i as usize;
                            if i >= j {
                                if !std::mem::replace(&mut marked[i], true) {
                                    met.push(i);
                                }
                                sums[i] += u * v;
                            }
                        }
                    }
                    met.sort_unstable();
                    sums[j] += weight[j];
                    let rows = std::mem::take(&mut met);
                    let values = rows
                        .iter()
                        .map(|&i| {
                            marked[i] = false;
                            std::mem::take(&mut sums[i])
                        })
                        .collect();
                    (rows, values)
                })
                .collect()
        })
        .collect();
    let mut matrix = Lower { ends: vec![0], ..Lower::default() };
    for (rows, values) in tasks.into_iter().flatten() {
        matrix.rows.extend(rows);
        matrix.values.extend(values);
        matrix.ends.push(matrix.rows.len());
    }
    matrix
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
