//! The values of a dataset, given by rank 0 to the ranks that own the nodes.

use crate::comm::World;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::model::Standardise;
use crate::posterior::Features;
use std::path::Path;

/// What a rank knows of its nodes, in standardised units.
pub(super) struct Values {
    pub y: Vec<f64>,
    pub observed: Vec<bool>,
    pub features: Option<Features>,
    /// Observed nodes of all ranks.
    pub observed_count: usize,
    pub standardise: Standardise,
}

/// Reads the dataset on rank 0 and gives each rank the rows `ids`. Without `standardise` the data
/// are given mean 0 and standard deviation 1. All ranks call it.
pub(super) fn read(
    world: &World,
    path: &Path,
    ids: &[u32],
    features: bool,
    standardise: Option<Standardise>,
) -> Result<Values> {
    let data = world.agree(match world.is_root() {
        true => read_on_root(path, features).map(Some),
        false => Ok(None),
    })?;
    // Worked out on rank 0 from all data: the same numbers on any number of ranks.
    let facts = data.as_ref().map_or_else(Vec::new, |d| {
        let Standardise { mean, scale } = standardise.unwrap_or_else(|| moments(d));
        let count = d.features.as_ref().map_or(0, |f| f.names.len());
        vec![mean, scale, d.observed_count() as f64, count as f64]
    });
    let facts = world.broadcast_numbers(facts);
    let (mean, scale) = (facts[0], facts[1]);
    let columns = data.as_ref().map(|d| {
        let observed = d.observed.iter().map(|&o| f64::from(u8::from(o)));
        d.y.iter().zip(observed).flat_map(|(&y, o)| [(y - mean) / scale, o]).collect::<Vec<f64>>()
    });
    let mine = world.scatter_rows(ids, columns.as_deref(), 2);
    let count = facts[3] as usize;
    let features = features.then(|| {
        let all = data.as_ref().and_then(|d| d.features.as_ref());
        let values = world.scatter_rows(ids, all.map(|f| &f.values[..]), count);
        // The prior of coefficients is N(0, 10⁸) in the units of y.
        Features { count, values, prior_precision: 1e-8 * scale * scale }
    });
    Ok(Values {
        y: mine.iter().step_by(2).copied().collect(),
        observed: mine.iter().skip(1).step_by(2).map(|&o| o == 1.0).collect(),
        features,
        observed_count: facts[2] as usize,
        standardise: Standardise { mean, scale },
    })
}

fn read_on_root(path: &Path, features: bool) -> Result<Dataset> {
    let data = Dataset::read(path)?;
    match features && data.features.is_none() {
        true => Err(Error::file(path, "the model uses node features, and there are none here")),
        false => Ok(data),
    }
}

/// Mean and standard deviation of the observed values; a constant keeps its scale.
fn moments(data: &Dataset) -> Standardise {
    let observed = || data.y.iter().zip(&data.observed).filter(|(_, o)| **o).map(|(y, _)| *y);
    let count = data.observed_count().max(1) as f64;
    let mean = observed().sum::<f64>() / count;
    let variance = observed().map(|y| (y - mean).powi(2)).sum::<f64>() / count;
    let scale = variance.sqrt();
    // What is left of a constant after rounding is no scale.
    let scale = if scale > 1e-12 * mean.abs().max(f64::MIN_POSITIVE) { scale } else { 1.0 };
    Standardise { mean, scale }
}
