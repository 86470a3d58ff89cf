//! `S(θ) = Σ log(1 + λ tanh θ)` as a table of polynomials.
//!
//! For every spectrum in `[-1, 1]`, `S` is analytic in the strip `|Im θ| < π/2`: the singularities
//! are the poles of `tanh` and the points `tanh θ = -1/λ`, and all of them lie on its edge. So a
//! Chebyshev interpolant on a cell of width 1 converges like `6.4^-n` whatever the graph, and a
//! training step costs the same for three eigenvalues and for a million.

use std::f64::consts::PI;
use std::sync::OnceLock;

/// Nodes per cell: `6.4^-20` is far below rounding.
const ORDER: usize = 20;
/// Cells cover `-REACH..REACH`; beyond, `1 − |ρ| < 1e-9`, where sums are computed directly.
const REACH: i32 = 10;

/// Cells are filled when a parameter first enters them.
#[derive(Debug, Default)]
pub(super) struct Table {
    cells: [OnceLock<[f64; ORDER]>; 2 * REACH as usize],
}

impl Table {
    /// `S(θ)` and `S'(θ)`, given the function itself.
    pub fn evaluate(&self, theta: f64, sum: impl Fn(f64) -> (f64, f64)) -> (f64, f64) {
        let cell = (theta + f64::from(REACH)).floor();
        if !(0.0..f64::from(2 * REACH)).contains(&cell) {
            return sum(theta);
        }
        let middle = cell - f64::from(REACH) + 0.5;
        let coefficients = self.cells[cell as usize].get_or_init(|| {
            let at = |k: usize| (PI * (k as f64 + 0.5) / ORDER as f64).cos();
            let values: [f64; ORDER] = std::array::from_fn(|k| sum(middle + 0.5 * at(k)).0);
            std::array::from_fn(|j| {
                let angle = |k: usize| PI * j as f64 * (k as f64 + 0.5) / ORDER as f64;
                let projection: f64 = (0..ORDER).map(|k| values[k] * angle(k).cos()).sum();
                projection * if j == 0 { 1.0 } else { 2.0 } / ORDER as f64
            })
        });
        let (value, slope) = clenshaw(coefficients, 2.0 * (theta - middle));
        (value, 2.0 * slope)
    }
}

/// `Σ c_j T_j(x)` and its derivative, by Clenshaw's recurrence and the recurrence differentiated.
fn clenshaw(c: &[f64; ORDER], x: f64) -> (f64, f64) {
    let (mut b1, mut b2, mut d1, mut d2) = (0.0, 0.0, 0.0, 0.0);
    for &c in c[1..].iter().rev() {
        (d1, d2) = (2.0 * b1 + 2.0 * x * d1 - d2, d1);
        (b1, b2) = (2.0 * x * b1 - b2 + c, b1);
    }
    (x * b1 - b2 + c[0], b1 + x * d1 - d2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the sum itself, for spectra with the worst singularities.
    #[test]
    fn agrees_with_the_sum() {
        for spectrum in [vec![1.0], vec![-1.0, 1.0], vec![-0.3, 0.2, 0.999, 1.0], vec![0.0]] {
            let sum = |theta: f64| {
                super::super::weighted_sum(theta, spectrum.iter().map(|&lambda| (lambda, 1.0)))
            };
            let table = Table::default();
            for k in -1150..=1150 {
                let theta = f64::from(k) / 100.0 + 0.003;
                let (value, derivative) = sum(theta);
                let (found, slope) = table.evaluate(theta, sum);
                assert!((found - value).abs() < 1e-12, "{theta} {found} {value}");
                assert!((slope - derivative).abs() < 1e-11, "{theta} {slope} {derivative}");
            }
        }
    }
}
