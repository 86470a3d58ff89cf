//! The evidence `log p(y | θ)` with a standard error.
//!
//! From `p(y) = p(y, x) / p(x | y)` at the posterior mean `x = μ`:
//!
//! ```text
//! log p(y | θ) = −½ ‖g(μ)‖² − ½ σ⁻² Σ m (y − μ)² + Σ_l log|det G_l|
//!              − M log σ − ½ log det Q̃ − ½ M log 2π
//! ```
//!
//! The determinant is `log det Q̃ = Σ log D_ii + tr log(D^-½ Q̃ D^-½)` with the preconditioner's
//! diagonal `D`, and the trace comes from stochastic Lanczos quadrature: conjugate gradients for
//! `Q̃ x = D^½ z`, `z` random signs, leave the Lanczos matrix of `D^-½ Q̃ D^-½` and `z` in the
//! coefficients of their steps. With features, `S` and the prior of the coefficients join in
//! ([`crate::posterior::Linear`]).

use super::score::Score;
use super::{Parameters, Problem};
use crate::error::{CgError, Result};
use crate::field::Engine;
use crate::posterior::Preconditioner;
use crate::random::{Purpose, Stream};
use crate::solver::cg;
use std::f64::consts::PI;

/// How the determinant is estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Probes, at least 2.
    pub probes: usize,
    /// Residual at which conjugate gradients stop: the error of the quadrature is its square.
    pub tolerance: f64,
    /// The probes follow from it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { probes: 16, tolerance: 1e-3, seed: 1 }
    }
}

/// An estimate of `log p(y | θ)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// In standardised units, all constants included.
    pub value: f64,
    /// Standard error from the choice of probes.
    pub stderr: f64,
}

/// Steps of a quadrature at most.
const STEPS: usize = 400;

/// Estimates the evidence at the parameters of the last evaluation of `score`. All ranks call it.
pub fn evidence<E: Engine>(
    engine: &mut E,
    problem: &Problem<E>,
    score: &mut Score<E>,
    p: &Parameters,
    options: &Options,
) -> Result<Evidence> {
    let at_mean = score.log_joint_at_mean(engine, problem, p);
    let probes = options.probes.max(2);
    let world = engine.world().clone();
    let precision = score.precision();
    let mut preconditioner = Preconditioner::jacobi(engine, precision);
    let part = engine.part();
    let inverse = preconditioner.inverse_diagonal(part.owned).expect("a diagonal");
    let mut diagonal: Vec<f64> = inverse.iter().map(|inverse| 1.0 / inverse).collect();
    let mut log_diagonal = [diagonal.iter().map(|d| d.ln()).sum::<f64>()];
    world.sum(&mut log_diagonal);
    diagonal.iter_mut().for_each(|d| *d = d.max(0.0).sqrt());
    let root = engine.node_field(&diagonal);

    let [mut z, mut b, mut x] = [0; 3].map(|_| engine.zeros(probes));
    engine.fill_rademacher(Stream::new(options.seed, Purpose::Score, 3), 0, &mut z);
    engine.scale_rows(&root, &z, &mut b);
    let mut work = cg::Workspace::new(engine);
    let settings =
        cg::Options { tolerance: options.tolerance, max_iterations: STEPS, ..Default::default() };
    match cg::solve(engine, precision, &mut preconditioner, &b, &mut x, &settings, &mut work) {
        // The quadrature is the aim, not the solution: so many steps are enough for a logarithm.
        Ok(_) | Err(CgError::NoConvergence { .. }) => {}
        Err(error) => return Err(error.into()),
    }

    let nodes = problem.nodes() as f64;
    let of_probe: Vec<f64> = (0..probes).map(|k| nodes * work.quadrature(k, f64::ln)).collect();
    let mean = of_probe.iter().sum::<f64>() / probes as f64;
    let spread = of_probe.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (probes - 1) as f64;
    let log_det = log_diagonal[0] + mean;
    let constants = 0.5 * problem.data.count * (2.0 * PI).ln();
    Ok(Evidence {
        value: at_mean - 0.5 * log_det - constants,
        stderr: 0.5 * (spread / probes as f64).sqrt(),
    })
}
