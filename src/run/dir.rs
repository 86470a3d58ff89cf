//! The directory of a run: which file holds what.

use crate::config::Config;
use crate::error::Result;
use crate::storage;
use std::path::{Path, PathBuf};

/// A run directory, `runs/NAME` unless the settings say otherwise.
///
/// | file | type that reads and writes it |
/// |---|---|
/// | [`config`](RunDir::config) | [`Config::load`], [`RunDir::record`] |
/// | [`model`](RunDir::model) | [`ModelFile`](crate::model::ModelFile) |
/// | [`summary`](RunDir::summary) | [`Summary`](super::Summary) |
/// | [`journal`](RunDir::journal) | [`Line`](super::journal::Line) |
/// | [`checkpoints`](RunDir::checkpoints) | [`checkpoint`](crate::checkpoint) |
/// | [`predictions`](RunDir::predictions) | [`Predictions`](super::Predictions) |
/// | [`metrics`](RunDir::metrics) | [`Metrics`](super::Metrics) |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// The run directory at this path, which need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        RunDir { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.toml`: the resolved settings.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// `model.json`: the fitted model.
    pub fn model(&self) -> PathBuf {
        self.path.join("model.json")
    }

    /// `summary.json`: how the fit ended.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// `metrics.jsonl`: one line per logged step.
    pub fn journal(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// `checkpoints`: the directory of the last checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// `posterior.h5`: predictions with error bars.
    pub fn predictions(&self) -> PathBuf {
        self.path.join("posterior.h5")
    }

    /// `metrics.json`: scores of the predictions.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.json")
    }

    /// Writes the settings as they were resolved.
    pub fn record(&self, config: &Config) -> Result<()> {
        let text = format!("# The settings of this run, defaults included.\n{}", config.to_toml()?);
        storage::write_text_file(&self.config(), &text)
    }
}
