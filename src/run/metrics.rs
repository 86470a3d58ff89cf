//! `metrics.json`: how good predictions are (layout in `docs/formats.md`).

use super::Predictions;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::metrics::{self, Distance, Scores};
use crate::storage;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Scores of predictions, and what they are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Name of the dataset.
    pub name: String,
    /// The `key` of the predictions that were scored.
    pub posterior: String,
    /// Scores at the hidden nodes that have a value; none without such nodes.
    #[serde(flatten)]
    pub scores: Option<Scores>,
    /// Distance to the true posterior, where the dataset knows it.
    #[serde(flatten)]
    pub distance: Option<Distance>,
}

/// Scores predictions against the dataset they were made for.
pub fn evaluate(predictions: &Path, data: &Path) -> Result<Metrics> {
    if !predictions.exists() {
        return Err(Error::file(predictions, "no predictions yet: `dgmrf infer` makes them"));
    }
    let predicted = Predictions::read(predictions)?;
    let dataset = Dataset::read(data)?;
    if predicted.data_hash != dataset.hash() {
        let why = format!("predictions for another dataset than {}", data.display());
        return Err(Error::file(predictions, why));
    }
    Metrics::of(&predicted, &dataset).map_err(|e| Error::file(predictions, e.to_string()))
}

impl Metrics {
    /// The scores of predictions for a dataset.
    pub fn of(predicted: &Predictions, dataset: &Dataset) -> Result<Self> {
        let all = || (0..predicted.mean.len() as u32).collect();
        let nodes = predicted.nodes.clone().unwrap_or_else(all);
        if let Some(id) = nodes.iter().find(|&&id| id as usize >= dataset.nodes()) {
            return Err(Error::Data(format!("node {id} is not in the dataset")));
        }
        let hidden = || {
            let all = nodes.iter().map(|&id| id as usize).enumerate();
            all.filter(|&(_, i)| !dataset.observed[i])
        };
        let scores = metrics::score(
            hidden()
                .filter(|&(_, i)| dataset.y[i].is_finite())
                .map(|(k, i)| (dataset.y[i], predicted.mean[k], predicted.std_y[k])),
        );
        let distance = dataset.truth.as_ref().map(|truth| {
            let to = |values: &Option<Vec<f64>>, predicted: &[f64]| {
                let values = values.as_ref()?;
                metrics::mean_absolute_difference(hidden().map(|(k, i)| (predicted[k], values[i])))
            };
            Distance {
                mean_mae: to(&truth.post_mean, &predicted.mean),
                std_mae: to(&truth.post_std, &predicted.std_y),
            }
        });
        let (name, posterior) = (dataset.name.clone(), predicted.key.clone());
        Ok(Metrics { name, posterior, scores, distance })
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
