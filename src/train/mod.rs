//! Fitting the parameters.
//!
//! Here: the expected log-joint and its gradient, which every method shares ([`joint`]), Adam
//! ([`adam`]) and the parameter vector ([`Parameters`]). Values of `y` are standardised before they
//! come here, and undone by whoever reports results.

pub mod adam;
pub mod elbo;
pub mod evidence;
mod fit;
pub mod joint;
mod linear;
pub mod marginal;
pub mod newton;
mod parameters;
mod problem;
pub mod score;
pub mod session;
mod smooth;
pub mod start;
mod variational;

pub use fit::{Fit, Report};
pub use parameters::Parameters;
pub use problem::Problem;
pub use start::Shape;
