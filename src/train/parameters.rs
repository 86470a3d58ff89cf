//! What is fitted, as one vector: `(θ₁, θ₂, θ₃, b)` of every layer and `log σ`.

use crate::model::{Gamma, LayerParameters, Model, PER_LAYER};

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
        PER_LAYER * self.model.layers.len() + 1
    }

    /// Never: a model has layers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Standard deviation of the noise.
    pub fn sigma(&self) -> f64 {
        self.log_sigma.exp()
    }

    /// Writes the vector.
    pub fn read_into(&self, vector: &mut [f64]) {
        let (layers, sigma) = vector.split_at_mut(self.len() - 1);
        write_layers(&self.model.layers, layers);
        sigma[0] = self.log_sigma;
    }

    /// Takes over the vector.
    pub fn assign(&mut self, vector: &[f64]) {
        let (layers, sigma) = vector.split_at(self.len() - 1);
        read_layers(layers, &mut self.model.layers);
        self.log_sigma = sigma[0];
    }

    /// The parameters that move.
    pub fn free(&self) -> Vec<usize> {
        let last = self.len() - 1;
        let moves = |i: usize| match (i == last, i % PER_LAYER) {
            (true, _) => self.noise,
            (_, 0) => self.scales || i + PER_LAYER >= last,
            (_, 2) => self.model.gamma == Gamma::Free,
            (_, 3) => self.bias,
            _ => true,
        };
        (0..=last).filter(|&i| moves(i)).collect()
    }

    /// Sets the derivatives of what stays to zero. (That of a fixed `γ` is zero by itself.)
    pub fn mask(&self, gradient: &mut [f64]) {
        let last = self.len() - 1;
        if !self.scales {
            gradient[..last - PER_LAYER].iter_mut().step_by(PER_LAYER).for_each(|g| *g = 0.0);
        }
        if !self.bias {
            gradient[..last].iter_mut().skip(3).step_by(PER_LAYER).for_each(|g| *g = 0.0);
        }
        if !self.noise {
            gradient[last] = 0.0;
        }
    }
}

/// `(θ₁, θ₂, θ₃, b)` of each layer, one after the other.
pub(super) fn write_layers(layers: &[LayerParameters], vector: &mut [f64]) {
    for (p, v) in layers.iter().zip(vector.chunks_exact_mut(PER_LAYER)) {
        v.copy_from_slice(&[p.theta1, p.theta2, p.theta3, p.bias]);
    }
}

/// The opposite of [`write_layers`].
pub(super) fn read_layers(vector: &[f64], layers: &mut [LayerParameters]) {
    for (p, v) in layers.iter_mut().zip(vector.chunks_exact(PER_LAYER)) {
        *p = LayerParameters { theta1: v[0], theta2: v[1], theta3: v[2], bias: v[3] };
    }
}
