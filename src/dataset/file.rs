//! The dataset file (HDF5, readable with h5py; layout in `docs/formats.md`).
//!
//! Arrays are written straight from memory, and the whole file appears under its name only when
//! it is complete (temporary file, fsync, rename).

use super::{Dataset, Features, Truth};
use crate::error::{Error, Result, WithPath};
use crate::graph::Graph;
use crate::storage;
use std::path::{Path, PathBuf};

/// Value of the attribute `format`.
pub const FORMAT: &str = "dgmrf-dataset";
/// Value of the attribute `version`.
pub const VERSION: u32 = 1;

/// Rows moved between memory and file at a time where a conversion needs a buffer.
const SLAB: usize = 1 << 16;

/// What the root of a dataset file says, without its arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Name of the dataset.
    pub name: String,
    /// Hash of everything.
    pub hash: String,
    /// Hash of the graph alone.
    pub graph_hash: String,
    /// Number of nodes.
    pub nodes: usize,
}

impl Dataset {
    /// Writes the file, replacing an older one only when the new one is complete.
    pub fn write(&self, path: &Path) -> Result<()> {
        storage::write_hdf5(path, |file| self.write_into(file))
    }

    fn write_into(&self, file: &hdf5::File) -> hdf5::Result<()> {
        storage::write_text(file, "format", FORMAT)?;
        file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
        storage::write_text(file, "name", &self.name)?;
        storage::write_text(file, "hash", &self.hash())?;
        storage::write_text(file, "graph_hash", &self.graph_hash())?;

        let graph = file.create_group("graph")?;
        storage::write_array(&graph, "indptr", self.graph.indptr())?;
        storage::write_array(&graph, "indices", self.graph.indices())?;
        if let Some(weights) = self.graph.weights() {
            storage::write_array(&graph, "weights", weights)?;
        }

        let nodes = file.create_group("nodes")?;
        storage::write_array(&nodes, "y", &self.y)?;
        let observed = nodes.new_dataset::<u8>().shape(self.nodes()).create("observed")?;
        for (k, slab) in self.observed.chunks(SLAB).enumerate() {
            let bytes: Vec<u8> = slab.iter().map(|&o| u8::from(o)).collect();
            observed.write_slice(&bytes, k * SLAB..k * SLAB + slab.len())?;
        }
        if let Some(f) = &self.features {
            let features = storage::write_matrix(&nodes, "features", &f.values, f.names.len())?;
            storage::write_text(&features, "names", &f.names.join("\n"))?;
        }
        if let Some(p) = &self.position {
            storage::write_matrix(&nodes, "position", p.as_flattened(), 2)?;
        }
        if let Some(truth) = &self.truth {
            let group = file.create_group("truth")?;
            for (name, values) in truth.arrays() {
                storage::write_array(&group, name, values)?;
            }
        }
        Ok(())
    }

    /// Reads the whole file and verifies its hash, so that nothing silently damaged gets in.
    pub fn read(path: &Path) -> Result<Self> {
        DatasetFile::open(path)?.read()
    }

    /// Reads only the attributes of the root.
    pub fn read_header(path: &Path) -> Result<Header> {
        DatasetFile::open(path).map(|file| file.header)
    }
}

/// A dataset file that is open: its header is known, its arrays are read when they are needed.
pub struct DatasetFile {
    file: hdf5::File,
    path: PathBuf,
    header: Header,
}

impl DatasetFile {
    /// Opens the file and reads the attributes of its root.
    pub fn open(path: &Path) -> Result<Self> {
        let file = storage::open(path)?;
        let header = read_header(&file, path)?;
        Ok(DatasetFile { file, path: path.into(), header })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the root of the file says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads all arrays and verifies their hash, so that nothing silently damaged gets in.
    pub fn read(&self) -> Result<Dataset> {
        let DatasetFile { file, path, header } = self;
        let graph = read_graph(file, path)?;
        let n = graph.nodes();
        let nodes = file.group("nodes").with_path(path, "group /nodes")?;
        let y = storage::read_array::<f64>(&nodes, "y", path)?;
        let observed =
            storage::read_array::<u8>(&nodes, "observed", path)?.iter().map(|&o| o != 0).collect();
        let features = if nodes.link_exists("features") {
            let data = nodes.dataset("features").with_path(path, "/nodes/features")?;
            let names = storage::read_text(&data, "names", path)?;
            let values = data.read_raw().with_path(path, "/nodes/features")?;
            Some(Features { names: names.lines().map(String::from).collect(), values })
        } else {
            None
        };
        let position = if nodes.link_exists("position") {
            let data = nodes.dataset("position").with_path(path, "/nodes/position")?;
            if data.shape() != [n, 2] {
                return Err(Error::file(path, "/nodes/position is not [nodes, 2]"));
            }
            let mut position = vec![[0.0f64; 2]; n];
            data.read_into_raw(position.as_flattened_mut()).with_path(path, "/nodes/position")?;
            Some(position)
        } else {
            None
        };
        let truth = if file.link_exists("truth") {
            let group = file.group("truth").with_path(path, "group /truth")?;
            let array = |name: &str| {
                let there = group.link_exists(name);
                there.then(|| storage::read_array::<f64>(&group, name, path)).transpose()
            };
            let (x, post_mean, post_std) = (array("x")?, array("post_mean")?, array("post_std")?);
            Some(Truth { x, post_mean, post_std })
        } else {
            None
        };
        let name = header.name.clone();
        let data = Dataset { name, graph, y, observed, features, position, truth };
        data.check().map_err(|e| Error::file(path, e.to_string()))?;
        if data.hash() != header.hash || data.graph_hash() != header.graph_hash {
            return Err(Error::file(
                path,
                "the contents do not match the hash in the file: it was damaged or edited; \
                 make it again with `dgmrf import` or `dgmrf synth`",
            ));
        }
        Ok(data)
    }
}

fn read_header(file: &hdf5::File, path: &Path) -> Result<Header> {
    let format = storage::read_text(file, "format", path).unwrap_or_default();
    if format != FORMAT {
        return Err(Error::file(
            path,
            "this HDF5 file is not a dgmrf dataset (attribute `format` is missing or different); \
             make one with `dgmrf import` or `dgmrf synth`",
        ));
    }
    let version: u32 =
        file.attr("version").and_then(|a| a.read_scalar()).with_path(path, "attribute version")?;
    if version != VERSION {
        return Err(Error::file(
            path,
            format!("dataset format version {version}; this program reads version {VERSION}"),
        ));
    }
    let rows = file.dataset("graph/indptr").with_path(path, "/graph/indptr")?.size();
    Ok(Header {
        name: storage::read_text(file, "name", path)?,
        hash: storage::read_text(file, "hash", path)?,
        graph_hash: storage::read_text(file, "graph_hash", path)?,
        nodes: rows.saturating_sub(1),
    })
}

fn read_graph(file: &hdf5::File, path: &Path) -> Result<Graph> {
    let group = file.group("graph").with_path(path, "group /graph")?;
    let weighted = group.link_exists("weights");
    let weights = weighted.then(|| storage::read_array(&group, "weights", path)).transpose()?;
    Graph::from_csr(
        storage::read_array(&group, "indptr", path)?,
        storage::read_array(&group, "indices", path)?,
        weights,
    )
    .map_err(|e| Error::file(path, e.to_string()))
}
