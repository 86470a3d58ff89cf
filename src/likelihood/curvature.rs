//! What data add to the precision of the posterior.

use crate::error::{Error, Result};

/// The diagonal `W_ii = −∂² log p(y_i | x_i) / ∂x_i²` at the owned rows of a rank, zero where nothing
/// is observed. For Gaussian noise it is the same at all observed nodes and for all `x`; for other
/// laws it is that of an expansion about some `x`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curvature {
    /// `W_ii`.
    pub diagonal: Vec<f64>,
    /// `W_ii^½`, which right-hand sides of perturbed samples need.
    pub root: Vec<f64>,
}

impl Curvature {
    /// Refuses data so exact that the curvature leaves double precision.
    pub fn check(&self) -> Result<()> {
        let Some(wrong) = self.diagonal.iter().find(|w| !(w.is_finite() && **w >= 0.0)) else {
            return Ok(());
        };
        Err(Error::Setting(format!(
            "an observation adds {wrong:e} to the precision of the posterior: the standard \
             deviation of its noise, sigma, leaves double precision"
        )))
    }
}
