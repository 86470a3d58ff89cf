//! The contract of an engine: a core that it must bring, and passes that follow from it.

use super::layer::{Coefficients, ForwardOutput, Layer, LayerSums, PullBack, Residual};
use super::{Pointwise, fused};
use crate::comm::World;
use crate::partition::Part;
use crate::random::Stream;
use std::rc::Rc;

/// What random numbers are drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// The standard normal distribution.
    Normal,
    /// Random signs.
    Rademacher,
}

/// The numbers of a Krylov recurrence, one of each per column ([`Engine::krylov`]).
#[derive(Debug, Clone, Copy)]
pub struct Recurrence<'a> {
    /// What the last product counts in the next direction.
    pub a: &'a [f64],
    /// What the last direction counts in the next one.
    pub b: &'a [f64],
    /// What the last direction counts in the next product.
    pub c: &'a [f64],
}

/// What an engine does with the blocks of one rank. All algorithms of the crate are made of it.
///
/// The first fifteen methods are the core that an engine must have. All others are provided: their
/// bodies, written with the core, are their specification; engines override them to make fewer
/// passes. Only the values of owned rows count; halo rows of an argument that is passed as `&mut`
/// may be filled by the call (one exchange, hidden behind the work on interior rows), its owned
/// rows are left as they are.
pub trait Engine: Sized {
    /// `[owned + halo, s]` values.
    type Block;

    // ---- the core ---------------------------------------------------------------------------

    /// The part of the graph this engine works on.
    fn part(&self) -> &Part;
    /// The ranks.
    fn world(&self) -> &Rc<World>;

    /// A block of zeros.
    fn zeros(&self, columns: usize) -> Self::Block;
    /// Number of columns.
    fn columns(&self, block: &Self::Block) -> usize;
    /// Makes the block wider or narrower; its values are undefined afterwards. Cheap where it has
    /// been as wide before.
    fn resize(&self, block: &mut Self::Block, columns: usize);
    /// Copies host values `[owned, s]` into the owned rows.
    fn upload(&self, values: &[f64], block: &mut Self::Block);
    /// Copies the owned rows `[owned, s]` to the host.
    fn download(&self, block: &Self::Block) -> Vec<f64>;
    /// Fills the owned rows with random numbers: column `c` is column `first + c` of the stream, by
    /// original id.
    fn fill(&self, draw: Draw, stream: Stream, first: u64, block: &mut Self::Block);

    /// `out_i = Σ_j w_ij x_j`, or with `w_ij²` where `squared`.
    fn neighbour_sums(&mut self, squared: bool, x: &mut Self::Block, out: &mut Self::Block);
    /// `dots[c] = Σ_i x_ic y_ic`, local.
    fn dots(&self, x: &Self::Block, y: &Self::Block, dots: &mut [f64]);
    /// `sums_i = Σ_c x_ic`, a node field.
    fn row_sums(&self, x: &Self::Block, sums: &mut Self::Block);
    /// `z_c = a_c x_c + b_c y_c + c_c z_c` for every column.
    fn combine(
        &self,
        a: &[f64],
        x: &Self::Block,
        b: &[f64],
        y: &Self::Block,
        c: &[f64],
        z: &mut Self::Block,
    );
    /// `y = β y + α a ∘ b`; without `b`, `y = β y + α a`. For `β = 0` the old `y` is not read.
    /// Where `a` or `b` are node fields they count for every column of `y`.
    fn product(
        &self,
        beta: f64,
        alpha: f64,
        a: &Self::Block,
        b: Option<&Self::Block>,
        y: &mut Self::Block,
    );
    /// Column `b` of `y` becomes column `a` of `x`, for every pair `(a, b)`; the blocks may differ
    /// in width.
    fn copy_columns(&self, x: &Self::Block, y: &mut Self::Block, pairs: &[(usize, usize)]);
    /// Does `work` at every value of some blocks of one width; returns the local sum of its
    /// summands.
    fn pointwise<W: Pointwise<C, G>, const C: usize, const G: usize>(
        &self,
        work: &W,
        changed: [&mut Self::Block; C],
        given: [&Self::Block; G],
    ) -> f64;

    // ---- small things -----------------------------------------------------------------------

    /// Waits until everything asked for is done, on devices that work while the host goes on.
    fn synchronise(&self) {}

    /// A node field with these values at the owned rows.
    fn node_field(&self, values: &[f64]) -> Self::Block {
        let mut field = self.zeros(1);
        self.upload(values, &mut field);
        field
    }
    /// [`Engine::fill`] with signs.
    fn fill_rademacher(&self, stream: Stream, first: u64, block: &mut Self::Block) {
        self.fill(Draw::Rademacher, stream, first, block);
    }
    /// [`Engine::fill`] with normal numbers.
    fn fill_normal(&self, stream: Stream, first: u64, block: &mut Self::Block) {
        self.fill(Draw::Normal, stream, first, block);
    }
    /// `u_ic = w_i r_ic` with random `r`, columns `0..` of the stream by original id. Without `w`,
    /// one.
    fn draw(&self, draw: Draw, stream: Stream, w: Option<&Self::Block>, u: &mut Self::Block) {
        self.fill(draw, stream, 0, u);
        if let Some(w) = w {
            let scaled = fused::times(self, w, u);
            self.product(0.0, 1.0, &scaled, None, u);
        }
    }

    // ---- layers -----------------------------------------------------------------------------

    /// An empty layer to be filled by [`Engine::prepare`].
    fn new_layer(&self) -> Layer<Self::Block> {
        let (scale, ratio) = (self.zeros(1), self.zeros(1));
        Layer { scale, ratio, rho: 0.0, bias: 0.0, squared: false }
    }
    /// Computes what applying the layer needs: `s_i = α d_i^γ` and `s_i / d_i`.
    fn prepare(&self, coefficients: &Coefficients, layer: &mut Layer<Self::Block>) {
        fused::prepare(self, coefficients, layer);
    }
    /// The layer with every entry of its matrix squared, `G ∘ G`: what variances of independent
    /// values become, `Var[(G x)_i] = Σ_j G_ij² Var[x_j]`. Applied, transposed and summed over like
    /// any layer, with `s²`, `ρ²` and `w²` in place of `s`, `ρ` and `w`.
    fn square(&self, layer: &Layer<Self::Block>, squared: &mut Layer<Self::Block>) {
        self.product(0.0, 1.0, &layer.scale, Some(&layer.scale), &mut squared.scale);
        self.product(0.0, 1.0, &layer.ratio, Some(&layer.ratio), &mut squared.ratio);
        (squared.rho, squared.bias, squared.squared) = (layer.rho * layer.rho, 0.0, true);
    }
    /// The random walk `D⁻¹A` as a layer: no self term, no bias.
    fn random_walk(&self) -> Layer<Self::Block> {
        let ratio = fused::of_degree(self, |d| 1.0 / d);
        Layer { scale: self.zeros(1), ratio, rho: 1.0, bias: 0.0, squared: false }
    }
    /// `out = bias + s ∘ (h + ρ D⁻¹A h)`; the bias only where `with_bias`.
    fn layer(
        &mut self,
        layer: &Layer<Self::Block>,
        with_bias: bool,
        h: &mut Self::Block,
        out: &mut Self::Block,
    ) {
        fused::layer(self, layer, with_bias, h, out);
    }
    /// `out = s ∘ g + ρ A (s ∘ g / d)`, the transposed layer.
    fn adjoint(&mut self, layer: &Layer<Self::Block>, g: &mut Self::Block, out: &mut Self::Block) {
        let sums = fused::transposed_sums(self, layer, g);
        self.product(0.0, 1.0, &layer.scale, Some(g), out);
        self.product(1.0, layer.rho, &sums, None, out);
    }
    /// [`Engine::adjoint`] and, in the same pass, the sums of the layer's gradient. `input`,
    /// `output` and `with_bias` are those of the forward layer.
    fn adjoint_with_sums(
        &mut self,
        layer: &Layer<Self::Block>,
        with_bias: bool,
        g: &mut Self::Block,
        input: &Self::Block,
        output: ForwardOutput<'_, Self::Block>,
        out: &mut Self::Block,
    ) -> LayerSums {
        fused::adjoint_with_sums(self, layer, with_bias, g, input, output, out)
    }
    /// `x_ic = mean_i + scale_i (G h)_ic`, with `G` the layer without its bias; without a mean,
    /// zero.
    fn layer_affine(
        &mut self,
        layer: &Layer<Self::Block>,
        h: &mut Self::Block,
        mean: Option<&Self::Block>,
        scale: &Self::Block,
        x: &mut Self::Block,
    ) {
        let mut t = self.zeros(self.columns(x));
        self.layer(layer, false, h, &mut t);
        self.affine(mean, scale, &t, x);
    }
    /// [`Engine::adjoint_with_sums`] of the layer that `x` goes into, and what comes after it, in
    /// one pass: the residual is added, and the sum is pulled back, so that `gx` is `scale_i` times
    /// the gradient in `x`. Returns the sums of the layer and `Σ m_i (x_ic − t_i)²`.
    #[allow(clippy::too_many_arguments)] // one pass, so one call
    fn adjoint_pull_back(
        &mut self,
        layer: &Layer<Self::Block>,
        with_bias: bool,
        g: &mut Self::Block,
        x: &Self::Block,
        output: ForwardOutput<'_, Self::Block>,
        residual: Option<Residual<'_, Self::Block>>,
        pull_back: Option<PullBack<'_, Self::Block>>,
        gx: &mut Self::Block,
    ) -> (LayerSums, f64) {
        let sums = self.adjoint_with_sums(layer, with_bias, g, x, output, gx);
        let misfit = residual.map_or(0.0, |residual| self.residual(&residual, x, gx));
        if let Some(pull_back) = pull_back {
            fused::pull_back(self, pull_back, x, gx);
        }
        (sums, misfit)
    }
    /// [`Engine::adjoint_with_sums`] of the layer that `u = w ∘ r` goes into. Of the gradient in
    /// `u` only that in `w` is kept: `of_w_i = Σ_c g_ic u_ic / w_i`.
    fn adjoint_row_dots(
        &mut self,
        layer: &Layer<Self::Block>,
        g: &mut Self::Block,
        u: &Self::Block,
        output: ForwardOutput<'_, Self::Block>,
        w: &Self::Block,
        of_w: &mut Self::Block,
    ) -> LayerSums {
        let mut back = self.zeros(self.columns(u));
        let sums = self.adjoint_with_sums(layer, false, g, u, output, &mut back);
        fused::row_dots(self, &back, u, w, of_w);
        sums
    }

    // ---- passes over blocks -----------------------------------------------------------------

    /// `y_c += a_c x_c` for every column.
    fn axpy(&self, a: &[f64], x: &Self::Block, y: &mut Self::Block) {
        let (zero, one) = (vec![0.0; a.len()], vec![1.0; a.len()]);
        self.combine(a, x, &zero, x, &one, y);
    }
    /// `y_c = x_c + a_c y_c` for every column.
    fn aypx(&self, a: &[f64], x: &Self::Block, y: &mut Self::Block) {
        let (zero, one) = (vec![0.0; a.len()], vec![1.0; a.len()]);
        self.combine(&one, x, &zero, x, a, y);
    }
    /// `y_i = w_i x_i` for every row.
    fn scale_rows(&self, w: &Self::Block, x: &Self::Block, y: &mut Self::Block) {
        self.product(0.0, 1.0, w, Some(x), y);
    }
    /// `y_i += w_i x_i` for every row.
    fn add_scaled_rows(&self, w: &Self::Block, x: &Self::Block, y: &mut Self::Block) {
        self.product(1.0, 1.0, w, Some(x), y);
    }
    /// `x_ic = mean_i + scale_i t_ic`; without a mean, zero.
    fn affine(
        &self,
        mean: Option<&Self::Block>,
        scale: &Self::Block,
        t: &Self::Block,
        x: &mut Self::Block,
    ) {
        self.product(0.0, 1.0, scale, Some(t), x);
        if let Some(mean) = mean {
            self.product(1.0, 1.0, mean, None, x);
        }
    }
    /// `g_ic += p m_i (x_ic − t_i)`; returns `Σ m_i (x_ic − t_i)²`.
    fn residual(
        &self,
        residual: &Residual<'_, Self::Block>,
        x: &Self::Block,
        g: &mut Self::Block,
    ) -> f64 {
        fused::residual(self, residual, x, g)
    }
    /// `out_ic = base_ic − Σ_k f_ik a_kc`: linear models taken off, one per column. `a` is
    /// row-major, a row for each column of `f`.
    fn subtract_linear(
        &self,
        f: &Self::Block,
        a: &[f64],
        base: &Self::Block,
        out: &mut Self::Block,
    ) {
        fused::subtract_linear(self, f, a, base, out);
    }
    /// `out_kc = Σ_i f_ik v_ic`, row-major: the products of all columns of two blocks.
    fn project(&self, f: &Self::Block, v: &Self::Block, out: &mut [f64]) {
        fused::project(self, f, v, out);
    }

    // ---- recurrences ------------------------------------------------------------------------

    /// What a step of conjugate gradients has to know, local: `Σ p s`, then `Σ w s²`, then
    /// `Σ w r²`, one of each per column, with one `w` per row.
    fn step_dots(
        &self,
        w: &Self::Block,
        p: &Self::Block,
        s: &Self::Block,
        r: &Self::Block,
        dots: &mut [f64],
    ) {
        let (ps, rest) = dots.split_at_mut(self.columns(p));
        let (ss, rr) = rest.split_at_mut(self.columns(p));
        self.dots(p, s, ps);
        self.dots(&fused::times(self, w, s), s, ss);
        self.dots(&fused::times(self, w, r), r, rr);
    }
    /// A step of conjugate gradients: `x_c += α_c p_c`, `r_c −= α_c s_c`, then
    /// `p_c = w ∘ r_c + β_c p_c`.
    fn step(
        &self,
        (alpha, beta): (&[f64], &[f64]),
        w: &Self::Block,
        s: &Self::Block,
        p: &mut Self::Block,
        x: &mut Self::Block,
        r: &mut Self::Block,
    ) {
        let minus: Vec<f64> = alpha.iter().map(|a| -a).collect();
        self.axpy(alpha, p, x);
        self.axpy(&minus, s, r);
        self.aypx(beta, &fused::times(self, w, r), p);
    }
    /// One step of a Krylov recurrence of the random walk, in as few passes as the engine can.
    ///
    /// Without a recurrence `z = D⁻¹A x`. With one, the next direction of every column comes first:
    ///
    /// ```text
    /// x' = a z + b x,   z' = D⁻¹A x' + c x
    /// ```
    ///
    /// Local sums of all columns: `Σ d x²`, then `Σ d x z`, then `Σ d z²`, of `x` and `z` as they
    /// are left.
    fn krylov(
        &mut self,
        recurrence: Option<Recurrence<'_>>,
        x: &mut Self::Block,
        z: &mut Self::Block,
        sums: &mut [f64],
    ) {
        fused::krylov(self, recurrence, x, z, sums);
    }
}
