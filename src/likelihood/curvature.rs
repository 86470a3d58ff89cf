//! What data add to the precision of the posterior.

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
