//! Gaussian noise.

use super::{Curvature, ObservedFields};
use crate::error::{Error, Result};
use crate::field::Residual;

/// `y_i = x_i + ε_i` with independent `ε_i ~ N(0, σ²)` at the observed nodes:
///
/// ```text
/// −log p(y | x) = ½ σ⁻² Σ_i m_i (y_i − x_i)² + M log σ + ½ M log 2π
/// ```
///
/// ```
/// use dgmrf::likelihood::Gaussian;
/// let noise = Gaussian::new(0.5)?;
/// assert_eq!(noise.curvature(&[true, false]).diagonal, [4.0, 0.0]);
/// assert_eq!(noise.predictive_std(0.75), 1.0);
/// # Ok::<(), dgmrf::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gaussian {
    /// Both are kept, so that whichever was given is exact.
    sigma: f64,
    log_sigma: f64,
}

impl Gaussian {
    /// Noise of standard deviation `sigma`, a finite number above 0.
    pub fn new(sigma: f64) -> Result<Self> {
        let noise = Gaussian { sigma, log_sigma: sigma.ln() };
        if sigma.is_finite() && sigma > 0.0 { Ok(noise) } else { Err(noise.refusal()) }
    }

    fn refusal(&self) -> Error {
        Error::Setting(format!(
            "the standard deviation of the noise, sigma = {:e}, must be a finite number above 0",
            self.sigma
        ))
    }

    /// Noise of standard deviation `exp(log_sigma)`.
    pub fn from_log(log_sigma: f64) -> Self {
        Gaussian { sigma: log_sigma.exp(), log_sigma }
    }

    /// `σ`.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// `σ⁻²`, the weight of the misfit.
    pub fn precision(&self) -> f64 {
        (-2.0 * self.log_sigma).exp()
    }

    /// What the data add to the precision of the posterior: `σ⁻²` at each observed row.
    pub fn curvature(&self, observed: &[bool]) -> Curvature {
        let mut curvature = Curvature::default();
        self.curvature_into(observed, &mut curvature);
        curvature
    }

    /// [`Gaussian::curvature`] in the place of another one.
    pub fn curvature_into(&self, observed: &[bool], curvature: &mut Curvature) {
        let Curvature { diagonal, root } = curvature;
        for (to, weight) in [(diagonal, self.sigma.powi(-2)), (root, 1.0 / self.sigma)] {
            to.clear();
            to.extend(observed.iter().map(|&o| if o { weight } else { 0.0 }));
        }
    }

    /// The gradient in `x` of `−log p(y | x)`, as a pass of the engine adds it to another. Without
    /// the data (`y = 0`) it is that of deviations from the mean.
    pub fn residual<'a, B>(&self, data: &'a ObservedFields<B>, with_data: bool) -> Residual<'a, B> {
        Residual {
            precision: self.precision(),
            mask: &data.mask,
            target: with_data.then_some(&data.y),
        }
    }

    /// `σ⁻² Σ m (y − x)²` for a misfit `Σ m (y − x)²`.
    pub fn weighted(&self, misfit: f64) -> f64 {
        self.precision() * misfit
    }

    /// `M log σ` for `M` observed nodes.
    pub fn log_normaliser(&self, observed: f64) -> f64 {
        observed * self.log_sigma
    }

    /// The derivative of `−log p(y | x)` in `log σ`: `M − σ⁻² Σ m (y − x)²`.
    pub fn log_sigma_gradient(&self, misfit: f64, observed: f64) -> f64 {
        observed - self.precision() * misfit
    }

    /// Standard deviation of a new observation at a node whose field has this variance.
    pub fn predictive_std(&self, variance: f64) -> f64 {
        (variance + self.sigma.powi(2)).sqrt()
    }
}
