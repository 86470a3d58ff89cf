//! The variational distribution `q = N(ν, S Sᵀ)`, `S = diag(ξ) G̃ diag(τ)` (paper, Eq. 11).
//!
//! `G̃` is a stack of layers like those of the model, without biases; with none of them `S =
//! diag(ξ)` (mean field). `ξ` and `τ` are positive, softplus of what Adam moves.

use super::adam::AdamStep;
use super::fused_stack;
use super::joint::write_sums;
use super::node_fields::{Moving, to_positive};
use crate::field::{Draw, Engine, ForwardOutput, Layer, LayerSums, PullBack};
use crate::model::{Gamma, LayerParameters, Model, Stack};
use crate::random::Stream;

/// `q` on an engine, and the blocks that a step takes.
pub struct Variational<E: Engine> {
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
    squared: Option<Layer<E::Block>>,
    samples: usize,
    /// `u = τ ∘ r`, for mean field `r`.
    u: E::Block,
    of_mean: E::Block,
    of_xi: E::Block,
    of_tau: E::Block,
    /// Scratch fields of the exact variance.
    column: [E::Block; 4],
    sums: Vec<LayerSums>,
}

impl<E: Engine> Variational<E> {
    /// `q` with `layers` layers around the mean `nu` (owned rows), for blocks of `samples` columns.
    pub fn new(engine: &E, layers: Vec<LayerParameters>, nu: &[f64], samples: usize) -> Self {
        let raw = vec![RAW; nu.len()];
        let count = layers.len();
        let block = |columns: usize| engine.zeros(columns);
        let mut q = Variational {
            model: Model { layers, gamma: Gamma::Free },
            nu: Moving::new(engine, nu),
            xi: Moving::new(engine, &raw),
            tau: Moving::new(engine, &raw),
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
        to_positive(engine, &self.xi.value, &mut self.positive_xi);
        to_positive(engine, &self.tau.value, &mut self.positive_tau);
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
                engine.affine(mean, &self.positive_xi, &self.u, x);
            }
            Some(stack) => {
                stack.prepare(engine, &self.model);
                engine.draw(draw, stream, Some(&self.positive_tau), &mut self.u);
                let (u, scale) = (&mut self.u, &self.positive_xi);
                fused_stack::forward_affine(stack, engine, u, mean, scale, x);
            }
        }
    }

    /// The way back from a cotangent of `x` to `ν` and `ξ`, for the pass that makes the cotangent.
    /// `with_mean` as in [`Variational::draw`].
    pub fn pull_back(&mut self, with_mean: bool) -> PullBack<'_, E::Block> {
        PullBack {
            mean: with_mean.then_some(&self.nu.value),
            scale: &self.positive_xi,
            of_mean: &mut self.of_mean,
            of_scale: &mut self.of_xi,
        }
    }

    /// The rest of the way, from `g` as [`Variational::pull_back`] leaves it to `τ` and the layers.
    /// All gradients are times the number of columns.
    pub fn backward(&mut self, engine: &mut E, g: &mut E::Block) {
        if let Some(stack) = &mut self.stack {
            let of_output = (&self.positive_xi, &self.of_xi);
            let of_input = (&self.positive_tau, &mut self.of_tau);
            let (u, sums) = (&self.u, &mut self.sums[..]);
            fused_stack::backward_affine(stack, engine, of_output, g, u, of_input, sums);
        }
        let share = 1.0 / self.samples as f64;
        self.sums.iter_mut().for_each(|s| *s = s.times(share));
    }

    /// Whether `Var x` at the observed nodes is known without sampling.
    pub fn knows_variance(&self) -> bool {
        self.squared.is_some()
    }

    /// For one layer in `G̃`: `Σ m_i Var x_i`, local, with `Var x = ξ² ∘ (G̃ ∘ G̃) τ²`. Adds the
    /// gradients of `½ p Σ m_i Var x_i` to what [`Variational::backward`] has left.
    pub fn add_variance(&mut self, engine: &mut E, p: f64, mask: &E::Block) -> f64 {
        let (Some(squared), Some(stack)) = (&mut self.squared, &self.stack) else { return 0.0 };
        engine.square(stack.layer(0), squared);
        let [tau2, v, c, scratch] = &mut self.column;
        let (xi, tau) = (&self.positive_xi, &self.positive_tau);
        engine.product(0.0, 1.0, tau, Some(tau), tau2);
        engine.layer(squared, false, tau2, v);
        // c = p m ξ²; the sum is Σ c v / p.
        engine.product(0.0, p, xi, Some(mask), scratch);
        engine.product(0.0, 1.0, scratch, Some(xi), c);
        engine.product(1.0, self.samples as f64, scratch, Some(v), &mut self.of_xi);
        let output = ForwardOutput::Block(v);
        let sums = engine.adjoint_with_sums(squared, false, c, tau2, output, scratch);
        engine.product(1.0, self.samples as f64, tau, Some(scratch), &mut self.of_tau);
        // α and s enter squared: ½ ∂(s²) = s² per unit of log s, ½ ∂(ρ²) = ρ per unit of ρ.
        let rho = self.model.coefficients(0).rho;
        let own = &mut self.sums[0];
        own.alpha += sums.alpha;
        own.gamma += sums.gamma;
        own.rho += rho * sums.rho;
        sums.alpha / p
    }

    /// Moves `ν` (against `of_nu` where given, else against what [`Variational::pull_back`] has
    /// found), `ξ` and `τ`; returns the local `Σ log ξ + Σ log τ` from before.
    pub fn update(&mut self, engine: &E, step: &AdamStep, of_nu: Option<&E::Block>) -> f64 {
        let share = 1.0 / self.samples as f64;
        match of_nu {
            Some(gradient) => self.nu.update(engine, step, 1.0, gradient),
            None => self.nu.update(engine, step, share, &self.of_mean),
        }
        let (xi, tau) = (&mut self.positive_xi, &mut self.positive_tau);
        let mut logs = self.xi.update_positive(engine, step, share, &self.of_xi, xi);
        if self.stack.is_some() {
            logs += self.tau.update_positive(engine, step, share, &self.of_tau, tau);
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
