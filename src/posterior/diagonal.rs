//! The diagonal of `Q̃ = GᵀG + W`, on the host.

use super::Precision;
use crate::field::{Coefficients, Engine};
use crate::model::columns;
use crate::model::layer::LogScale;
use crate::partition::{Overlap, Part};

/// `Σ_j w_ij² / d_i²` of the owned rows: how much of a row of `D⁻¹A` lies off the diagonal.
pub(super) fn share(part: &Part) -> Vec<f64> {
    (0..part.owned)
        .map(|i| {
            let row = part.indptr[i] as usize..part.indptr[i + 1] as usize;
            let squares = match &part.weights {
                Some(weights) => weights[row].iter().map(|w| w * w).sum(),
                None => row.len() as f64,
            };
            squares / (part.degree[i] * part.degree[i])
        })
        .collect()
}

/// Entries of `G` that are visited at most on the way to the exact diagonal.
const LIMIT: usize = 1_000_000_000;

/// The exact diagonal of the owned rows; its dominating term on graphs where `L` hops reach too
/// much. All ranks call it.
pub(super) fn exact<E: Engine>(engine: &E, precision: &Precision<E>) -> Vec<f64> {
    let (world, part, layers) = (engine.world(), engine.part(), precision.coefficients());
    if layers.len() > 1 {
        let overlap = Overlap::collect(world, part, layers.len() - 1, 0);
        let mut squares = columns::squares(&overlap, layers, LIMIT);
        if !world.any(squares.is_none())
            && let Some(squares) = &mut squares
        {
            squares.iter_mut().zip(precision.weight()).for_each(|(square, w)| *square += w);
            return std::mem::take(squares);
        }
    }
    let mut out = vec![0.0; part.owned];
    dominating(part, precision, &share(part), &mut out);
    out
}

/// The diagonal, one value per owned row of `out`. One layer: exact,
///
/// ```text
/// (GᵀG)_ii = Σ_k G_ki² = s_i² + ρ² Σ_k w_ki² (s_k / d_k)²
/// ```
///
/// More layers: the dominating term `Π_l s_i² (1 + ρ² Σ_j w_ij² / d_i²)`, that is, each layer for
/// itself as if neighbours had the degree of the node.
pub(super) fn dominating<E: Engine>(
    part: &Part,
    precision: &Precision<E>,
    share: &[f64],
    out: &mut [f64],
) {
    match precision.coefficients() {
        [only] => one_layer(part, only, out),
        layers => {
            let scale = LogScale::of_all(layers);
            for (i, out) in out.iter_mut().enumerate() {
                let squares = (2.0 * scale.at(part.degree[i])).exp();
                let off = layers.iter().map(|c| 1.0 + c.rho * c.rho * share[i]);
                *out = squares * off.product::<f64>();
            }
        }
    }
    out.iter_mut().zip(precision.weight()).for_each(|(out, w)| *out += w);
}

fn one_layer(part: &Part, c: &Coefficients, out: &mut [f64]) {
    let scale = LogScale::of(c);
    let squares: Vec<f64> = part.degree.iter().map(|&d| (2.0 * scale.at(d)).exp()).collect();
    for (i, out) in out.iter_mut().enumerate() {
        let row = part.indptr[i] as usize..part.indptr[i + 1] as usize;
        let term = |k: usize| {
            let j = part.indices[k] as usize;
            let w = part.weights.as_ref().map_or(1.0, |w| w[k]);
            w * w * squares[j] / (part.degree[j] * part.degree[j])
        };
        *out = squares[i] + c.rho * c.rho * row.map(term).sum::<f64>();
    }
}
