//! Blocks of node values and what engines can do with them.
//!
//! A *block* is a tall matrix `[owned + halo, s]`, row-major: `s` samples or probes side by side,
//! so that one gather of a neighbour serves all columns. Every algorithm downstream is written
//! once against [`Engine`]; there are two engines, [`native`] (Rust, all CPUs) and, with the
//! feature `torch`, [`torch`] (libtorch on the CPU or one CUDA device per local rank).
//!
//! Sums that an engine returns are *local*, over the owned rows of this rank; the caller puts all
//! it needs into one [`World::sum`]. In the native engine their order is fixed: it depends on the
//! number of ranks but not on the number of threads.

pub mod native;
pub mod rowwise;
#[cfg(feature = "torch")]
pub mod torch;

use crate::comm::World;
use crate::partition::Part;
use crate::random::Stream;
use std::rc::Rc;

words! {
    /// Where the torch engine computes.
    pub enum Device {
        /// A GPU if there is one.
        #[default]
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// The CUDA device of the local rank.
        Cuda = "cuda",
    }
}

/// One layer of the model in the form engines apply it, for `s_i = α d_i^γ` and `ρ = β/α`:
///
/// forward `b + s ∘ (h + ρ D⁻¹A h)`, transposed `s ∘ g + ρ A (s ∘ g / d)` (paper, Eq. 7).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coefficients {
    /// `α > 0`.
    pub alpha: f64,
    /// `ρ`, in `(-1, 1)`.
    pub rho: f64,
    /// `γ`, in `[0, 1]`.
    pub gamma: f64,
    /// `b`.
    pub bias: f64,
}

/// Local sums from which the gradient of one layer follows, for a cotangent `g` of its output.
///
/// With `h` the input, `u = out − b` and `t = A (s ∘ g / d)`: `⟨g, s ∘ D⁻¹A h⟩ = ⟨t, h⟩`, so the
/// transposed product that back-propagation needs anyway also gives the gradient in `ρ`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerSums {
    /// `Σ g u = α ∂/∂α`.
    pub alpha: f64,
    /// `Σ t h = ∂/∂ρ`.
    pub rho: f64,
    /// `Σ g u log d = ∂/∂γ`.
    pub gamma: f64,
    /// `Σ g = ∂/∂b`.
    pub bias: f64,
}

impl LayerSums {
    /// Adds other sums of the same layer.
    pub fn add(&mut self, other: &LayerSums) {
        self.alpha += other.alpha;
        self.rho += other.rho;
        self.gamma += other.gamma;
        self.bias += other.bias;
    }

    /// The sums for a multiple of the cotangent.
    pub fn times(&self, weight: f64) -> LayerSums {
        LayerSums {
            alpha: weight * self.alpha,
            rho: weight * self.rho,
            gamma: weight * self.gamma,
            bias: weight * self.bias,
        }
    }
}

/// What is known of the output of a layer when its gradient is asked for.
pub enum Output<'a, B> {
    /// It is the cotangent itself: that of `½ ‖out‖²`.
    Cotangent,
    /// The output.
    Block(&'a B),
    /// Only the dots with the cotangent, `Σ_c g_ic u_ic = a_i b_i`, as the product of two node fields.
    Dots(&'a B, &'a B),
}

/// What an engine does with the blocks of one rank. About a dozen operations; all algorithms of
/// the crate are made of them.
///
/// Halo rows of an argument that is passed as `&mut` are filled by the call (one exchange, hidden
/// behind the work on interior rows); its owned rows are left as they are.
pub trait Engine {
    /// `[owned + halo, s]` values.
    type Block;
    /// One value per owned and halo row.
    type Rows;
    /// A layer made ready for this engine by [`Engine::prepare`].
    type Layer;

    /// The part of the graph this engine works on.
    fn part(&self) -> &Part;
    /// The ranks.
    fn world(&self) -> &Rc<World>;

    /// Waits until everything asked for is done (GPUs work behind our back).
    fn synchronise(&self) {}

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
    /// Row values on this engine; one for every owned and halo row.
    fn rows(&self, values: &[f64]) -> Self::Rows;
    /// Other values for rows that are there.
    fn set_rows(&self, values: &[f64], rows: &mut Self::Rows);

    /// Fills owned rows with signs: column `c` is column `first + c` of the stream, by original id.
    fn fill_rademacher(&self, stream: Stream, first: u64, block: &mut Self::Block);
    /// Fills owned rows with standard normal numbers, as [`Engine::fill_rademacher`].
    fn fill_normal(&self, stream: Stream, first: u64, block: &mut Self::Block);

    /// An empty layer to be filled by [`Engine::prepare`].
    fn new_layer(&self) -> Self::Layer;
    /// Computes what applying the layer needs: `s_i = α d_i^γ` and `s_i / d_i`.
    fn prepare(&self, coefficients: &Coefficients, layer: &mut Self::Layer);
    /// The layer with every entry of its matrix squared, `G ∘ G`: what variances of independent values
    /// become, `Var[(G x)_i] = Σ_j G_ij² Var[x_j]`. Applied, transposed and summed over like any
    /// layer, with `s²`, `ρ²` and `w²` in place of `s`, `ρ` and `w`.
    fn square(&mut self, layer: &Self::Layer, squared: &mut Self::Layer);
    /// The random walk `D⁻¹A` as a layer: no self term, no bias.
    fn random_walk(&self) -> Self::Layer;
    /// `out = bias + s ∘ (h + ρ D⁻¹A h)`; the bias only where `with_bias`.
    fn layer(
        &mut self,
        layer: &Self::Layer,
        with_bias: bool,
        h: &mut Self::Block,
        out: &mut Self::Block,
    );
    /// `out = s ∘ g + ρ A (s ∘ g / d)`, the transposed layer.
    fn adjoint(&mut self, layer: &Self::Layer, g: &mut Self::Block, out: &mut Self::Block);
    /// [`Engine::adjoint`] and, in the same pass, the sums of the layer's gradient. `input`, `output`
    /// and `with_bias` are those of the forward layer.
    fn adjoint_with_sums(
        &mut self,
        layer: &Self::Layer,
        with_bias: bool,
        g: &mut Self::Block,
        input: &Self::Block,
        output: Output<'_, Self::Block>,
        out: &mut Self::Block,
    ) -> LayerSums;

    /// `dots[c] = Σ_i x_ic y_ic`, local.
    fn dots(&self, x: &Self::Block, y: &Self::Block, dots: &mut [f64]);
    /// One step of a Krylov recurrence of the random walk, in as few passes as the engine can.
    ///
    /// Without a turn `z = D⁻¹A x`. A turn `[a, b, c]` makes the next direction of every column first:
    ///
    /// ```text
    /// x' = a z + b x,   z' = D⁻¹A x' + c x
    /// ```
    ///
    /// Local sums of all columns: `Σ d x²`, then `Σ d x z`, then `Σ d z²`, of `x` and `z` as they are left.
    fn krylov(
        &mut self,
        turn: Option<[&[f64]; 3]>,
        x: &mut Self::Block,
        z: &mut Self::Block,
        sums: &mut [f64],
    );
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
    /// `y_c += a_c x_c` for every column.
    fn axpy(&self, a: &[f64], x: &Self::Block, y: &mut Self::Block);
    /// `y_c = x_c + a_c y_c` for every column.
    fn aypx(&self, a: &[f64], x: &Self::Block, y: &mut Self::Block);
    /// `y_i = w_i x_i` for every row.
    fn scale_rows(&self, w: &Self::Rows, x: &Self::Block, y: &mut Self::Block);
    /// `y_i += w_i x_i` for every row.
    fn add_scaled_rows(&self, w: &Self::Rows, x: &Self::Block, y: &mut Self::Block);
    /// Column `b` of `y` becomes column `a` of `x`, for every pair `(a, b)`; the blocks may differ
    /// in width.
    fn copy_columns(&self, x: &Self::Block, y: &mut Self::Block, pairs: &[(usize, usize)]);

    /// What a step of conjugate gradients has to know, local: `Σ p s`, then `Σ w s²`, then
    /// `Σ w r²`, one of each per column, with one `w` per row.
    fn step_dots(
        &self,
        w: &Self::Rows,
        p: &Self::Block,
        s: &Self::Block,
        r: &Self::Block,
        dots: &mut [f64],
    );
    /// What it does: `x_c += α_c p_c`, `r_c −= α_c s_c`, then `p_c = w ∘ r_c + β_c p_c`.
    fn step(
        &self,
        alpha_beta: (&[f64], &[f64]),
        w: &Self::Rows,
        s: &Self::Block,
        p: &mut Self::Block,
        x: &mut Self::Block,
        r: &mut Self::Block,
    );
}
