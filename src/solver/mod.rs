//! Solvers of linear systems on the nodes of a graph, for many right-hand sides at once.
//!
//! Here: conjugate gradients ([`cg`]) for anything that can be multiplied with a block
//! ([`Operator`]), what preconditions them ([`Precondition`], [`Diagonal`]) and a strong
//! preconditioner for matrices that can be assembled block by block ([`schwarz`]). Distributed, on
//! any engine. Not here: which systems are worth solving. This room knows neither models nor
//! statistics.
//!
//! # Example
//!
//! `(D + ρA) x = b` on a ring of four nodes, which is a layer with `α = γ = 1`:
//!
//! ```
//! use dgmrf::{comm::World, field::{Coefficients, Engine, Layer, native::Native}, graph::EdgeList};
//! use dgmrf::partition::{Partition, order::Order};
//! use dgmrf::solver::{Diagonal, Operator, cg};
//!
//! struct Shifted(Layer<Block>);
//! impl Operator<Native<f64>> for Shifted {
//!     fn apply(&mut self, engine: &mut Native<f64>, x: &mut Block, out: &mut Block) {
//!         engine.layer(&self.0, false, x, out);
//!     }
//! }
//! type Block = <Native<f64> as Engine>::Block;
//!
//! let mut edges = EdgeList::unweighted();
//! (0..4).for_each(|i| edges.push(i, (i + 1) % 4, 1.0));
//! let part = Partition::new(&edges.into_graph(4)?.0, vec![0; 4], 1, Order::Original)?.part(0);
//! let mut engine = Native::<f64>::new(World::solo(), part)?;
//! let mut layer = engine.new_layer();
//! engine.prepare(&Coefficients { alpha: 1.0, rho: -0.5, gamma: 1.0, bias: 0.0 }, &mut layer);
//!
//! let (mut b, mut x) = (engine.zeros(1), engine.zeros(1));
//! engine.upload(&[1.0, 0.0, -1.0, 0.0], &mut b);
//! let mut diagonal = Diagonal::new(&engine, &[2.0; 4]);
//! let mut work = cg::Workspace::new(&engine);
//! let options = cg::Options::default();
//! cg::solve(&mut engine, &mut Shifted(layer), &mut diagonal, &b, &mut x, &options, &mut work)?;
//! assert!((engine.download(&x)[0] - 0.5).abs() < 1e-9);
//! # Ok::<(), dgmrf::Error>(())
//! ```

pub mod cg;
mod precondition;
pub mod schwarz;

pub use precondition::{Diagonal, Precondition};
pub use schwarz::{Refusal, Schwarz};

use crate::field::Engine;

/// A symmetric positive definite matrix on the nodes of a graph, known by its products.
pub trait Operator<E: Engine> {
    /// `out = A x`, for all columns. All ranks call it together; the halo of `x` is filled.
    fn apply(&mut self, engine: &mut E, x: &mut E::Block, out: &mut E::Block);
}
