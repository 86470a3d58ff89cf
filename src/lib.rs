//! Deep Gaussian Markov random fields on graphs of any size, distributed over MPI ranks.
//!
//! # The map
//!
//! The rooms of this crate stand in the order in which data passes through them, and a room only
//! calls rooms to its left:
//!
//! ```text
//!  files ─► graph ─► dataset ─► comm ─► partition ─► linalg ─► field ─► model ─► likelihood ─►
//!  solver ─► synth ─► logdet ─► posterior ─► checkpoint ─► train ─► metrics ─► config ─► run ─►
//!  cli
//! ```
//!
//! | room | what it holds |
//! |---|---|
//! | [`graph`] | symmetric CSR graphs: cleaning, components, k-hop, Delaunay |
//! | [`dataset`] | a graph with values at its nodes: the HDF5 file, importers, masks |
//! | [`comm`] | the ranks of an MPI job: reductions, halo exchange, failing together |
//! | [`partition`] | METIS parts, the order of their rows, their overlap, their file |
//! | [`linalg`] | sparse and dense linear algebra on the host: factors, Gauss rules |
//! | [`field`] | blocks of node values and the engines that compute on them, native and torch |
//! | [`model`] | a layer with all that follows from its parameters; the stack of layers |
//! | [`likelihood`] | what turns the field into data: observations and their noise |
//! | [`solver`] | conjugate gradients for any operator, and preconditioners |
//! | [`synth`] | generated graphs and fields whose law is known |
//! | [`logdet`] | the spectrum of a graph, and `log|det G|` of layers from it |
//! | [`posterior`] | `x | y, θ`: precision, mean, samples, variances |
//! | [`checkpoint`] | the state of a run on disk, continued bit for bit |
//! | [`train`] | fitting the parameters: the marginal likelihood, the ELBO, the loop around them |
//! | [`metrics`] | scores of predictions |
//! | [`config`] | the TOML settings of a run |
//! | [`run`] | the stages of a run, its directory, what settings mean to the rooms |
//! | [`cli`] | arguments and tables of the `dgmrf` program, one file per subcommand |
//!
//! Shared by all: [`Error`], [`random`] (numbers as a function of seed, node and column),
//! [`profile`] (where the time goes) and [`progress`] (what is going on, told to an observer).
//! `docs/architecture.md` follows the data from `dgmrf run` to the arithmetic of a layer;
//! `docs/notation.md` lists symbols and their names in the code.
//!
//! # Unsafe code
//!
//! `unsafe` is denied but in these files, each of which says why at its top: `comm/halo.rs` and
//! `comm/threads.rs` (calls of MPI and the C library), the kernels of the native engine
//! (`gather.rs`, `gradient.rs`, `kernel.rs`, `krylov.rs` and `stencil.rs` in `field/native`: rows
//! that are checked once and not at every entry), `logdet/walks.rs`, and one call in `cli/mod.rs`.
//!
//! # From a graph to a layer
//!
//! ```
//! use dgmrf::{comm::World, field::{Engine, native::Native}, synth};
//! use dgmrf::model::{Gamma, Model, Stack};
//! use dgmrf::partition::{self, Options, Partition};
//! use dgmrf::random::{Purpose, Stream};
//!
//! // A Delaunay graph of 1000 random points, divided among the ranks of this job (here: one).
//! let (_points, graph) = synth::random_graph(1000, 1, Default::default())?;
//! let world = World::solo();
//! let owner = partition::divide(&graph, world.size(), &Options::default())?;
//! let partition = Partition::new(&graph, owner, world.size(), Default::default())?;
//! let mut engine = Native::<f64>::new(world.clone(), partition.part(world.rank()))?;
//!
//! // Two layers (α, β, γ, b) applied to four columns of white noise at once: z = g(x).
//! let model = Model::from_coefficients(&[(1.2, -1.0, 0.5, 0.0); 2], Gamma::Free)?;
//! let mut stack = Stack::new(&engine, 2, 4);
//! stack.prepare(&engine, &model);
//! let mut x = engine.zeros(4);
//! engine.fill_normal(Stream::new(7, Purpose::Field, 0), 0, &mut x);
//! let z = stack.forward(&mut engine, true, &mut x);
//! assert_eq!(engine.download(z).len(), 4 * 1000);
//! # Ok::<(), dgmrf::Error>(())
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
mod words;

pub mod checkpoint;
pub mod cli;
pub mod comm;
pub mod config;
pub mod dataset;
mod elementary;
mod error;
pub mod field;
pub mod graph;
pub mod likelihood;
pub mod linalg;
pub mod logdet;
mod memory;
pub mod metrics;
pub mod model;
pub mod partition;
pub mod posterior;
pub mod profile;
pub mod progress;
pub mod random;
pub mod run;
pub mod solver;
mod storage;
pub mod synth;
pub mod train;

pub use error::{CgError, Error, Result, WithPath};
