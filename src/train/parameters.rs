//! What is fitted, as one vector: `(θ₁, θ₂, θ₃, b)` of every layer and `log σ`.

use crate::likelihood::Gaussian;
use crate::model::{Gamma, LayerParameters, Model, Parameter};

/// The parameters of the model and of the noise, in standardised units.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// The layers.
    pub model: Model,
    /// `log σ`.
    pub log_sigma: f64,
    /// Whether the biases move.
    pub bias: bool,
    /// Whether `σ` moves.
    pub noise: bool,
    /// Whether `α` of every layer moves. Only the product of all is determined: what one layer is
    /// scaled by, with its bias, the next can take back. So `α` of the last alone will do.
    pub scales: bool,
}

impl Parameters {
    /// Number of parameters, `4 L + 1`; those that stay are counted too.
    pub fn len(&self) -> usize {
        LayerParameters::COUNT * self.model.layers.len() + 1
    }

    /// Whether there are no parameters, which is never so: a model has layers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The noise of the data.
    pub fn gaussian(&self) -> Gaussian {
        Gaussian::from_log(self.log_sigma)
    }

    /// Standard deviation of the noise.
    pub fn sigma(&self) -> f64 {
        self.log_sigma.exp()
    }

    /// Writes the vector.
    pub fn read_into(&self, vector: &mut [f64]) {
        let (layers, sigma) = vector.split_at_mut(self.len() - 1);
        LayerParameters::write(&self.model.layers, layers);
        sigma[0] = self.log_sigma;
    }

    /// Takes over the vector.
    pub fn assign(&mut self, vector: &[f64]) {
        let (layers, sigma) = vector.split_at(self.len() - 1);
        LayerParameters::read(layers, &mut self.model.layers);
        self.log_sigma = sigma[0];
    }

    /// Whether a parameter of a layer moves.
    fn moves(&self, layer: usize, parameter: Parameter) -> bool {
        match parameter {
            Parameter::LogAlpha => self.scales || layer + 1 == self.model.layers.len(),
            Parameter::ArtanhRho => true,
            Parameter::LogitGamma => self.model.gamma == Gamma::Free,
            Parameter::Bias => self.bias,
        }
    }

    /// Which numbers of the vector move.
    fn moving(&self) -> impl Iterator<Item = bool> {
        let layers = 0..self.model.layers.len();
        let of_layer = move |l| Parameter::ALL.map(|parameter| self.moves(l, parameter));
        layers.flat_map(of_layer).chain([self.noise])
    }

    /// Places in the vector of the parameters that move.
    pub fn free(&self) -> Vec<usize> {
        self.moving().enumerate().filter(|(_, moves)| *moves).map(|(i, _)| i).collect()
    }

    /// Sets the derivatives of what stays to zero.
    pub fn mask(&self, gradient: &mut [f64]) {
        for (g, moves) in gradient.iter_mut().zip(self.moving()) {
            if !moves {
                *g = 0.0;
            }
        }
    }
}
