//! What is known of `x` given `y` and the parameters: `x | y, θ ~ N(μ, Q̃⁻¹)`.
//!
//! Here: the precision as an operator ([`Precision`]), conjugate gradients for it ([`cg`]) and
//! their preconditioners ([`precondition`]), and what is made of them: posterior mean and samples.
//! All of it is matrix-free, batched over columns and distributed; any engine will do.
//! Not here: scores of predictions, and how the parameters were found.

pub mod cg;
mod diagonal;
mod perturb;
mod precision;
pub mod precondition;

pub use perturb::{Observations, draw};
pub use precision::Precision;
pub use precondition::Preconditioner;
