//! Newton's method for the few parameters of a model, from gradients alone.
//!
//! The likelihood of several layers has valleys (layers can take over from each other) and saddles
//! (layers can change places), through which gradients lead only slowly. With `4L + 1` parameters
//! the matrix of second derivatives is affordable: a difference of gradients for each. Directions of
//! negative curvature are followed downhill (`|λ|` instead of `λ`), and steps stay within a radius
//! that follows how well the last one was predicted. No value of the function is needed: what a step
//! `s` has gained is `−½ (g₀ + g₁)·s` up to third order.

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
        Options { difference: 0.02, radius: 1.0, curvature: 0.3 }
    }
}

/// The quadratic model of a function around a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Quadratic {
    /// Parameters that move.
    free: Vec<usize>,
    /// Eigenvectors, one after the other, and eigenvalues.
    vectors: Vec<Vec<f64>>,
    values: Vec<f64>,
}

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
        Some(Quadratic { free: free.to_vec(), vectors, values })
    }

    /// The step from here, for the gradient `g` of all parameters.
    pub fn step(&self, g: &[f64], radius: f64, options: &Options) -> Step {
        let along: Vec<f64> = self
            .vectors
            .iter()
            .map(|v| v.iter().zip(&self.free).map(|(v, &i)| v * g[i]).sum::<f64>())
            .collect();
        let curvature: Vec<f64> =
            self.values.iter().map(|l| l.abs().max(options.curvature)).collect();
        // The shift that brings the step to the radius, by bisection on a logarithmic scale.
        let length = |shift: f64| -> f64 {
            let terms = along.iter().zip(&curvature).map(|(a, c)| (a / (c + shift)).powi(2));
            terms.sum::<f64>().sqrt()
        };
        let cut = length(0.0) > radius;
        let mut shift = 0.0;
        if cut {
            let (mut low, mut high) = (0.0, 1e-3);
            while length(high) > radius {
                (low, high) = (high, 4.0 * high);
            }
            for _ in 0..50 {
                let middle = 0.5 * (low + high);
                if length(middle) > radius { low = middle } else { high = middle }
            }
            shift = high;
        }
        let mut step = vec![0.0; g.len()];
        let mut gain = 0.0;
        for ((v, a), c) in self.vectors.iter().zip(&along).zip(&curvature) {
            let t = -a / (c + shift);
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

    /// As numbers for a checkpoint.
    pub fn to_numbers(&self) -> Vec<f64> {
        let free = self.free.iter().map(|&i| i as f64);
        let vectors = self.vectors.iter().flatten().copied();
        [self.free.len() as f64]
            .into_iter()
            .chain(free)
            .chain(self.values.iter().copied())
            .chain(vectors)
            .collect()
    }

    /// The opposite of [`Quadratic::to_numbers`]; nothing if the numbers do not fit together.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let (&n, rest) = numbers.split_first()?;
        let n = n as usize;
        let (free, rest) = rest.split_at_checked(n)?;
        let (values, vectors) = rest.split_at_checked(n)?;
        (n > 0 && vectors.len() == n * n).then(|| Quadratic {
            free: free.iter().map(|&i| i as usize).collect(),
            values: values.to_vec(),
            vectors: vectors.chunks_exact(n).map(<[f64]>::to_vec).collect(),
        })
    }
}
