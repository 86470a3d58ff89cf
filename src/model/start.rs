//! Where the parameters of a layer begin when they are fitted.

use super::layer::sigmoid;
use super::{Gamma, LayerParameters};

/// What a layer is at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerStart {
    /// A weak smoothness, `ρ ≈ −0.5`.
    Smooth,
    /// Almost no change of its input.
    Identity,
    /// Means of a node and its neighbours, `ρ > 0`.
    Mean,
    /// Differences between a node and its neighbours, `ρ ≈ −0.8`.
    Difference,
}

impl LayerStart {
    /// `artanh ρ`.
    fn artanh_rho(self) -> f64 {
        match self {
            LayerStart::Smooth => -0.5,
            LayerStart::Identity => 0.0,
            LayerStart::Mean => 0.3,
            LayerStart::Difference => -1.0,
        }
    }

    /// `logit γ`: that of 0.3, and for the identity that of almost no influence of the degree.
    fn logit_gamma(self) -> f64 {
        if self == LayerStart::Identity { -2.0 } else { -0.85 }
    }
}

impl LayerParameters {
    /// A layer of this kind, each parameter moved by a `noise` of its own, with `b = 0` and `α`
    /// such that the scale `α d^γ` is about 1 at a node whose logarithmic degree is `log_degree`.
    pub fn starting(kind: LayerStart, gamma: Gamma, log_degree: f64, noise: &Self) -> Self {
        let logit_gamma = kind.logit_gamma() + noise.logit_gamma;
        let exponent = match gamma {
            Gamma::Free => sigmoid(logit_gamma),
            Gamma::Fixed(value) => value,
        };
        LayerParameters {
            log_alpha: noise.log_alpha - exponent * log_degree,
            artanh_rho: kind.artanh_rho() + noise.artanh_rho,
            logit_gamma,
            bias: 0.0,
        }
    }
}
