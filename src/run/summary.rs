//! `summary.json`: how a fit ended (layout in `docs/formats.md`).

use crate::error::Result;
use crate::storage;
use crate::train::session::Objective;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How a fit ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// `marginal` or `elbo`.
    pub method: String,
    /// Steps done.
    pub iterations: u64,
    /// Wall-clock time of this session, from the start of the stage.
    pub seconds: f64,
    /// `log p(y|θ)` or the ELBO, in the units of `y`.
    pub objective: f64,
    /// The objective per node.
    pub objective_per_node: f64,
    /// Standard error of `objective_per_node`, where it is estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_stderr: Option<f64>,
    /// The ELBO per node as the paper tells it: without the constants `½ − (M/N) ½ log 2π`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elbo_without_constants: Option<f64>,
    /// MPI ranks.
    pub ranks: usize,
    /// Threads of each.
    pub threads: usize,
    /// Nodes.
    pub nodes: usize,
    /// Observed nodes.
    pub observed: usize,
    /// Whether the fit ended because there was nothing left to gain.
    pub converged: bool,
    /// Noise in the units of `y`.
    pub sigma: f64,
    /// Standard errors of `(log α, artanh β/α, logit γ, b)` of each layer and of `log σ`, in
    /// standardised units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_errors: Option<Vec<f64>>,
    /// Gradients computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<u64>,
    /// Iterations of conjugate gradients in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cg_iterations: Option<u64>,
    /// Step of the checkpoint this session began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<u64>,
    /// Hash of the data and the settings: the same key means that there is nothing to do.
    pub key: String,
}

impl Summary {
    /// What a method has to say of its objective, given in standardised units.
    pub(super) fn new(method: &str, iterations: u64, value: f64, objective: &Objective) -> Self {
        Summary {
            method: method.into(),
            iterations,
            objective: value + objective.shift,
            objective_per_node: objective.per_node(value),
            ..Summary::default()
        }
    }

    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self> {
        storage::read_json(path)
    }

    /// Writes the file as a whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        storage::write_json(path, self)
    }
}
