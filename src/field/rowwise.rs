//! What training does with blocks beyond layers: samples of `q`, residuals, and Adam's update of one
//! value per node.
//!
//! A *node field* is a block of one column (`ν`, `ξ`, `τ`, the mask, `y`). All sums are local.

use super::{Engine, LayerSums, Output};
use crate::random::Stream;

/// What the random numbers of [`Rowwise::draw`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// Standard normal.
    Normal,
    /// Random signs.
    Rademacher,
}

/// One step of Adam (Kingma and Ba, 2015, algorithm 1) with both bias corrections folded into two
/// numbers: `p -= rate * m / (√v + epsilon)`.
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
    /// Moves one parameter against its gradient.
    #[inline]
    pub fn update(&self, gradient: f64, p: &mut f64, m: &mut f64, v: &mut f64) {
        *m = self.beta1 * *m + (1.0 - self.beta1) * gradient;
        *v = self.beta2 * *v + (1.0 - self.beta2) * gradient * gradient;
        *p -= self.rate * *m / (v.sqrt() + self.epsilon);
    }
}

/// A node field that Adam moves, with the moments of its gradient.
pub struct Moving<B> {
    /// The parameters.
    pub value: B,
    /// First moment.
    pub first: B,
    /// Second moment.
    pub second: B,
}

/// The gradient `p m_i (x_ic − t_i)` of `½ p Σ m (x − t)²` at `x`.
pub struct Residual<'a, B> {
    /// `p`.
    pub precision: f64,
    /// `m`, a node field.
    pub mask: &'a B,
    /// `t`, a node field; zero when absent.
    pub target: Option<&'a B>,
}

/// The way back through `x_ic = mean_i + scale_i t_ic`, for a cotangent `g` of `x`.
pub struct Pull<'a, B> {
    /// A node field; zero when absent.
    pub mean: Option<&'a B>,
    /// A positive node field.
    pub scale: &'a B,
    /// Becomes `Σ_c g_ic`.
    pub of_mean: &'a mut B,
    /// Becomes `Σ_c g_ic t_ic`.
    pub of_scale: &'a mut B,
}

/// Fused passes over the owned rows; one value per row means a node field.
pub trait Rowwise: Engine {
    /// `y = β y + α a ∘ b`, for blocks of one width.
    fn product(&self, beta: f64, alpha: f64, a: &Self::Block, b: &Self::Block, y: &mut Self::Block);

    /// `g_ic += p m_i (x_ic − t_i)`; returns `Σ m_i (x_ic − t_i)²`. Without a target `t = 0`.
    fn residual(
        &self,
        p: f64,
        mask: &Self::Block,
        target: Option<&Self::Block>,
        x: &Self::Block,
        g: &mut Self::Block,
    ) -> f64;

    /// `u_ic = w_i r_ic` with random `r`, columns `0..` of the stream by original id. Without `w`,
    /// one.
    fn draw(&self, draw: Draw, stream: Stream, w: Option<&Self::Block>, u: &mut Self::Block);

    /// `x_ic = mean_i + scale_i (G h)_ic` in one pass, with `G` the layer without its bias; without a
    /// mean, zero.
    fn layer_located(
        &mut self,
        layer: &Self::Layer,
        h: &mut Self::Block,
        mean: Option<&Self::Block>,
        scale: &Self::Block,
        x: &mut Self::Block,
    );
    /// [`Engine::adjoint_with_sums`] of the layer that `x` goes into, and what comes after it, in one
    /// pass: the residual is added, and the sum is pulled back, so that `gx` is `scale_i` times the
    /// gradient in `x`. Returns the sums of the layer and `Σ m_i (x_ic − t_i)²`.
    #[allow(clippy::too_many_arguments)] // one pass, so one call
    fn adjoint_pulled(
        &mut self,
        layer: &Self::Layer,
        with_bias: bool,
        g: &mut Self::Block,
        x: &Self::Block,
        output: Output<'_, Self::Block>,
        residual: Option<Residual<'_, Self::Block>>,
        pull: Option<Pull<'_, Self::Block>>,
        gx: &mut Self::Block,
    ) -> (LayerSums, f64);
    /// [`Engine::adjoint_with_sums`] of the layer that `u = w ∘ r` goes into. Of the gradient in `u` only
    /// that in `w` is kept: `of_w_i = Σ_c g_ic u_ic / w_i`.
    fn adjoint_dotted(
        &mut self,
        layer: &Self::Layer,
        g: &mut Self::Block,
        u: &Self::Block,
        output: Output<'_, Self::Block>,
        w: &Self::Block,
        of_w: &mut Self::Block,
    ) -> LayerSums;

    /// `x_ic = mean_i + scale_i t_ic`; without a mean, zero.
    fn locate(
        &self,
        mean: Option<&Self::Block>,
        scale: &Self::Block,
        t: &Self::Block,
        x: &mut Self::Block,
    );

    /// `out_ic = base_ic − Σ_k f_ik a_kc`: linear models taken off, one per column. `a` is row-major,
    /// a row for each column of `f`.
    fn subtract_linear(
        &self,
        f: &Self::Block,
        a: &[f64],
        base: &Self::Block,
        out: &mut Self::Block,
    );
    /// `out_kc = Σ_i f_ik v_ic`, row-major: the products of all columns of two blocks.
    fn project(&self, f: &Self::Block, v: &Self::Block, out: &mut [f64]);

    /// Adam on a node field, for the gradient `weight * gradient`.
    fn adam(
        &self,
        step: &AdamStep,
        weight: f64,
        gradient: &Self::Block,
        field: &mut Moving<Self::Block>,
    );
    /// Adam on the raw values `a` of a positive node field `ξ = softplus(a)`, for the objective
    /// whose derivative in `ξ` is `weight * gradient − 1/ξ` (the second term is that of the
    /// entropy); writes the new `ξ`. Returns `Σ log ξ` of the old one.
    fn adam_positive(
        &self,
        step: &AdamStep,
        weight: f64,
        gradient: &Self::Block,
        field: &mut Moving<Self::Block>,
        positive: &mut Self::Block,
    ) -> f64;
    /// `ξ = softplus(a) = log(1 + exp a)`.
    fn softplus(&self, a: &Self::Block, positive: &mut Self::Block);
}
