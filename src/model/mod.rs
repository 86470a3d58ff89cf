//! The deep Gaussian Markov random field: parameters, and the stack of layers `z = g(x)`.
//!
//! Here: the parameters of each layer and how they become coefficients ([`Model`]), the stack of
//! layers on an engine with its transpose and gradient ([`Stack`]), and the gradient in the
//! parameters ([`Gradient`]), and a fitted model on disk ([`ModelFile`]). Not here: likelihoods and log-determinants.

mod file;
mod gamma;
mod stack;

pub use file::{ModelFile, Standardise};
pub use gamma::Gamma;
pub use stack::{After, Stack};

use crate::comm::World;
use crate::error::{Error, Result};
use crate::field::{Coefficients, LayerSums};

/// Unconstrained parameters of one layer (paper, appendix B): `α = exp θ₁` is positive,
/// `ρ = β/α = tanh θ₂` lies in `(-1, 1)`, and `γ = sigmoid θ₃` in `(0, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerParameters {
    /// `θ₁ = log α`.
    pub theta1: f64,
    /// `θ₂ = artanh ρ`.
    pub theta2: f64,
    /// `θ₃ = logit γ`; unused when γ is fixed.
    pub theta3: f64,
    /// `b`.
    pub bias: f64,
}

/// Number of parameters of a layer.
pub const PER_LAYER: usize = 4;

/// An `L`-layer model, layer 1 (next to the data) first.
///
/// ```
/// use dgmrf::model::{Gamma, Model};
/// let model = Model::from_coefficients(&[(1.2, -1.0, 0.3, 0.0)], Gamma::Free)?;
/// let c = model.coefficients(0);
/// assert!((c.alpha - 1.2).abs() < 1e-12 && (c.rho + 1.0 / 1.2).abs() < 1e-12);
/// # Ok::<(), dgmrf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Parameters of each layer.
    pub layers: Vec<LayerParameters>,
    /// Whether γ is learned.
    pub gamma: Gamma,
}

impl Model {
    /// The model with given `(α, β, γ, b)` per layer; γ is taken from `gamma` if that is fixed.
    pub fn from_coefficients(layers: &[(f64, f64, f64, f64)], gamma: Gamma) -> Result<Self> {
        if let Gamma::Fixed(value) = gamma
            && !(0.0..=1.0).contains(&value)
        {
            return Err(Error::Setting(format!("gamma = {value} must lie between 0 and 1")));
        }
        let layers = layers
            .iter()
            .map(|&(alpha, beta, layer_gamma, bias)| {
                let inside = alpha > 0.0
                    && beta.abs() < alpha
                    && (gamma != Gamma::Free || (0.0 < layer_gamma && layer_gamma < 1.0));
                if !inside || !alpha.is_finite() || !bias.is_finite() {
                    return Err(Error::Setting(format!(
                        "a layer needs alpha > 0, |beta| < alpha and 0 < gamma < 1; \
                         alpha = {alpha}, beta = {beta}, gamma = {layer_gamma}, bias = {bias}"
                    )));
                }
                let theta3 = match gamma {
                    Gamma::Free => (layer_gamma / (1.0 - layer_gamma)).ln(),
                    Gamma::Fixed(_) => 0.0,
                };
                Ok(LayerParameters {
                    theta1: alpha.ln(),
                    theta2: (beta / alpha).atanh(),
                    theta3,
                    bias,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Model { layers, gamma })
    }

    /// `α, ρ, γ, b` of layer `l`.
    pub fn coefficients(&self, l: usize) -> Coefficients {
        let p = &self.layers[l];
        Coefficients {
            alpha: p.theta1.exp(),
            rho: p.theta2.tanh(),
            gamma: match self.gamma {
                Gamma::Free => sigmoid(p.theta3),
                Gamma::Fixed(value) => value,
            },
            bias: p.bias,
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Derivative of a scalar in all layer parameters, `(θ₁, θ₂, θ₃, b)` per layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradient {
    /// One entry per layer, as [`Model::layers`].
    pub layers: Vec<LayerParameters>,
}

impl Gradient {
    /// Adds the sums of all ranks (one reduction for all layers) and applies the chain rule:
    /// `∂θ₁ = Σ g u`, `∂θ₂ = (1 − ρ²) Σ t h`, `∂θ₃ = γ (1 − γ) Σ g u log d`, `∂b = Σ g`.
    pub fn from_sums(world: &World, model: &Model, sums: &[LayerSums]) -> Self {
        let mut all: Vec<f64> =
            sums.iter().flat_map(|s| [s.alpha, s.rho, s.gamma, s.bias]).collect();
        world.sum(&mut all);
        let layers = all
            .chunks_exact(PER_LAYER)
            .enumerate()
            .map(|(l, s)| {
                let c = model.coefficients(l);
                LayerParameters {
                    theta1: s[0],
                    theta2: (1.0 - c.rho * c.rho) * s[1],
                    theta3: match model.gamma {
                        Gamma::Free => c.gamma * (1.0 - c.gamma) * s[2],
                        Gamma::Fixed(_) => 0.0,
                    },
                    bias: s[3],
                }
            })
            .collect();
        Gradient { layers }
    }
}
