//! What is known of `x` given `y` and the parameters: `x | y, θ ~ N(μ, Q̃⁻¹)`.
//!
//! Here: the precision as an operator ([`Precision`]) with the preconditioners that suit it
//! ([`Preconditioner`]), and what is made of them with the solvers ([`crate::solver`]): posterior mean,
//! samples and variances ([`infer`]), and the linear model in the features ([`Linear`]). Batched over
//! columns and distributed, on any engine; matrix-free but for the blocks of a preconditioner and
//! exact variances.
//! Not here: scores of predictions, and how the parameters were found.

mod batch;
mod conditional;
mod diagonal;
mod exact;
mod file;
mod infer;
mod linear;
mod perturb;
mod precision;
mod precondition;

pub use file::{PosteriorFile, Writer};
pub use infer::{Estimate, Info, Keep, Options, Problem, infer};
pub use linear::{Features, Linear};
pub use perturb::{MeanSource, draw};
pub use precision::Precision;
pub use precondition::{Choice, Preconditioner};

/// How marginal variances are computed.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Variance {
    /// Rao–Blackwellised from posterior samples.
    #[default]
    Rbmc,
    /// Plain Monte Carlo from posterior samples, as in the paper.
    Mc,
    /// Exactly, for small graphs.
    Exact,
}
