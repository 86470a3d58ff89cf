//! The true posterior of a generated field, by dense linear algebra.

use super::Prior;
use crate::error::{Error, Result};
use crate::linalg::dense::InverseFactor;
use crate::progress::Progress;
use faer::Mat;

/// What an ideal method would answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// `E[x | y_m]`.
    pub mean: Vec<f64>,
    /// `sqrt(Var[x_i | y_m] + σ²)`: the predictive standard deviation of `y`.
    pub std_y: Vec<f64>,
}

/// The posterior of `prior` given `y_i = x_i + N(0, σ²)` at the observed nodes:
///
/// ```text
/// Q̃ = Q + σ⁻² I_m,    Q̃ μ̃ = Q μ + σ⁻² y_m,    Var[x_i | y_m] = (Q̃⁻¹)_ii = Σ_k (L⁻¹)_ki²
/// ```
///
/// with the Cholesky factor `L` of the dense `Q̃`. `2/3 N³` operations and `3 N²` numbers in
/// memory.
pub fn posterior(prior: &dyn Prior, y: &[f64], observed: &[bool], noise: f64) -> Result<Posterior> {
    let n = prior.nodes();
    let mut progress = Progress::new("true posterior", 3);
    let weight = noise.powi(-2);
    let sparse = prior.precision();
    let mut precision = Mat::<f64>::zeros(n, n);
    for (i, row) in sparse.outer_iterator().enumerate() {
        row.iter().for_each(|(j, v)| precision[(i, j)] = *v);
    }
    let mut information = prior.information()?;
    for i in (0..n).filter(|&i| observed[i]) {
        precision[(i, i)] += weight;
        information[i] += weight * y[i];
    }
    progress.advance(1);

    let factor = InverseFactor::new(precision).ok_or_else(|| {
        Error::Numeric(
            "the precision of the true posterior is not positive definite in double precision"
                .into(),
        )
    })?;
    progress.advance(1);
    let mean = factor.solve(&information);
    let variance = factor.inverse_diagonal();
    progress.advance(1);
    let std_y = variance.into_iter().map(|v| (v + noise * noise).sqrt()).collect();
    Ok(Posterior { mean, std_y })
}
