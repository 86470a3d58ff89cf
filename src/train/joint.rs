//! `E[log p(y, x | θ, σ)]` and its gradient, for columns `x` from anywhere.
//!
//! With `z = g(x)`, `N` nodes and `M` of them observed (paper, Eq. 8):
//!
//! ```text
//! −log p(y, x) = ½ ‖z‖² − Σ_l log|det G_l| + ½ σ⁻² Σ_i m_i (y_i − x_i)²
//!                 + M log σ + ½ (N + M) log 2π
//! ```
//!
//! The ELBO takes the expectation under `q`, Fisher's identity under the posterior; both come here
//! with blocks of columns ([`Columns`]) and differ only in where these come from. Sums of all
//! blocks are collected on the rank ([`Joint::write`]), put into one reduction by the caller
//! together with whatever else it needs, and turned into value and gradient ([`finish`]).

use super::Parameters;
use super::fused_stack::{self, Tail};
use crate::field::{Engine, LayerSums, PullBack};
use crate::likelihood::ObservedFields;
use crate::model::{LayerParameters, LogDet, Stack};

/// What the columns of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Samples of `x`: the expectation is their mean.
    Samples,
    /// The mean of `x`, one column. With [`Columns::Deviations`] it makes up the expectation:
    /// `E f(x) = f(E x) + E f₀(x − E x)` for quadratic `f` with homogeneous part `f₀`.
    Mean,
    /// Deviations from the mean, with expectation zero.
    Deviations,
}

/// Collects the sums of one evaluation; owns the blocks between layers.
pub struct Joint<E: Engine> {
    mean: Stack<E>,
    /// Whether `mean` knows the parameters: not every evaluation needs it.
    mean_ready: bool,
    many: Stack<E>,
    sums: Vec<LayerSums>,
    of_pairs: Vec<LayerSums>,
    /// `E ‖g(x)‖²`, local.
    energy: f64,
    /// `E Σ m (y − x)²`, local.
    misfit: f64,
}

impl<E: Engine> Joint<E> {
    /// For a model of `layers` layers and blocks of `columns` columns.
    pub fn new(engine: &E, layers: usize, columns: usize) -> Self {
        Joint {
            mean: Stack::new(engine, layers, 1),
            mean_ready: false,
            many: Stack::new(engine, layers, columns),
            sums: vec![LayerSums::default(); layers],
            of_pairs: vec![LayerSums::default(); layers],
            energy: 0.0,
            misfit: 0.0,
        }
    }

    /// Begins an evaluation at these parameters.
    pub fn begin(&mut self, engine: &E, p: &Parameters) {
        self.mean_ready = false;
        self.many.prepare(engine, &p.model);
        self.sums.fill(LayerSums::default());
        (self.energy, self.misfit) = (0.0, 0.0);
    }

    /// Adds a block. Without data only `½ E ‖g(x)‖²` is taken in.
    ///
    /// `gx` becomes the gradient of `½ ‖g(x)‖² + ½ σ⁻² Σ m (y − x)²` in each column: that of the
    /// expectation times the number of columns. With `pull_back` it goes further in the same pass.
    #[allow(clippy::too_many_arguments)] // one pass, so one call
    pub fn add(
        &mut self,
        engine: &mut E,
        p: &Parameters,
        columns: Columns,
        data: Option<&ObservedFields<E::Block>>,
        x: &mut E::Block,
        pull_back: Option<PullBack<'_, E::Block>>,
        gx: &mut E::Block,
    ) {
        let weight = 1.0 / engine.columns(x) as f64;
        if columns == Columns::Mean && !std::mem::replace(&mut self.mean_ready, true) {
            self.mean.prepare(engine, &p.model);
        }
        let stack = if columns == Columns::Mean { &mut self.mean } else { &mut self.many };
        // What is homogeneous in the deviations knows neither biases nor data.
        let whole = columns != Columns::Deviations;
        let sums = (weight, &mut self.sums[..]);
        let residual = data.map(|data| p.gaussian().residual(data, whole));
        let tail = Tail { residual, pull_back };
        let (energy, misfit) =
            fused_stack::energy(stack, engine, &p.model, whole, sums, tail, [x, gx]);
        self.energy += weight * energy;
        self.misfit += weight * misfit;
    }

    /// Adds pairs `(w, x)` with `E[w xᵀ] = G Cov(x)`, such as white noise `w` with `x = Q̃⁻¹Gᵀw`,
    /// in place of deviations: `E ⟨w, ∂G x⟩ = E ⟨G x, ∂G x⟩`. Returns the local `E ⟨w, G x⟩`; `gx`
    /// becomes `Gᵀ w`.
    pub fn add_pairs(
        &mut self,
        engine: &mut E,
        w: &mut E::Block,
        x: &mut E::Block,
        gx: &mut E::Block,
    ) -> f64 {
        let weight = 1.0 / engine.columns(x) as f64;
        self.many.forward(engine, false, x);
        self.many.backward(engine, false, x, w, gx, &mut self.of_pairs);
        for (sums, found) in self.sums.iter_mut().zip(&self.of_pairs) {
            sums.add(&found.times(weight));
        }
        // Σ g u of the last layer, whose output u is G x.
        let energy = weight * self.of_pairs.last().map_or(0.0, |last| last.alpha);
        self.energy += energy;
        energy
    }

    /// Adds to `E Σ m (y − x)²` what is known in closed form (local).
    pub fn add_misfit(&mut self, local: f64) {
        self.misfit += local;
    }

    /// Numbers to be summed over the ranks, for a model of `layers` layers.
    pub const fn slots(layers: usize) -> usize {
        LayerParameters::COUNT * layers + 2
    }

    /// Writes the local sums.
    pub fn write(&self, slots: &mut [f64]) {
        let (layers, rest) = slots.split_at_mut(LayerParameters::COUNT * self.sums.len());
        write_sums(&self.sums, layers);
        rest.copy_from_slice(&[self.energy, self.misfit]);
    }
}

/// One layer after the other, for a reduction.
pub(super) fn write_sums(sums: &[LayerSums], slots: &mut [f64]) {
    for (s, slots) in sums.iter().zip(slots.as_chunks_mut().0) {
        *slots = [s.alpha, s.rho, s.gamma, s.bias];
    }
}

/// The sums of one layer over all ranks, as [`write_sums`] has put them.
fn sums_of([alpha, rho, gamma, bias]: [f64; LayerParameters::COUNT]) -> LayerSums {
    LayerSums { alpha, rho, gamma, bias }
}

/// The gradient of minus the expected log-joint in the parameters of one layer, from its sums over
/// all ranks and its log-determinant.
pub(super) fn layer_gradient(
    p: &crate::model::Model,
    l: usize,
    sums: [f64; LayerParameters::COUNT],
    log_det: &LogDet,
) -> LayerParameters {
    let of_energy = p.layers[l].chain_rule(p.gamma, &sums_of(sums)).to_array();
    let of_log_det = log_det.gradient.to_array();
    LayerParameters::from_array(std::array::from_fn(|k| of_energy[k] - of_log_det[k]))
}

/// The value of an evaluation, from sums over all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// `E log p(y, x)` without the constant `−½ (N + M) log 2π`.
    pub log_joint: f64,
    /// `E ‖g(x)‖²`.
    pub energy: f64,
    /// `E Σ m (y − x)²`.
    pub misfit: f64,
}

/// Turns the sums over all ranks into the value and the gradient of **minus** it, in the order of
/// [`Parameters`]; what stays fixed has gradient zero.
pub fn finish(
    p: &Parameters,
    observed: f64,
    slots: &[f64],
    log_det: impl Fn(usize) -> LogDet,
    gradient: &mut [f64],
) -> Value {
    let noise = p.gaussian();
    let (sums, rest) = slots.split_at(p.len() - 1);
    let (of_layers, of_noise) = gradient.split_at_mut(p.len() - 1);
    let (energy, misfit) = (rest[0], rest[1]);
    let mut log_joint = -0.5 * (energy + noise.weighted(misfit)) - noise.log_normaliser(observed);
    let per_layer = sums.as_chunks().0.iter().zip(of_layers.as_chunks_mut().0);
    for (l, (sums, gradient)) in per_layer.enumerate() {
        let log_det = log_det(l);
        log_joint += log_det.value;
        *gradient = layer_gradient(&p.model, l, *sums, &log_det).to_array();
    }
    of_noise[0] = noise.log_sigma_gradient(misfit, observed);
    p.mask(gradient);
    Value { log_joint, energy, misfit }
}
