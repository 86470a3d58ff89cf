//! Deep Gaussian Markov random fields on graphs of any size, distributed over MPI ranks.
//!
//! # The map
//!
//! The rooms of this crate stand in the order in which data passes through them, and a room only
//! calls rooms to its left:
//!
//! ```text
//!  files ─► dataset ─► partition ─► field + comm ─► model ─► ...
//! ```
//!
//! | room | what it holds |
//! |---|---|
//! | [`graph`] | symmetric CSR graphs: cleaning, components, k-hop, Delaunay |
//! | [`dataset`] | a graph with values at its nodes; the HDF5 file, importers, generators |
//! | [`config`] | the TOML settings of a run |
//! | [`cli`] | one file per subcommand of the `dgmrf` program |
//!
//! Shared by all: [`Error`], [`random`] (numbers as a function of seed, node and column) and
//! [`progress`] (bars on a terminal, lines otherwise).

#![warn(missing_docs)]

pub mod cli;
pub mod comm;
pub mod config;
pub mod dataset;
mod error;
pub mod field;
pub mod graph;
pub mod model;
pub mod partition;
pub mod profile;
pub mod progress;
pub mod random;
mod storage;

pub use error::{Error, Result, WithPath};
