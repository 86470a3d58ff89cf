//! One layer of the model: everything that follows from its four parameters, written once.
//!
//! ```text
//! out = b + s ∘ (h + ρ D⁻¹A h),    s_i = α d_i^γ       (paper, Eq. 5, with ρ = β/α)
//! α = exp θ₁,   ρ = tanh θ₂,   γ = sigmoid θ₃          (paper, appendix B)
//! ```
//!
//! Here: the parameters by name ([`LayerParameters`], [`Parameter`]), their transforms, the chain
//! rule for gradients ([`LayerParameters::chain_rule`]), the entries of a row of `G`
//! ([`LayerEntries`]) and the log-determinant in terms of the spectrum of the graph
//! ([`LayerParameters::log_det`]). Not here: the products themselves, which are the engines'
//! ([`crate::field`]).

use super::Gamma;
use crate::error::{Error, Result};
use crate::field::{Coefficients, LayerSums};
use serde::{Deserialize, Serialize};

/// Unconstrained parameters of one layer; also a gradient in them, or anything else that has one
/// number for each.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerParameters {
    /// `θ₁ = log α`.
    pub log_alpha: f64,
    /// `θ₂ = artanh ρ`.
    pub artanh_rho: f64,
    /// `θ₃ = logit γ`; unused when γ is fixed.
    pub logit_gamma: f64,
    /// `b`.
    pub bias: f64,
}

/// The name of a parameter of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// `θ₁ = log α`.
    LogAlpha,
    /// `θ₂ = artanh ρ`.
    ArtanhRho,
    /// `θ₃ = logit γ`.
    LogitGamma,
    /// `b`.
    Bias,
}

impl Parameter {
    /// All parameters of a layer, in the order of [`LayerParameters::to_array`].
    pub const ALL: [Parameter; LayerParameters::COUNT] =
        [Parameter::LogAlpha, Parameter::ArtanhRho, Parameter::LogitGamma, Parameter::Bias];
}

impl LayerParameters {
    /// Number of parameters of a layer.
    pub const COUNT: usize = 4;

    /// The parameters in the order of [`Parameter::ALL`], as vectors of an optimiser hold them.
    pub fn to_array(&self) -> [f64; Self::COUNT] {
        [self.log_alpha, self.artanh_rho, self.logit_gamma, self.bias]
    }

    /// Parameters from the order of [`Parameter::ALL`].
    pub fn from_array([log_alpha, artanh_rho, logit_gamma, bias]: [f64; Self::COUNT]) -> Self {
        LayerParameters { log_alpha, artanh_rho, logit_gamma, bias }
    }

    /// Writes several layers into a vector, one after the other.
    pub fn write(layers: &[Self], vector: &mut [f64]) {
        assert_eq!(vector.len(), Self::COUNT * layers.len(), "a number for each parameter");
        for (p, numbers) in layers.iter().zip(vector.as_chunks_mut().0) {
            *numbers = p.to_array();
        }
    }

    /// Reads several layers from a vector that [`LayerParameters::write`] has written.
    pub fn read(vector: &[f64], layers: &mut [Self]) {
        assert_eq!(vector.len(), Self::COUNT * layers.len(), "a number for each parameter");
        for (p, numbers) in layers.iter_mut().zip(vector.as_chunks().0) {
            *p = Self::from_array(*numbers);
        }
    }

    /// The number of one parameter.
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.to_array()[parameter as usize]
    }

    /// `α, ρ, γ, b`; a fixed `γ` is taken from `gamma`.
    pub fn coefficients(&self, gamma: Gamma) -> Coefficients {
        Coefficients {
            alpha: self.log_alpha.exp(),
            rho: self.artanh_rho.tanh(),
            gamma: match gamma {
                Gamma::Free => sigmoid(self.logit_gamma),
                Gamma::Fixed(value) => value,
            },
            bias: self.bias,
        }
    }

    /// The parameters with given `α`, `β = ρ α`, `γ` and `b`. A proper layer has `α > 0`, `|β| < α`
    /// (then it is invertible on every graph) and, where it is a parameter, `0 < γ < 1`.
    pub fn from_coefficients(
        (alpha, beta, layer_gamma, bias): (f64, f64, f64, f64),
        gamma: Gamma,
    ) -> Result<Self> {
        let inside = alpha > 0.0
            && beta.abs() < alpha
            && (gamma != Gamma::Free || (0.0 < layer_gamma && layer_gamma < 1.0));
        if !inside || !alpha.is_finite() || !bias.is_finite() {
            return Err(Error::Setting(format!(
                "a layer needs alpha > 0, |beta| < alpha and 0 < gamma < 1; \
                 alpha = {alpha}, beta = {beta}, gamma = {layer_gamma}, bias = {bias}"
            )));
        }
        Ok(LayerParameters {
            log_alpha: alpha.ln(),
            artanh_rho: (beta / alpha).atanh(),
            logit_gamma: match gamma {
                Gamma::Free => (layer_gamma / (1.0 - layer_gamma)).ln(),
                Gamma::Fixed(_) => 0.0,
            },
            bias,
        })
    }

    /// The gradient in the parameters from the sums that the transposed layer gives, over all
    /// ranks:
    ///
    /// ```text
    /// ∂θ₁ = Σ g u,   ∂θ₂ = (1 − ρ²) Σ t h,   ∂θ₃ = γ (1 − γ) Σ g u log d,   ∂b = Σ g
    /// ```
    ///
    /// where `u = out − b` and `t = A (s ∘ g / d)`; that of a fixed `γ` is zero.
    pub fn chain_rule(&self, gamma: Gamma, sums: &LayerSums) -> LayerParameters {
        let c = self.coefficients(gamma);
        LayerParameters {
            log_alpha: sums.alpha,
            artanh_rho: (1.0 - c.rho * c.rho) * sums.rho,
            logit_gamma: gamma_slope(c.gamma, gamma) * sums.gamma,
            bias: sums.bias,
        }
    }

    /// `log|det G|` and its gradient (paper, Eq. 14), from what the graph contributes:
    ///
    /// ```text
    /// log|det G| = N log α + γ Σ log d + Σ log(1 + ρ λ)
    /// ```
    ///
    /// `sum_log` gives the last sum over the spectrum and its derivative in `θ₂ = artanh ρ`.
    pub fn log_det(
        &self,
        gamma: Gamma,
        nodes: usize,
        sum_log_degree: f64,
        sum_log: impl FnOnce(f64) -> (f64, f64),
    ) -> LogDet {
        let c = self.coefficients(gamma);
        let n = nodes as f64;
        let (sum, slope) = sum_log(c.rho.atanh());
        LogDet {
            value: n * c.alpha.ln() + c.gamma * sum_log_degree + sum,
            gradient: LayerParameters {
                log_alpha: n,
                artanh_rho: slope,
                logit_gamma: gamma_slope(c.gamma, gamma) * sum_log_degree,
                bias: 0.0,
            },
        }
    }
}

/// `log|det G|` of one layer and its gradient in the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogDet {
    /// `log|det G|`.
    pub value: f64,
    /// Derivatives of `log|det G|` in the parameters.
    pub gradient: LayerParameters,
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `dγ/dθ₃`, zero where `γ` is fixed.
fn gamma_slope(value: f64, gamma: Gamma) -> f64 {
    match gamma {
        Gamma::Free => value * (1.0 - value),
        Gamma::Fixed(_) => 0.0,
    }
}

/// `log s_i = log α + γ log d_i` of a layer, or the sum of these over several layers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogScale {
    log_alpha: f64,
    gamma: f64,
}

impl LogScale {
    /// The scale of one layer.
    pub fn of(c: &Coefficients) -> Self {
        LogScale { log_alpha: c.alpha.ln(), gamma: c.gamma }
    }

    /// The scales of several layers multiplied, so their logarithms added.
    pub fn of_all(layers: &[Coefficients]) -> Self {
        layers.iter().map(LogScale::of).fold(LogScale::default(), |sum, one| LogScale {
            log_alpha: sum.log_alpha + one.log_alpha,
            gamma: sum.gamma + one.gamma,
        })
    }

    /// The logarithm of the scale at a node of (weighted) degree `d`.
    pub fn at(&self, degree: f64) -> f64 {
        self.log_alpha + self.gamma * degree.ln()
    }
}

/// The entries of a layer: row `i` of `G` has `own_i` on the diagonal and `w_ij neighbour_i` at its
/// neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerEntries {
    /// `s_i = α d_i^γ`.
    pub own: Vec<f64>,
    /// `ρ s_i / d_i`.
    pub neighbour: Vec<f64>,
}

impl LayerEntries {
    /// Entries at nodes of these (weighted) degrees.
    pub fn new(c: &Coefficients, degree: &[f64]) -> Self {
        let scale = LogScale::of(c);
        let own: Vec<f64> = degree.iter().map(|&d| scale.at(d).exp()).collect();
        let neighbour = own.iter().zip(degree).map(|(s, d)| c.rho * s / d).collect();
        LayerEntries { own, neighbour }
    }
}

/// A layer as people and files write it: on the command line, in `model.json`, and in each line of
/// `metrics.jsonl`. The default is that of the paper's synthetic data (appendix E.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// `α`.
    pub alpha: f64,
    /// `β = ρ α`.
    pub beta: f64,
    /// `γ`.
    pub gamma: f64,
    /// `b`.
    pub bias: f64,
    /// `θ₂ = artanh(β/α)`: for ratios closer to ±1 than the quotient tells. May be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theta2: Option<f64>,
}

impl Default for LayerSpec {
    fn default() -> Self {
        LayerSpec { alpha: 1.2, beta: -1.0, gamma: 1.0, bias: 0.0, theta2: None }
    }
}

impl LayerSpec {
    /// The coefficients, for people: without `theta2`.
    pub fn rounded(layer: &LayerParameters, gamma: Gamma) -> Self {
        let c = layer.coefficients(gamma);
        let (beta, theta2) = (c.rho * c.alpha, None);
        LayerSpec { alpha: c.alpha, beta, gamma: c.gamma, bias: c.bias, theta2 }
    }

    /// The coefficients as they are written, also those that no layer can be fitted to
    /// (`|β| >= α`).
    pub fn coefficients(&self) -> Coefficients {
        let LayerSpec { alpha, beta, gamma, bias, .. } = *self;
        Coefficients { alpha, rho: beta / alpha, gamma, bias }
    }

    /// `|β| < α` makes the layer invertible on every graph.
    pub fn check_invertible(&self) -> Result<()> {
        let LayerSpec { alpha, beta, .. } = self;
        if beta.abs() < *alpha {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "alpha {alpha}, beta {beta}: |beta| must be smaller than alpha, or the layer need not \
             be invertible and the field has no proper law"
        )))
    }

    /// All that is needed to have the layer back.
    pub fn exact(layer: &LayerParameters, gamma: Gamma) -> Self {
        LayerSpec { theta2: Some(layer.artanh_rho), ..Self::rounded(layer, gamma) }
    }

    /// The layer; `theta2`, where it stands, has the last word on `β/α` and must agree with it.
    pub fn parameters(&self, gamma: Gamma) -> Result<LayerParameters> {
        // A fitted γ may have rounded to the end of its range.
        let inside = if (0.0..=1.0).contains(&self.gamma) {
            self.gamma.clamp(f64::EPSILON, 1.0 - f64::EPSILON)
        } else {
            self.gamma
        };
        let beta = if self.theta2.is_some() { 0.0 } else { self.beta };
        let numbers = (self.alpha, beta, inside, self.bias);
        let mut layer = LayerParameters::from_coefficients(numbers, gamma)?;
        if let Some(theta2) = self.theta2 {
            let distance = (theta2.tanh() - self.beta / self.alpha).abs();
            if distance.is_nan() || distance > 1e-9 {
                return Err(Error::Data("theta2 is not artanh(beta / alpha)".into()));
            }
            layer.artanh_rho = theta2;
        }
        Ok(layer)
    }
}
