//! The values of a dataset, given by rank 0 to the ranks that own the nodes.

use crate::comm::World;
use crate::dataset::{Dataset, DatasetFile};
use crate::error::{Error, Result};
use crate::model::Standardise;
use crate::posterior::Features;

/// Precision of the coefficients of features a priori, in the units of `y`: `c ~ N(0, 10⁸)`.
const COEFFICIENT_PRECISION: f64 = 1e-8;

/// What a rank knows of its nodes, in standardised units.
pub struct Values {
    /// Values of the owned rows; NaN where unknown.
    pub y: Vec<f64>,
    /// Which of them the model may see.
    pub observed: Vec<bool>,
    /// Features of the owned rows, where the model uses them.
    pub features: Option<Features>,
    /// Observed nodes of all ranks.
    pub observed_count: usize,
    /// What the units are.
    pub standardise: Standardise,
}

/// Reads the dataset on rank 0 and gives each rank the rows `ids`, in the units of `standardise`.
/// Without, the observed values are given mean 0 and standard deviation 1. All ranks call it.
pub fn read(
    world: &World,
    file: &DatasetFile,
    ids: &[u32],
    features: bool,
    standardise: Option<Standardise>,
) -> Result<Values> {
    let data = world.on_root(|| read_whole(file, features))?;
    // Worked out on rank 0 from all data: the same numbers on any number of ranks.
    let numbers = data.as_ref().map_or_else(Vec::new, |d| {
        let Standardise { mean, scale } = standardise.unwrap_or_else(|| moments(d));
        let count = d.features.as_ref().map_or(0, |f| f.names.len());
        vec![mean, scale, d.observed_count() as f64, count as f64]
    });
    let numbers = world.broadcast_numbers(numbers);
    let (mean, scale) = (numbers[0], numbers[1]);
    let columns = data.as_ref().map(|d| {
        let observed = d.observed.iter().map(|&o| f64::from(u8::from(o)));
        d.y.iter().zip(observed).flat_map(|(&y, o)| [(y - mean) / scale, o]).collect::<Vec<f64>>()
    });
    let mine = world.scatter_rows(ids, columns.as_deref(), 2);
    let count = numbers[3] as usize;
    let features = features.then(|| {
        let all = data.as_ref().and_then(|d| d.features.as_ref());
        let values = world.scatter_rows(ids, all.map(|f| &f.values[..]), count);
        Features { count, values, prior_precision: COEFFICIENT_PRECISION * scale * scale }
    });
    Ok(Values {
        y: mine.iter().step_by(2).copied().collect(),
        observed: mine.iter().skip(1).step_by(2).map(|&o| o == 1.0).collect(),
        features,
        observed_count: numbers[2] as usize,
        standardise: Standardise { mean, scale },
    })
}

fn read_whole(file: &DatasetFile, features: bool) -> Result<Dataset> {
    let data = file.read()?;
    if features && data.features.is_none() {
        let why = "the model uses node features, and there are none here";
        return Err(Error::file(file.path(), why));
    }
    Ok(data)
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
