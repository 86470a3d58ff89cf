//! Where a fit begins.

use super::Parameters;
use crate::field::Engine;
use crate::model::{Gamma, LayerParameters, Model};
use crate::random::{Purpose, Stream};

/// What of the model is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Layers `L`.
    pub layers: usize,
    /// Whether layers have a bias.
    pub bias: bool,
    /// The exponent of the degree.
    pub gamma: Gamma,
    /// Standard deviation of the noise in standardised units, where it is given.
    pub sigma: Option<f64>,
}

/// Starting values for standardised data: `b = 0`, a weak smoothness `ρ ≈ −0.5` spread over the
/// layers, `γ ≈ 0.3`, and `α` such that the field has about the variance of the data. A random start
/// (paper: `U(−1, 1)` for all) often ends in a poor maximum from three layers on. Start 0 is these
/// very values, others have some noise on them. All ranks call it and get the same.
pub fn start<E: Engine>(engine: &E, shape: &Shape, seed: u64, number: u64) -> Parameters {
    let part = engine.part();
    let mut sums = [part.degree[..part.owned].iter().map(|d| d.ln()).sum(), part.owned as f64];
    engine.world().sum(&mut sums);
    let log_degree = sums[0] / sums[1];
    let stream = Stream::new(seed, Purpose::Start, number);
    let layers = (0..shape.layers as u64).map(|l| {
        let noise = |c: u64| match number {
            0 => 0.1 * (2.0 * stream.uniform(l, c) - 1.0),
            _ => 2.0 * stream.uniform(l, c) - 1.0,
        };
        let theta3 = GAMMA + noise(0);
        let gamma = match shape.gamma {
            Gamma::Free => 1.0 / (1.0 + (-theta3).exp()),
            Gamma::Fixed(value) => value,
        };
        LayerParameters {
            theta1: 0.5 * noise(1) - gamma * log_degree,
            theta2: RHO + 0.5 * noise(2),
            theta3,
            bias: 0.0,
        }
    });
    let model = Model { layers: layers.collect(), gamma: shape.gamma };
    let log_sigma = shape.sigma.unwrap_or(SIGMA).ln();
    Parameters { model, log_sigma, bias: shape.bias, noise: shape.sigma.is_none() }
}

/// `logit 0.3`.
const GAMMA: f64 = -0.85;
/// `artanh ρ` of a weak smoothness.
const RHO: f64 = -0.5;
/// Noise to begin with, in standard deviations of the data.
const SIGMA: f64 = 0.3;
