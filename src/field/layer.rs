//! One layer of the model as engines apply it, the sums its gradient follows from, and what comes
//! before or after it in a fused pass.

/// A layer by its numbers, for `s_i = α d_i^γ` and `ρ = β/α` (paper, Eq. 5 and 6):
///
/// forward `b + s ∘ (h + ρ D⁻¹A h)`, transposed `s ∘ g + ρ A (s ∘ g / d)`.
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

/// A layer made ready for the engine of one graph by
/// [`Engine::prepare`](super::Engine::prepare).
#[derive(Debug)]
pub struct Layer<B> {
    /// `s_i`, a node field.
    pub scale: B,
    /// `s_i / d_i`, a node field.
    pub ratio: B,
    /// `ρ`.
    pub rho: f64,
    /// `b`.
    pub bias: f64,
    /// Whether edges count with the squares of their weights
    /// ([`Engine::square`](super::Engine::square)).
    pub squared: bool,
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
pub enum ForwardOutput<'a, B> {
    /// The output is the cotangent itself, as for `½ ‖out‖²`.
    Cotangent,
    /// The output.
    Block(&'a B),
    /// Only the dots with the cotangent, `Σ_c g_ic u_ic = a_i b_i`, by two node fields.
    RowDots(&'a B, &'a B),
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
pub struct PullBack<'a, B> {
    /// A node field; zero when absent.
    pub mean: Option<&'a B>,
    /// A positive node field.
    pub scale: &'a B,
    /// Becomes `Σ_c g_ic`.
    pub of_mean: &'a mut B,
    /// Becomes `Σ_c g_ic t_ic`.
    pub of_scale: &'a mut B,
}
