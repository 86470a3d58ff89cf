//! Newton's method for the few parameters of a model, from gradients alone.
//!
//! The likelihood of several layers has valleys (layers can take over from each other) and saddles
//! (layers can change places), through which gradients lead only slowly. With `4L + 1` parameters
//! the matrix of second derivatives is affordable: a difference of gradients for each. It is not
//! made anew in every step, though: each step shows the curvature along its own direction, which is
//! taken in by the symmetric rank-one update (SR1), the one that may find negative curvature. Steps
//! stay within a radius that follows how well the last one was predicted, and are the best within
//! it: on a saddle they lead away from it. No value of the function is needed: what a step `s` has
//! gained is `−½ (g₀ + g₁)·s` up to third order.
//!
//! # Reference
//! A. R. Conn, N. I. M. Gould, Ph. L. Toint (1991), "Convergence of quasi-Newton matrices generated
//! by the symmetric rank one update".

use faer::{Mat, Side};

/// How steps are limited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Step of the differences behind second derivatives.
    pub difference: f64,
    /// Longest step, in any norm that matters: parameters are logarithms and the like.
    pub radius: f64,
    /// Least curvature: a parameter that the data do not determine better than to
    /// `1/√curvature` is not moved further for it.
    pub curvature: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { difference: 0.02, radius: 0.5, curvature: 0.03 }
    }
}

/// The quadratic model of a function around a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Quadratic {
    /// Parameters that move.
    free: Vec<usize>,
    /// Second derivatives in them, row-major.
    second: Vec<f64>,
    /// Eigenvectors, one after the other, and eigenvalues.
    vectors: Vec<Vec<f64>>,
    values: Vec<f64>,
}

/// Cosine between residual and step below which an update is left out.
const PERPENDICULAR: f64 = 0.1;
/// Curvature below which a direction counts as undetermined.
const UNDETERMINED: f64 = 0.01;

/// A proposed step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What to add to the parameters.
    pub step: Vec<f64>,
    /// What the function should fall by.
    pub gain: f64,
    /// Whether the radius has cut it short.
    pub cut: bool,
}

impl Quadratic {
    /// From the matrix of second derivatives (row-major, made symmetric here) in the parameters
    /// `free`. Nothing if it is not finite.
    pub fn new(free: &[usize], second: &[f64]) -> Option<Self> {
        let n = free.len();
        let symmetric = |i: usize, j: usize| 0.5 * (second[i * n + j] + second[j * n + i]);
        if !second.iter().all(|v| v.is_finite()) {
            return None;
        }
        let eigen = Mat::from_fn(n, n, symmetric).self_adjoint_eigen(Side::Lower).ok()?;
        let vectors = (0..n).map(|k| (0..n).map(|i| eigen.U()[(i, k)]).collect()).collect();
        let values = (0..n).map(|k| eigen.S()[k]).collect();
        let second = (0..n * n).map(|at| symmetric(at / n, at % n)).collect();
        Some(Quadratic { free: free.to_vec(), second, vectors, values })
    }

    /// Takes in what a step has shown: the gradient changed by `change` along it (vectors of all
    /// parameters). With `r = change − H step`, `H ← H + r rᵀ / (r·step)`, unless `r` is (almost)
    /// perpendicular to the step, where the update would be noise.
    pub fn update(&mut self, step: &[f64], change: &[f64]) {
        let n = self.free.len();
        let s: Vec<f64> = self.free.iter().map(|&i| step[i]).collect();
        let rest: Vec<f64> = (0..n)
            .map(|i| {
                let row = &self.second[i * n..][..n];
                change[self.free[i]] - row.iter().zip(&s).map(|(h, s)| h * s).sum::<f64>()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let along = dot(&rest, &s);
        if along.abs() <= PERPENDICULAR * (dot(&rest, &rest) * dot(&s, &s)).sqrt() {
            return;
        }
        let mut second = self.second.clone();
        for (i, row) in second.chunks_exact_mut(n).enumerate() {
            row.iter_mut().zip(&rest).for_each(|(h, r)| *h += rest[i] * r / along);
        }
        if let Some(updated) = Quadratic::new(&self.free, &second) {
            *self = updated;
        }
    }

    /// The step from here that lowers the model most, for the gradient `g` of all parameters: with
    /// `μ` such that the length fits the radius, `s = −(H + μ)⁻¹ g`. Where the curvature is
    /// negative it leads to the radius, and away from a saddle even without a gradient; with
    /// `cautious`, negative curvature is not believed in and its size is taken.
    pub fn step(&self, g: &[f64], radius: f64, options: &Options, cautious: bool) -> Step {
        let along: Vec<f64> = self
            .vectors
            .iter()
            .map(|v| v.iter().zip(&self.free).map(|(v, &i)| v * g[i]).sum::<f64>())
            .collect();
        let curvature: Vec<f64> = self
            .values
            .iter()
            .map(|&l| {
                let bent = cautious || l > -options.curvature;
                if bent { l.abs().max(options.curvature) } else { l }
            })
            .collect();
        let lowest = curvature.iter().copied().fold(f64::INFINITY, f64::min);
        let least = (-lowest).max(0.0);
        let length = |shift: f64| -> f64 {
            let terms = along.iter().zip(&curvature).map(|(a, c)| (a / (c + shift)).powi(2));
            terms.sum::<f64>().sqrt()
        };
        // The shift is found by bisection on a logarithmic scale above the least one, at which the
        // matrix is singular.
        let cut = least > 0.0 || length(0.0) > radius;
        let mut shift = least;
        if cut {
            let (mut low, mut high) = (0.0, 1e-6 * (1.0 + least));
            while length(least + high) > radius {
                (low, high) = (high, 4.0 * high);
            }
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                if length(least + middle) > radius { low = middle } else { high = middle }
            }
            shift = least + high;
        }
        let mut parts: Vec<f64> =
            along.iter().zip(&curvature).map(|(a, c)| -a / (c + shift)).collect();
        let covered: f64 = parts.iter().map(|t| t * t).sum();
        if least > 0.0
            && let Some(k) = curvature.iter().position(|&c| c == lowest)
        {
            // On a saddle the gradient has no part in the way down: what is left of the radius goes
            // there.
            let rest = (radius * radius - covered + parts[k] * parts[k]).max(0.0).sqrt();
            parts[k] = rest.copysign(-along[k]);
        }
        let mut step = vec![0.0; g.len()];
        let mut gain = 0.0;
        for (((v, a), c), t) in self.vectors.iter().zip(&along).zip(&curvature).zip(&parts) {
            gain -= a * t + 0.5 * c * t * t;
            v.iter().zip(&self.free).for_each(|(v, &i)| step[i] += t * v);
        }
        Step { step, gain, cut }
    }

    /// Standard errors of the parameters that moved, `√(H⁻¹)_ii`. A direction that the data do not
    /// determine (layers can trade their scales, for one) has the least curvature that is told from
    /// none, so what shares in it has a large error, not an infinite one.
    pub fn standard_errors(&self, length: usize) -> Vec<f64> {
        let mut errors = vec![0.0; length];
        for (k, &i) in self.free.iter().enumerate() {
            let terms = self.vectors.iter().zip(&self.values);
            let variance: f64 = terms.map(|(v, &l)| v[k] * v[k] / l.max(UNDETERMINED)).sum();
            errors[i] = variance.sqrt();
        }
        errors
    }

    /// The state as numbers for a checkpoint.
    pub fn to_numbers(&self) -> Vec<f64> {
        let free = self.free.iter().map(|&i| i as f64);
        [self.free.len() as f64]
            .into_iter()
            .chain(free)
            .chain(self.second.iter().copied())
            .collect()
    }

    /// Reads what [`Quadratic::to_numbers`] gave; nothing if the numbers do not fit together.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let (&n, rest) = numbers.split_first()?;
        let n = n as usize;
        let (free, second) = rest.split_at_checked(n)?;
        let free: Vec<usize> = free.iter().map(|&i| i as usize).collect();
        (n > 0 && second.len() == n * n).then(|| Quadratic::new(&free, second))?
    }
}
