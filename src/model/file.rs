//! `model.json`: a fitted model as people and scripts read it (layout in `docs/formats.md`).

use super::layer::LayerSpec;
use super::{Gamma, Model};
use crate::error::{Error, Result};
use crate::storage;
use serde::{Deserialize, Serialize};
use std::path::Path;

const FORMAT: &str = "dgmrf-model";
const VERSION: u32 = 1;

/// A model with all that prediction needs besides the data: `y = x + F c + ε`, `ε ~ N(0, σ²)`, and
/// `g((x − mean) / scale) ~ N(0, I)`.
///
/// Training standardises `y`, so the layers act on standardised values; `mean` and `scale` say how
/// to get back. They cannot be folded into the biases: a constant is not constant after a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFile {
    /// Hash of the graph the model was fitted on.
    pub graph_hash: String,
    /// Whether the edge weights are used.
    pub weighted: bool,
    /// Whether the node features enter through a linear model.
    pub features: bool,
    /// The layers, in standardised units.
    pub model: Model,
    /// Standard deviation of the noise, in units of `y`.
    pub sigma: f64,
    /// What standardised values are.
    pub standardise: Standardise,
}

/// Standardised values are `(y − mean) / scale`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standardise {
    /// What is subtracted first.
    pub mean: f64,
    /// What is divided by then, above 0.
    pub scale: f64,
}

impl Default for Standardise {
    fn default() -> Self {
        Standardise { mean: 0.0, scale: 1.0 }
    }
}

/// The file as it stands on disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    graph_hash: String,
    weighted: bool,
    features: bool,
    sigma: f64,
    standardise: Standardise,
    gamma: Gamma,
    layers: Vec<LayerSpec>,
}

impl ModelFile {
    /// Writes the file as a whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let gamma = self.model.gamma;
        let layers = self.model.layers.iter().map(|layer| LayerSpec::exact(layer, gamma));
        let document = Document {
            format: FORMAT.into(),
            version: VERSION,
            graph_hash: self.graph_hash.clone(),
            weighted: self.weighted,
            features: self.features,
            sigma: self.sigma,
            standardise: self.standardise,
            gamma: self.model.gamma,
            layers: layers.collect(),
        };
        storage::write_json(path, &document)
    }

    /// Reads and verifies the file.
    pub fn read(path: &Path) -> Result<Self> {
        let d: Document = storage::read_json(path)?;
        if d.format != FORMAT || d.version != VERSION {
            let found = format!("{} version {}", d.format, d.version);
            return Err(Error::file(path, format!("{found}; expected {FORMAT} version {VERSION}")));
        }
        let wrong = |what: &str| Err(Error::file(path, what.to_owned()));
        if d.layers.is_empty() {
            return wrong("a model needs at least one layer");
        }
        if !(d.sigma.is_finite() && d.sigma > 0.0) {
            return wrong(&format!("sigma = {} must be a finite number above 0", d.sigma));
        }
        let Standardise { mean, scale } = d.standardise;
        if !(mean.is_finite() && scale.is_finite() && scale > 0.0) {
            return wrong(&format!("standardise: mean = {mean}, scale = {scale} cannot be"));
        }
        if let Gamma::Fixed(value) = d.gamma
            && !(0.0..=1.0).contains(&value)
        {
            return wrong(&format!("gamma = {value} must lie between 0 and 1"));
        }
        let mut layers = Vec::with_capacity(d.layers.len());
        for (l, record) in d.layers.iter().enumerate() {
            let layer = record.parameters(d.gamma);
            layers.push(layer.map_err(|e| Error::file(path, format!("layer {}: {e}", l + 1)))?);
        }
        let model = Model { layers, gamma: d.gamma };
        Ok(ModelFile {
            graph_hash: d.graph_hash,
            weighted: d.weighted,
            features: d.features,
            model,
            sigma: d.sigma,
            standardise: d.standardise,
        })
    }
}
