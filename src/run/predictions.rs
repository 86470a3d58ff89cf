//! `posterior.h5`: predictions by original node id (layout in `docs/formats.md`).

use crate::error::{Error, Result, WithPath};
use crate::storage::{self, NewFile};
use std::path::{Path, PathBuf};

const FORMAT: &str = "dgmrf-posterior";
const VERSION: u32 = 1;

/// Predictions at nodes, in the units of `y`.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Hash of the dataset that was conditioned on.
    pub data_hash: String,
    /// Hash of the dataset, the model and the settings: the same key means the same numbers.
    pub key: String,
    /// Original ids, ascending; absent: all nodes.
    pub nodes: Option<Vec<u32>>,
    /// `E[x + F c | y]`.
    pub mean: Vec<f64>,
    /// Standard deviation of `x + F c`.
    pub std_x: Vec<f64>,
    /// Standard deviation of a new observation: with the noise.
    pub std_y: Vec<f64>,
    /// Standard error of `std_x`; absent where that is exact.
    pub std_x_error: Option<Vec<f64>>,
    /// Mean of the coefficients of the features.
    pub coefficients: Vec<f64>,
    /// How they were made: method, samples, iterations and so on, by name; not read back.
    pub provenance: Vec<(String, String)>,
}

/// A file under way: samples go in as they are drawn, the rest at the end.
pub struct Writer {
    file: NewFile,
    path: PathBuf,
}

impl Writer {
    /// A file that takes its name only when it is complete; with room for `samples` samples of
    /// `nodes` nodes if there are any.
    pub fn create(path: &Path, samples: usize, nodes: usize) -> Result<Self> {
        let file = NewFile::create(path)?;
        if samples > 0 {
            let made = file.hdf5().new_dataset::<f64>().shape((samples, nodes)).create("samples");
            made.with_path(path, "samples")?;
        }
        Ok(Writer { file, path: path.into() })
    }

    /// Writes sample number `k`.
    pub fn sample(&self, k: usize, values: &[f64]) -> Result<()> {
        let data = self.file.hdf5().dataset("samples").with_path(&self.path, "samples")?;
        data.write_slice(values, (k, ..)).with_path(&self.path, "samples (is the disk full?)")
    }

    /// Writes the rest and gives the file its name.
    pub fn finish(self, content: &Predictions) -> Result<()> {
        let write = |file: &hdf5::File| -> hdf5::Result<()> {
            storage::write_text(file, "format", FORMAT)?;
            file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
            storage::write_text(file, "data_hash", &content.data_hash)?;
            storage::write_text(file, "key", &content.key)?;
            for (name, value) in &content.provenance {
                storage::write_text(file, name, value)?;
            }
            if let Some(nodes) = &content.nodes {
                storage::write_array(file, "nodes", nodes)?;
            }
            storage::write_array(file, "mean", &content.mean)?;
            storage::write_array(file, "std_x", &content.std_x)?;
            storage::write_array(file, "std_y", &content.std_y)?;
            if let Some(error) = &content.std_x_error {
                storage::write_array(file, "std_x_error", error)?;
            }
            if !content.coefficients.is_empty() {
                storage::write_array(file, "coefficients", &content.coefficients)?;
            }
            Ok(())
        };
        write(self.file.hdf5()).with_path(&self.path, "writing (is the disk full?)")?;
        self.file.finish()
    }
}

impl Predictions {
    /// The `key` of a file, if there is one of this format.
    pub fn read_key(path: &Path) -> Option<String> {
        let file = storage::open(path).ok()?;
        (storage::read_text(&file, "format", path).ok()? == FORMAT).then_some(())?;
        storage::read_text(&file, "key", path).ok()
    }

    /// Reads everything but the samples.
    pub fn read(path: &Path) -> Result<Self> {
        let file = storage::open(path)?;
        if storage::read_text(&file, "format", path).ok().as_deref() != Some(FORMAT) {
            return Err(Error::file(path, "this HDF5 file holds no posterior"));
        }
        let version = file.attr("version").and_then(|a| a.read_scalar::<u32>());
        let version = version.with_path(path, "attribute version")?;
        if version != VERSION {
            return Err(Error::file(path, format!("posterior format version {version}")));
        }
        let mean: Vec<f64> = storage::read_array(&file, "mean", path)?;
        let values = |name: &str| -> Result<Vec<f64>> {
            let values: Vec<f64> = storage::read_array(&file, name, path)?;
            if values.len() != mean.len() {
                return Err(Error::file(path, format!("`{name}` and `mean` differ in length")));
            }
            Ok(values)
        };
        let (std_x, std_y) = (values("std_x")?, values("std_y")?);
        let there = |name: &str| file.link_exists(name);
        let std_x_error = there("std_x_error").then(|| values("std_x_error")).transpose()?;
        let nodes = there("nodes").then(|| storage::read_array(&file, "nodes", path));
        let nodes: Option<Vec<u32>> = nodes.transpose()?;
        if nodes.as_ref().is_some_and(|nodes| nodes.len() != mean.len()) {
            return Err(Error::file(path, "`nodes` and `mean` differ in length"));
        }
        let coefficients =
            there("coefficients").then(|| storage::read_array(&file, "coefficients", path));
        let coefficients = coefficients.transpose()?.unwrap_or_default();
        Ok(Predictions {
            data_hash: storage::read_text(&file, "data_hash", path)?,
            key: storage::read_text(&file, "key", path)?,
            nodes,
            std_x,
            std_y,
            std_x_error,
            coefficients,
            provenance: Vec::new(),
            mean,
        })
    }

    /// A table for people and other programs: `id,mean,std_x,std_y[,std_x_error]`.
    pub fn to_csv(&self) -> String {
        let mut text = String::from("id,mean,std_x,std_y");
        text += if self.std_x_error.is_some() { ",std_x_error\n" } else { "\n" };
        for k in 0..self.mean.len() {
            let id = self.nodes.as_ref().map_or(k as u32, |nodes| nodes[k]);
            text += &format!("{id},{},{},{}", self.mean[k], self.std_x[k], self.std_y[k]);
            if let Some(error) = &self.std_x_error {
                text += &format!(",{}", error[k]);
            }
            text.push('\n');
        }
        text
    }
}
