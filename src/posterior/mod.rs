//! What is known of `x` given `y` and the parameters: `x | y, θ ~ N(μ, Q̃⁻¹)`.
//!
//! Here: the precision as an operator ([`Precision`]) with the preconditioners that suit it
//! ([`Preconditioner`]), and what is made of them with the solvers ([`crate::solver`]): posterior
//! mean, samples and variances ([`infer`]), and the linear model in the features ([`Linear`]).
//! Batched over columns and distributed, on any engine; matrix-free but for the blocks of a
//! preconditioner and exact variances. Not here: scores of predictions, and how the parameters were
//! found.
//!
//! # Example
//!
//! A path of five nodes of which the ends are observed; between them the mean is smooth and the
//! standard deviation grows.
//!
//! ```
//! use dgmrf::{comm::World, field::native::Native, graph::EdgeList};
//! use dgmrf::likelihood::{Gaussian, Observations};
//! use dgmrf::model::{Gamma, Model};
//! use dgmrf::partition::{Partition, order::Order};
//! use dgmrf::posterior::{Options, Problem, Variance, infer};
//!
//! let mut edges = EdgeList::unweighted();
//! (0..4).for_each(|i| edges.push(i, i + 1, 1.0));
//! let part = Partition::new(&edges.into_graph(5)?.0, vec![0; 5], 1, Order::Original)?.part(0);
//! let mut engine = Native::<f64>::new(World::solo(), part)?;
//!
//! let y = [1.0, f64::NAN, f64::NAN, f64::NAN, 1.0];
//! let data = Observations::new(&engine, &y, &[true, false, false, false, true])?;
//! let model = Model::from_coefficients(&[(1.0, -0.9, 0.5, 0.0)], Gamma::Free)?;
//! let curvature = Gaussian::new(0.1)?.curvature(&data.observed);
//! let problem = Problem { model: &model, curvature, data: &data, features: None };
//! let options = Options { variance: Variance::Exact, ..Options::default() };
//! let estimate = infer(&mut engine, &problem, &options, None)?;
//! assert!(estimate.mean[0] > estimate.mean[1] && estimate.mean[1] > estimate.mean[2]);
//! assert!(estimate.variance[0] < estimate.variance[1]);
//! assert!(estimate.variance[1] < estimate.variance[2]);
//! # Ok::<(), dgmrf::Error>(())
//! ```

mod batch;
mod conditional;
mod diagonal;
mod exact;
mod infer;
mod linear;
mod perturb;
mod precision;
mod precondition;

pub use infer::{Estimate, Info, Keep, Options, Problem, infer};
pub use linear::{Features, Linear};
pub use perturb::{MeanSource, draw};
pub use precision::Precision;
pub use precondition::{Choice, Preconditioner};

words! {
    /// How marginal variances are computed.
    pub enum Variance {
        /// Rao–Blackwellised from posterior samples.
        #[default]
        Rbmc = "rbmc",
        /// Plain Monte Carlo from posterior samples, as in the paper.
        Mc = "mc",
        /// Exactly, for small graphs.
        Exact = "exact",
    }
}
