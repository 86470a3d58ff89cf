//! Adam (Kingma and Ba, 2015), ours because its state must survive a restart bit for bit.
//!
//! The few parameters of the model live on the host ([`Adam::update`]); node fields are moved on
//! their engine (`node_fields.rs`). Both by one formula ([`AdamStep::apply`]).

use crate::field::Arithmetic;

words! {
    /// How the learning rate changes over the run.
    pub enum Decay {
        /// The full rate throughout.
        #[default]
        None = "none",
        /// Half a cosine, from the full rate at the first step to 1 % of it at the last.
        Cosine = "cosine",
    }
}

/// Settings of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// `η`.
    pub learning_rate: f64,
    /// How `η` changes over the run.
    pub decay: Decay,
    /// Steps over which it decays.
    pub iterations: u64,
    /// `β₁`.
    pub beta1: f64,
    /// `β₂`.
    pub beta2: f64,
    /// `ε`.
    pub epsilon: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            learning_rate: 0.01,
            decay: Decay::None,
            iterations: 50_000,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        }
    }
}

impl Options {
    /// The numbers of step `t`, counted from 1.
    pub fn step(&self, t: u64) -> AdamStep {
        let passed = (t - 1) as f64 / self.iterations.max(2).saturating_sub(1) as f64;
        let share = match self.decay {
            Decay::None => 1.0,
            Decay::Cosine => {
                0.01 + 0.99 * 0.5 * (1.0 + (std::f64::consts::PI * passed.min(1.0)).cos())
            }
        };
        let exponent = i32::try_from(t).unwrap_or(i32::MAX);
        let unbiased1 = 1.0 - self.beta1.powi(exponent);
        let unbiased2 = (1.0 - self.beta2.powi(exponent)).sqrt();
        AdamStep {
            beta1: self.beta1,
            beta2: self.beta2,
            rate: share * self.learning_rate * unbiased2 / unbiased1,
            epsilon: self.epsilon * unbiased2,
        }
    }
}

/// One step of Adam (algorithm 1) with both bias corrections folded into two numbers:
/// `p -= rate * m / (√v + epsilon)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// `β₁`.
    pub beta1: f64,
    /// `β₂`.
    pub beta2: f64,
    /// `η √(1 − β₂ᵗ) / (1 − β₁ᵗ)`.
    pub rate: f64,
    /// `ε √(1 − β₂ᵗ)`.
    pub epsilon: f64,
}

impl AdamStep {
    /// A parameter and the moments of its gradient, `[p, m, v]`, after a step against gradient `g`.
    #[inline(always)]
    pub fn apply<V: Arithmetic>(&self, g: V, [p, m, v]: [V; 3]) -> [V; 3] {
        let number = |value: f64| g.number(value);
        let m = number(self.beta1) * m + number(1.0 - self.beta1) * g.copy();
        let v = number(self.beta2) * v + number(1.0 - self.beta2) * g.copy() * g.copy();
        let p = p - number(self.rate) * m.copy() / (v.copy().sqrt() + number(self.epsilon));
        [p, m, v]
    }
}

/// The moments of a parameter vector on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    /// First moments.
    pub first: Vec<f64>,
    /// Second moments.
    pub second: Vec<f64>,
}

impl Adam {
    /// For a vector of this length.
    pub fn new(length: usize) -> Self {
        Adam { first: vec![0.0; length], second: vec![0.0; length] }
    }

    /// Moves the parameters against the gradient. A parameter whose gradient is always zero stays.
    pub fn update(&mut self, step: &AdamStep, gradient: &[f64], parameters: &mut [f64]) {
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((p, &g), (m, v)) in parameters.iter_mut().zip(gradient).zip(moments) {
            [*p, *m, *v] = step.apply(g, [*p, *m, *v]);
        }
    }
}
