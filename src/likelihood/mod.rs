//! What turns the field into the data: `p(y | x)`.
//!
//! Here: the data of a rank ([`Observations`]) and the law of a value given the field at its node
//! ([`Gaussian`]): its misfit, gradient and normalising constant, the [`Curvature`] that it adds to
//! the precision of the posterior, and what it adds to the uncertainty of a prediction.
//! Not here: the field, and what is inferred about it.

mod curvature;
mod gaussian;
mod observations;

pub use curvature::Curvature;
pub use gaussian::Gaussian;
pub use observations::{Observations, ObservedFields};
