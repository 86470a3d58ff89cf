//! Fitting the parameters.
//!
//! Here: the expected log-joint and its gradient, which every method shares ([`joint`]), Adam
//! ([`adam`]) and the parameter vector ([`Parameters`]). Values of `y` are standardised before they
//! come here, and undone by whoever reports results.

pub mod adam;
pub mod joint;
mod parameters;

pub use parameters::Parameters;
