//! How far a solution of conjugate gradients is off, from the coefficients of its steps alone.

use crate::linalg::Tridiagonal;

/// The steps of one column, and what follows from them about the error `e = x − x_k`.
///
/// The coefficients are the Cholesky factor of the Lanczos matrix `T` of `M⁻¹A` and the first
/// residual: `T = L D Lᵀ`, `D_jj = 1/α_j`, `L_{j+1,j} = √β_j`. Its smallest eigenvalue (Ritz value)
/// approaches the smallest of `M⁻¹A` from above.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// `(α_j, β_j)` with `β_j = γ_{j+1} / γ_j`, `γ = ⟨r, M⁻¹ r⟩`.
    steps: Vec<(f64, f64)>,
}

/// A Ritz value is an upper estimate of the smallest eigenvalue; half of it is a lower one
/// wherever conjugate gradients have seen the slow components at all.
const SAFETY: f64 = 0.5;

impl Steps {
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    pub fn push(&mut self, alpha: f64, beta: f64) {
        self.steps.push((alpha, beta));
    }

    /// `e₁ᵀ f(T) e₁`: Gauss quadrature by Golub and Welsch.
    pub fn quadrature(&self, f: impl Fn(f64) -> f64) -> f64 {
        let diagonal = self.steps.iter().enumerate().map(|(j, (alpha, _))| {
            let before = if j == 0 { (1.0, 0.0) } else { self.steps[j - 1] };
            1.0 / alpha + before.1 / before.0
        });
        let off_diagonal = self.steps.iter().map(|(alpha, beta)| beta.sqrt() / alpha);
        let last = self.steps.len().saturating_sub(1);
        let matrix = Tridiagonal {
            diagonal: diagonal.collect(),
            off_diagonal: off_diagonal.take(last).collect(),
        };
        matrix.gauss_rule().into_iter().map(|(theta, weight)| weight * f(theta)).sum()
    }

    /// Lowers `smallest`, an estimate of the smallest eigenvalue of `M⁻¹A`, to the smallest Ritz
    /// value (to 10 %).
    pub fn lower_to_ritz(&self, smallest: &mut f64) {
        let Some(least) = self.steps.iter().map(|(alpha, _)| 1.0 / alpha).reduce(f64::min) else {
            return;
        };
        if self.definite_above(*smallest) {
            return;
        }
        // Bisection on a logarithmic scale; 0 < θ_1 <= min D_jj, as e_jᵀ T e_j >= D_jj >= θ_1 only
        // for the first, so the bracket is widened from there.
        let mut high = least.min(*smallest);
        let mut low = high;
        while !self.definite_above(low) {
            low *= 0.1;
            if low < f64::MIN_POSITIVE {
                return;
            }
        }
        while high > 1.1 * low {
            let middle = (low * high).sqrt();
            if self.definite_above(middle) { low = middle } else { high = middle }
        }
        *smallest = low;
    }

    /// Whether `T − μ I` is positive definite: the pivots of its factorisation in the
    /// differential form, which keeps relative accuracy.
    fn definite_above(&self, mu: f64) -> bool {
        if mu.is_infinite() {
            return false;
        }
        let mut shift = -mu;
        for &(alpha, beta) in &self.steps {
            let pivot = 1.0 / alpha + shift;
            if pivot <= 0.0 {
                return false;
            }
            shift = shift * (beta / alpha) / pivot - mu;
        }
        true
    }

    /// Upper bound of `‖e‖_A` after all steps, given `γ` there and the smallest eigenvalue
    /// (estimated) of `M⁻¹A`: the Gauss–Radau rule of Meurant and Tichý (2013),
    ///
    /// ```text
    /// ‖e_k‖²_A <= g_k γ_k,   g_0 = 1/μ,   g_{k+1} = (g_k − α_k) / (μ (g_k − α_k) + β_k)
    /// ```
    pub fn error(&self, smallest: f64, gamma: f64) -> f64 {
        let mu = SAFETY * smallest;
        let last = self.steps.iter().fold(1.0 / mu, |g, &(alpha, beta)| {
            let rest = g - alpha;
            if rest > 0.0 { rest / (mu * rest + beta) } else { 1.0 / mu }
        });
        (last * gamma).sqrt()
    }
}
