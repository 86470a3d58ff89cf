//! The deep Gaussian Markov random field: parameters, and the stack of layers `z = g(x)`.
//!
//! Here: one layer with its parameters and all that follows from them ([`layer`]), all layers
//! together ([`Model`]), their products and gradients on an engine ([`Stack`]), the entries of `G`
//! ([`columns`]), and a fitted model on disk ([`ModelFile`]). Not here: what turns the field into
//! data, and where spectra come from.

pub mod columns;
mod file;
mod gamma;
pub mod layer;
mod stack;
mod start;

pub use file::{ModelFile, Standardise};
pub use gamma::Gamma;
pub use layer::{LayerParameters, LayerSpec, LogDet, Parameter};
pub use stack::Stack;
pub use start::LayerStart;

use crate::error::{Error, Result};
use crate::field::Coefficients;

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
        let layers = layers.iter().map(|&layer| LayerParameters::from_coefficients(layer, gamma));
        Ok(Model { layers: layers.collect::<Result<_>>()?, gamma })
    }

    /// `α, ρ, γ, b` of layer `l`.
    pub fn coefficients(&self, l: usize) -> Coefficients {
        self.layers[l].coefficients(self.gamma)
    }

    /// `α, ρ, γ, b` of all layers.
    pub fn all_coefficients(&self) -> Vec<Coefficients> {
        (0..self.layers.len()).map(|l| self.coefficients(l)).collect()
    }

    /// The layers as people read them.
    pub fn rounded(&self) -> Vec<LayerSpec> {
        self.layers.iter().map(|layer| LayerSpec::rounded(layer, self.gamma)).collect()
    }
}
