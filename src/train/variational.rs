//! The variational distribution `q = N(ν, S Sᵀ)`, `S = diag(ξ) G̃ diag(τ)` (paper, Eq. 11).
//!
//! `G̃` is a stack of layers like those of the model, without biases; with none of them `S = diag(ξ)`
//! (mean field). `ξ` and `τ` are positive, `softplus` of what Adam moves.

use super::joint::write_sums;
use crate::field::rowwise::{AdamStep, Draw, Moving, Pull, Rowwise};
use crate::field::{Engine, LayerSums, Output};
use crate::model::{Gamma, LayerParameters, Model, Stack};
use crate::random::Stream;

/// `q` on an engine, and the blocks that a step takes.
pub struct Variational<E: Rowwise> {
    /// `G̃`; no layers for mean field.
    pub model: Model,
    /// `ν`.
    pub nu: Moving<E::Block>,
    /// What `ξ` is the softplus of.
    pub xi: Moving<E::Block>,
    /// What `τ` is the softplus of; not used for mean field.
    pub tau: Moving<E::Block>,
    positive_xi: E::Block,
    positive_tau: E::Block,
    stack: Option<Stack<E>>,
    squared: Option<E::Layer>,
    samples: usize,
    /// `u = τ ∘ r`, for mean field `r`.
    u: E::Block,
    of_mean: E::Block,
    of_xi: E::Block,
    of_tau: E::Block,
    /// Rooms for the exact variance.
    column: [E::Block; 4],
    sums: Vec<LayerSums>,
}

/// A node field at rest.
fn moving<E: Engine>(engine: &E, start: &[f64]) -> Moving<E::Block> {
    let mut value = engine.zeros(1);
    engine.upload(start, &mut value);
    Moving { value, first: engine.zeros(1), second: engine.zeros(1) }
}

impl<E: Rowwise> Variational<E> {
    /// `q` with `layers` layers around the mean `nu` (owned rows), for blocks of `samples` columns.
    pub fn new(engine: &E, layers: Vec<LayerParameters>, nu: &[f64], samples: usize) -> Self {
        let raw = vec![RAW; nu.len()];
        let count = layers.len();
        let block = |columns: usize| engine.zeros(columns);
        let mut q = Variational {
            model: Model { layers, gamma: Gamma::Free },
            nu: moving(engine, nu),
            xi: moving(engine, &raw),
            tau: moving(engine, &raw),
            positive_xi: block(1),
            positive_tau: block(1),
            stack: (count > 0).then(|| Stack::new(engine, count, samples)),
            squared: (count == 1).then(|| engine.new_layer()),
            samples,
            u: block(samples),
            of_mean: block(1),
            of_xi: block(1),
            of_tau: block(1),
            column: [0; 4].map(|_| block(1)),
            sums: vec![LayerSums::default(); count],
        };
        q.refresh(engine);
        q
    }

    /// Makes `ξ` and `τ` what their raw values say.
    pub fn refresh(&mut self, engine: &E) {
        engine.softplus(&self.xi.value, &mut self.positive_xi);
        engine.softplus(&self.tau.value, &mut self.positive_tau);
    }

    /// Number of layers in `G̃`.
    pub fn layers(&self) -> usize {
        self.model.layers.len()
    }

    /// Draws `x = ν + S r` (without `ν` where only deviations are wanted).
    pub fn draw(
        &mut self,
        engine: &mut E,
        draw: Draw,
        stream: Stream,
        with_mean: bool,
        x: &mut E::Block,
    ) {
        let mean = with_mean.then_some(&self.nu.value);
        match &mut self.stack {
            None => {
                engine.draw(draw, stream, None, &mut self.u);
                engine.locate(mean, &self.positive_xi, &self.u, x);
            }
            Some(stack) => {
                stack.prepare(engine, &self.model);
                engine.draw(draw, stream, Some(&self.positive_tau), &mut self.u);
                stack.forward_located(engine, &mut self.u, mean, &self.positive_xi, x);
            }
        }
    }

    /// The way back from a cotangent of `x` to `ν` and `ξ`: to be given to who makes that cotangent.
    /// `with_mean` as in [`Variational::draw`].
    pub fn pull(&mut self, with_mean: bool) -> Pull<'_, E::Block> {
        Pull {
            mean: with_mean.then_some(&self.nu.value),
            scale: &self.positive_xi,
            of_mean: &mut self.of_mean,
            of_scale: &mut self.of_xi,
        }
    }

    /// The rest of the way, from `g` as [`Variational::pull`] leaves it to `τ` and the layers. All
    /// gradients are times the number of columns.
    pub fn backward(&mut self, engine: &mut E, g: &mut E::Block) {
        if let Some(stack) = &mut self.stack {
            let of_output = (&self.positive_xi, &self.of_xi);
            let of_input = (&self.positive_tau, &mut self.of_tau);
            stack.backward_located(engine, of_output, g, &self.u, of_input, &mut self.sums);
        }
        let share = 1.0 / self.samples as f64;
        self.sums.iter_mut().for_each(|s| *s = s.times(share));
    }

    /// Whether `Var x` at the observed nodes is known without sampling.
    pub fn knows_variance(&self) -> bool {
        self.squared.is_some()
    }

    /// For one layer in `G̃`: `Σ m_i Var x_i`, local, with `Var x = ξ² ∘ (G̃ ∘ G̃) τ²`. Adds the gradients of
    /// `½ p Σ m_i Var x_i` to what [`Variational::backward`] has left.
    pub fn add_variance(&mut self, engine: &mut E, p: f64, mask: &E::Block) -> f64 {
        let (Some(squared), Some(stack)) = (&mut self.squared, &self.stack) else { return 0.0 };
        engine.square(stack.layer(0), squared);
        let [tau2, v, c, room] = &mut self.column;
        let (xi, tau) = (&self.positive_xi, &self.positive_tau);
        engine.product(0.0, 1.0, tau, tau, tau2);
        engine.layer(squared, false, tau2, v);
        // c = p m ξ²; the sum is Σ c v / p.
        engine.product(0.0, p, xi, mask, room);
        engine.product(0.0, 1.0, room, xi, c);
        engine.product(1.0, self.samples as f64, room, v, &mut self.of_xi);
        let sums = engine.adjoint_with_sums(squared, false, c, tau2, Output::Block(v), room);
        engine.product(1.0, self.samples as f64, tau, room, &mut self.of_tau);
        // α and s enter squared: ½ ∂(s²) = s² per unit of log s, ½ ∂(ρ²) = ρ per unit of ρ.
        let rho = self.model.coefficients(0).rho;
        let own = &mut self.sums[0];
        own.alpha += sums.alpha;
        own.gamma += sums.gamma;
        own.rho += rho * sums.rho;
        sums.alpha / p
    }

    /// Moves `ν` (against `of_nu` where given, else against what [`Variational::pull`] has found), `ξ` and
    /// `τ`; returns the local `Σ log ξ + Σ log τ` from before.
    pub fn update(&mut self, engine: &E, step: &AdamStep, of_nu: Option<&E::Block>) -> f64 {
        let share = 1.0 / self.samples as f64;
        match of_nu {
            Some(gradient) => engine.adam(step, 1.0, gradient, &mut self.nu),
            None => engine.adam(step, share, &self.of_mean, &mut self.nu),
        }
        let (xi, tau) = (&mut self.positive_xi, &mut self.positive_tau);
        let mut logs = engine.adam_positive(step, share, &self.of_xi, &mut self.xi, xi);
        if self.stack.is_some() {
            logs += engine.adam_positive(step, share, &self.of_tau, &mut self.tau, tau);
        }
        logs
    }

    /// Writes the local sums of the layers' gradients.
    pub fn write(&self, slots: &mut [f64]) {
        write_sums(&self.sums, slots);
    }
}

/// Raw values of `ξ` and `τ` to begin with: the middle of the paper's `U(−1, 1)`.
const RAW: f64 = 0.0;
