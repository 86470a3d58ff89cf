//! A run: the whole way of the data, stage by stage, and the directory that keeps the results.
//!
//! Here: the stages of `dgmrf run` as calls ([`Run`]), with what each of them is made of
//! ([`train()`], [`Plan::infer`], [`evaluate`]); the files of a run directory, each with a type
//! that reads and writes it ([`RunDir`]); what the rooms are told by the settings ([`settings`]);
//! the engine of the user's choice ([`engine`]). Not here: arguments, tables for people
//! ([`crate::cli`]), and how anything is computed.
//!
//! Progress and warnings go to an [observer](crate::progress).

mod dir;
pub mod engine;
mod infer;
mod metrics;
mod nodes;
pub mod predictions;
pub mod scale;
pub mod settings;
mod stages;
mod summary;
mod train;
pub mod values;

pub use crate::model::ModelFile;
pub use crate::train::journal;
pub use dir::RunDir;
pub use infer::{Inferred, Plan};
pub use metrics::{Metrics, evaluate};
pub use nodes::parse_nodes;
pub use predictions::Predictions;
pub use stages::{Run, Stage};
pub use summary::Summary;
pub use train::train;
