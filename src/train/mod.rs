//! Fitting the parameters.
//!
//! Two methods: [`marginal`], the likelihood itself, by the [`score`] and the [`evidence`]; and
//! [`elbo`], the variational bound of the paper. Both share the expected log-joint and its gradient
//! ([`joint`]), the parameter vector ([`Parameters`]), where they [`start`](mod@start), and the
//! loop around them ([`session`]). Values of `y` are standardised before they come here, and undone
//! by whoever reports results.

pub mod adam;
pub mod elbo;
pub mod evidence;
mod fit;
mod fused_stack;
pub mod joint;
pub mod journal;
mod linear;
pub mod marginal;
pub mod newton;
mod node_fields;
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
