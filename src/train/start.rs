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

/// Where a fit begins, for standardised data: always with `b = 0` and `α` such that the field has
/// about the variance of the data. (The paper's `U(−1, 1)` for all often ends in a poor maximum from
/// three layers on.) A little noise tells layers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A weak smoothness `ρ ≈ −0.5` in every layer, and `γ ≈ 0.3`.
    Plain,
    /// The same in the last layer, and others that are almost the identity: a model of one layer
    /// that grows.
    Grown,
    /// One layer that takes differences and others that take means (`ρ > 0`), as data want that were
    /// averaged over more than the next neighbours.
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
        let (theta2, theta3) = match start {
            Start::Grown if !last => (0.0, IDENTITY),
            Start::Means if !last => (MEAN, GAMMA),
            Start::Means => (DIFFERENCE, GAMMA),
            _ => (RHO, GAMMA),
        };
        let theta3 = theta3 + noise(0);
        let gamma = match shape.gamma {
            Gamma::Free => 1.0 / (1.0 + (-theta3).exp()),
            Gamma::Fixed(value) => value,
        };
        LayerParameters {
            theta1: 0.5 * noise(1) - gamma * log_degree,
            theta2: theta2 + 0.5 * noise(2),
            theta3,
            bias: 0.0,
        }
    });
    let model = Model { layers: layers.collect(), gamma: shape.gamma };
    let log_sigma = shape.sigma.unwrap_or(SIGMA).ln();
    let noise = shape.sigma.is_none();
    Parameters { model, log_sigma, bias: shape.bias, noise, scales: true }
}

/// `logit γ` of 0.3, and of almost no influence of the degree.
const GAMMA: f64 = -0.85;
const IDENTITY: f64 = -2.0;
/// `artanh ρ` of a weak smoothness, of a mean and of a difference.
const RHO: f64 = -0.5;
const MEAN: f64 = 0.3;
const DIFFERENCE: f64 = -1.0;
/// Noise to begin with, in standard deviations of the data.
const SIGMA: f64 = 0.3;
