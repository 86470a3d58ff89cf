//! `metrics.jsonl`: one line per logged step, as scripts read it (layout in `docs/formats.md`).

use crate::error::{Error, Result, WithPath};
use crate::model::LayerSpec;
use crate::storage;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A logged step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Steps done.
    pub step: u64,
    /// Wall-clock time of the fit so far, that of earlier sessions included.
    pub seconds: f64,
    /// The objective per node, in the units of `y`.
    pub objective_per_node: f64,
    /// Noise in the units of `y`.
    pub sigma: f64,
    /// The layers, the first one first.
    pub layers: Vec<LayerSpec>,
    /// Iterations of conjugate gradients, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cg_iterations: Option<usize>,
}

/// Reads all lines of a journal.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_path(path, "")?;
    let parse = |(k, line)| {
        serde_json::from_str(line).map_err(|e| Error::parse(path, k as u64 + 1, e.to_string()))
    };
    text.lines().enumerate().map(parse).collect()
}

/// A journal that is being written.
pub struct Journal {
    file: std::fs::File,
    path: PathBuf,
}

impl Journal {
    /// Goes on after `step`: lines of steps beyond are of a run that was not continued, and half a
    /// line is one that was being written when the run ended. Also the seconds that the kept lines
    /// have taken.
    pub fn open(path: &Path, step: u64) -> Result<(Self, f64)> {
        let (mut kept, mut seconds) = (String::new(), 0.0);
        if step > 0
            && let Ok(text) = std::fs::read_to_string(path)
        {
            for line in text.lines() {
                let parsed = serde_json::from_str::<Line>(line).ok();
                if let Some(parsed) = parsed.filter(|parsed| parsed.step <= step) {
                    kept.extend([line, "\n"]);
                    seconds = parsed.seconds;
                }
            }
        }
        storage::write_text_file(path, &kept)?;
        let file = std::fs::OpenOptions::new().append(true).open(path).with_path(path, "")?;
        Ok((Journal { file, path: path.into() }, seconds))
    }

    /// Adds a line.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        writeln!(self.file, "{}", serde_json::json!(line)).with_path(&self.path, "")
    }
}
