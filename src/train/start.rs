//! Where a fit begins.

use super::Parameters;
use crate::field::Engine;
use crate::model::{Gamma, LayerParameters, LayerStart, Model};
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

/// Where a fit begins, for standardised data: always with `b = 0` and `α` such that the field has
/// about the variance of the data. (The paper's `U(−1, 1)` for all often ends in a poor maximum
/// from three layers on.) A little noise tells layers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A weak smoothness `ρ ≈ −0.5` in every layer, and `γ ≈ 0.3`.
    Plain,
    /// A weak smoothness in the last layer, and others that are almost the identity: a model of one
    /// layer that grows.
    Grown,
    /// One layer that takes differences and others that take means (`ρ > 0`), as data want that
    /// were averaged over more than the next neighbours.
    Means,
    /// Plain with much noise, of this number.
    Random(u64),
}

/// Starting values. All ranks call it and get the same.
pub fn start<E: Engine>(engine: &E, shape: &Shape, seed: u64, start: Start) -> Parameters {
    let part = engine.part();
    let mut sums = [part.degree[..part.owned].iter().map(|d| d.ln()).sum(), part.owned as f64];
    engine.world().sum(&mut sums);
    let log_degree = sums[0] / sums[1];
    let (number, size) = match start {
        Start::Plain => (0, 0.1),
        Start::Grown => (1, 0.1),
        Start::Means => (2, 0.1),
        Start::Random(number) => (number.max(3), 1.0),
    };
    let stream = Stream::new(seed, Purpose::Start, number);
    let layers = (0..shape.layers as u64).map(|l| {
        let noise = |c: u64| size * (2.0 * stream.uniform(l, c) - 1.0);
        let last = l + 1 == shape.layers as u64;
        let kind = match start {
            Start::Grown if !last => LayerStart::Identity,
            Start::Means if !last => LayerStart::Mean,
            Start::Means => LayerStart::Difference,
            _ => LayerStart::Smooth,
        };
        let noise = LayerParameters {
            log_alpha: 0.5 * noise(1),
            artanh_rho: 0.5 * noise(2),
            logit_gamma: noise(0),
            bias: 0.0,
        };
        LayerParameters::starting(kind, shape.gamma, log_degree, &noise)
    });
    let model = Model { layers: layers.collect(), gamma: shape.gamma };
    let log_sigma = shape.sigma.unwrap_or(SIGMA).ln();
    let noise = shape.sigma.is_none();
    Parameters { model, log_sigma, bias: shape.bias, noise, scales: true }
}

/// Noise to begin with, in standard deviations of the data.
const SIGMA: f64 = 0.3;
