//! Spectra on disk, beside the dataset they belong to: computed once per graph.
//!
//! The name of a file holds the hash of its graph, the method and its options, so a file never
//! has to be replaced; a damaged one is computed again.

use super::{Method, Options, Source, Spectrum};
use super::{lanczos::Quadrature, power_series::Traces};
use crate::comm::World;
use crate::dataset::DatasetFile;
use crate::error::{Error, Result, WithPath};
use crate::progress;
use crate::storage::{self, ArrayHasher};
use std::path::{Path, PathBuf};

const FORMAT: &str = "dgmrf-spectrum";
const VERSION: u32 = 2;

/// What [`load_or_make`] found or made.
pub struct Loaded {
    /// The spectrum.
    pub spectrum: Spectrum,
    /// The file that holds it.
    pub path: PathBuf,
    /// Whether it was computed just now.
    pub made: bool,
}

/// The spectrum of the graph of a dataset, from its file, or computed and kept there.
/// To be called by all ranks.
///
/// `weighted` says whether the weights of the graph are used; `compute` is called (usually
/// [`super::compute`] on some engine) only when there is something to compute.
pub fn load_or_make(
    world: &World,
    data: &DatasetFile,
    weighted: bool,
    options: &Options,
    compute: impl FnOnce(&Options) -> Result<Spectrum>,
) -> Result<Loaded> {
    let header = data.header();
    let key = key(options, header.nodes, weighted);
    let path = file_name(data.path(), &header.graph_hash, &key);
    let (mut found, mut computed) = (None, None);
    let look = || {
        if path.exists() {
            match read(&path, &header.graph_hash, &key, header.nodes) {
                Ok(stored) => found = Some(stored),
                Err(error) => {
                    progress::warning(format!("{error}; the spectrum is computed again"));
                }
            }
        }
        Ok(found.is_some())
    };
    let make = || {
        let spectrum = compute(options)?;
        if world.is_root()
            && let Err(error) = write(&path, &header.graph_hash, &key, &Stored::from(&spectrum))
        {
            // The result is good; the next run computes it again.
            progress::warning(format!("the spectrum could not be kept: {error}"));
        }
        computed = Some(spectrum);
        Ok(())
    };
    let made = world.make_if_missing(look, make)?;
    let spectrum = match computed {
        Some(spectrum) => spectrum,
        None => {
            let numbers = found.map_or_else(Vec::new, |stored| stored.to_numbers());
            let spectrum = Stored::from_numbers(&world.broadcast_numbers(numbers))
                .and_then(|stored| stored.into_spectrum(header.nodes))
                .ok_or_else(|| Error::file(&path, "damaged"));
            world.agree(spectrum)?
        }
    };
    Ok(Loaded { spectrum, path, made })
}

/// Method and options, as part of a file name.
fn key(options: &Options, nodes: usize, weighted: bool) -> String {
    let method = match options.method_for(nodes) {
        Method::Eigenvalues => "eigenvalues".to_owned(),
        Method::PowerSeries => {
            let o = &options.power_series;
            format!("power-series-p{}-k{}-s{}", o.probes, o.terms, o.seed)
        }
        Method::Lanczos | Method::Auto => {
            let o = &options.lanczos;
            let most = o.most_probes.max(o.probes);
            format!(
                "lanczos-p{}-m{}-t{:e}-x{most}-h{}-s{}",
                o.probes, o.steps, o.tolerance, o.hops, o.seed
            )
        }
    };
    if weighted { method } else { format!("{method}-unweighted") }
}

fn file_name(data: &Path, graph_hash: &str, key: &str) -> PathBuf {
    let stem = data.file_stem().unwrap_or_default().to_string_lossy();
    let graph = graph_hash.get(..12).unwrap_or(graph_hash);
    data.with_file_name(format!("{stem}.{graph}.{key}.spectrum.h5"))
}

/// A spectrum as numbers: what travels to files and to other ranks.
#[derive(Debug, PartialEq)]
struct Stored {
    /// 0 eigenvalues, 1 power series, 2 Lanczos.
    kind: u64,
    /// Terms or steps per probe.
    size: u64,
    sum_log_degree: f64,
    /// Exact traces of powers, from the 0th on; of the eigenvalues none are kept.
    moments: Vec<f64>,
    /// Eigenvalues, traces or nodes.
    values: Vec<f64>,
    /// Weights of the nodes.
    weights: Vec<f64>,
}

impl From<&Spectrum> for Stored {
    fn from(spectrum: &Spectrum) -> Self {
        let (kind, size, moments, values, weights) = match &spectrum.source {
            Source::Eigenvalues(values) => (0, 1, vec![], &values[..], &[][..]),
            Source::PowerSeries(traces) => {
                let (terms, by_probe, square) = traces.parts();
                (1, terms, vec![spectrum.nodes as f64, 0.0, square], by_probe, &[][..])
            }
            Source::Lanczos(rule) => {
                let (steps, lambda, weights, moments) = rule.parts();
                (2, steps, moments.to_vec(), lambda, weights)
            }
        };
        Stored {
            kind,
            size: size as u64,
            sum_log_degree: spectrum.sum_log_degree,
            moments,
            values: values.to_vec(),
            weights: weights.to_vec(),
        }
    }
}

impl Stored {
    /// None if the numbers contradict each other.
    fn into_spectrum(self, nodes: usize) -> Option<Spectrum> {
        let size = self.size as usize;
        let finite = |values: &Vec<f64>| values.iter().all(|v| v.is_finite());
        let whole = size > 0 && !self.values.is_empty() && self.values.len().is_multiple_of(size);
        if !(whole && [&self.values, &self.weights, &self.moments].into_iter().all(finite)) {
            return None;
        }
        let exact = self.moments.len() >= 3 && self.moments[0] == nodes as f64;
        let inside = self.values.iter().all(|v| (-1.0..=1.0).contains(v));
        let source = match self.kind {
            0 if self.values.len() == nodes && inside => Source::Eigenvalues(self.values),
            1 if exact => Source::PowerSeries(Traces::new(size, self.values, self.moments[2])),
            2 if exact && self.weights.len() == self.values.len() && inside => {
                Source::Lanczos(Quadrature::new(size, self.values, self.weights, self.moments))
            }
            _ => return None,
        };
        Some(Spectrum::new(nodes, self.sum_log_degree, source))
    }

    fn to_numbers(&self) -> Vec<f64> {
        let lengths = [self.moments.len() as u64, self.values.len() as u64];
        let counts = [self.kind, self.size, lengths[0], lengths[1]].map(|n| n as f64);
        [&counts[..], &[self.sum_log_degree], &self.moments, &self.values, &self.weights].concat()
    }

    fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let (&[kind, size, moments, values, sum_log_degree], rest) = numbers.split_first_chunk()?;
        let (moments, rest) = rest.split_at_checked(moments as usize)?;
        let (values, weights) = rest.split_at_checked(values as usize)?;
        Some(Stored {
            kind: kind as u64,
            size: size as u64,
            sum_log_degree,
            moments: moments.to_vec(),
            values: values.to_vec(),
            weights: weights.to_vec(),
        })
    }

    fn hash(&self) -> String {
        let mut hasher = ArrayHasher::new("dgmrf spectrum 2");
        hasher.array("all", &self.to_numbers());
        hasher.finish()
    }
}

fn write(path: &Path, graph_hash: &str, key: &str, stored: &Stored) -> Result<()> {
    storage::write_hdf5(path, |file| {
        storage::write_text(file, "format", FORMAT)?;
        file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
        storage::write_text(file, "graph_hash", graph_hash)?;
        storage::write_text(file, "key", key)?;
        storage::write_text(file, "hash", &stored.hash())?;
        for (name, value) in [("kind", stored.kind), ("size", stored.size)] {
            file.new_attr::<u64>().create(name)?.write_scalar(&value)?;
        }
        let sum = file.new_attr::<f64>().create("sum_log_degree")?;
        sum.write_scalar(&stored.sum_log_degree)?;
        storage::write_array(file, "moments", &stored.moments)?;
        storage::write_array(file, "values", &stored.values)?;
        storage::write_array(file, "weights", &stored.weights)
    })
}

fn read(path: &Path, graph_hash: &str, key: &str, nodes: usize) -> Result<Stored> {
    let file = storage::open(path)?;
    let expected = [("format", FORMAT), ("graph_hash", graph_hash), ("key", key)];
    for (name, expected) in expected {
        if storage::read_text(&file, name, path)? != expected {
            return Err(Error::file(path, format!("attribute {name} is not {expected}")));
        }
    }
    fn number<T: hdf5::H5Type>(file: &hdf5::File, name: &str, path: &Path) -> Result<T> {
        let attribute = file.attr(name).and_then(|a| a.read_scalar::<T>());
        attribute.with_path(path, &format!("attribute {name}"))
    }
    if number::<u32>(&file, "version", path)? != VERSION {
        return Err(Error::file(path, "another version of the format"));
    }
    let stored = || -> Result<Stored> {
        Ok(Stored {
            kind: number(&file, "kind", path)?,
            size: number(&file, "size", path)?,
            sum_log_degree: number(&file, "sum_log_degree", path)?,
            moments: storage::read_array(&file, "moments", path)?,
            values: storage::read_array(&file, "values", path)?,
            weights: storage::read_array(&file, "weights", path)?,
        })
    };
    let hash = storage::read_text(&file, "hash", path)?;
    let found = stored()?;
    if found.hash() != hash || stored()?.into_spectrum(nodes).is_none() {
        return Err(Error::file(path, "the spectrum is damaged"));
    }
    Ok(found)
}
