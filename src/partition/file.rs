//! The partition file: one HDF5 group per part, so that a rank reads only its own.

use super::order::Order;
use super::{Options, Part, Partition, Quality, divide};
use crate::comm::World;
use crate::comm::halo::{HaloPlan, Neighbour};
use crate::dataset::{Dataset, DatasetFile};
use crate::error::{Error, Result, WithPath};
use crate::progress::Progress;
use crate::storage::{self, ArrayHasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORMAT: &str = "dgmrf-partition";
const VERSION: u32 = 1;

/// Where the partition of a dataset is kept unless the user says otherwise.
pub fn default_path(name: &str, parts: usize) -> PathBuf {
    PathBuf::from(format!("partitions/{name}-p{parts}.h5"))
}

fn group_name(rank: usize) -> String {
    format!("part-{rank:04}")
}

/// Divides the graph of a dataset and writes all parts.
pub fn write(path: &Path, data: &Dataset, parts: usize, options: &Options) -> Result<Quality> {
    let mut progress = Progress::new("partition", parts as u64 + 2);
    let owner = divide(&data.graph, parts, options)?;
    progress.advance(1);
    let partition = Partition::new(&data.graph, owner, parts, options.order)?;
    let quality = partition.quality();
    progress.advance(1);
    storage::write_hdf5(path, |file| {
        storage::write_text(file, "format", FORMAT)?;
        file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
        storage::write_text(file, "name", &data.name)?;
        storage::write_text(file, "graph_hash", &data.graph_hash())?;
        storage::write_text(file, "order", options.order.name())?;
        file.new_attr::<u64>().create("parts")?.write_scalar(&(parts as u64))?;
        file.new_attr::<u64>().create("nodes")?.write_scalar(&(data.nodes() as u64))?;
        file.new_attr::<u64>().create("edge_cut")?.write_scalar(&(quality.edge_cut as u64))?;
        (0..parts).try_for_each(|p| {
            let group = file.create_group(&group_name(p))?;
            write_part(&group, &partition.part(p))?;
            progress.advance(1);
            Ok(())
        })
    })?;
    Ok(quality)
}

fn write_part(group: &hdf5::Group, part: &Part) -> hdf5::Result<()> {
    for (name, value) in
        [("offset", part.offset), ("owned", part.owned), ("interior", part.interior)]
    {
        group.new_attr::<u64>().create(name)?.write_scalar(&(value as u64))?;
    }
    storage::write_array(group, "ids", &part.ids)?;
    storage::write_text(group, "hash", &hash(part))?;
    storage::write_array(group, "degree", &part.degree)?;
    storage::write_array(group, "neighbour_count", &part.neighbour_count)?;
    storage::write_array(group, "indptr", &part.indptr)?;
    storage::write_array(group, "indices", &part.indices)?;
    if let Some(weights) = &part.weights {
        storage::write_array(group, "weights", weights)?;
    }
    let neighbours = &part.halo.neighbours;
    let ranks: Vec<u32> = neighbours.iter().map(|n| n.rank as u32).collect();
    let send: Vec<u32> = part.halo.send_order().collect();
    let mut send_ptr = vec![0u64];
    let mut receive_ptr = vec![0u64];
    for n in neighbours {
        send_ptr.push(send_ptr[send_ptr.len() - 1] + n.send.len() as u64);
        receive_ptr.push(n.receive.end as u64);
    }
    let halo = group.create_group("halo")?;
    storage::write_array(&halo, "ranks", &ranks)?;
    storage::write_array(&halo, "send", &send)?;
    storage::write_array(&halo, "send_ptr", &send_ptr)?;
    storage::write_array(&halo, "receive_ptr", &receive_ptr)
}

/// BLAKE3 of all that makes a part: what is read must be what was written.
fn hash(part: &Part) -> String {
    let mut hasher = ArrayHasher::new("dgmrf part 1");
    for number in [part.rank, part.parts, part.nodes, part.offset, part.owned, part.interior] {
        hasher.array("number", &[number as u64]);
    }
    hasher.array("ids", &part.ids);
    hasher.array("degree", &part.degree);
    hasher.array("neighbour_count", &part.neighbour_count);
    hasher.array("indptr", &part.indptr);
    hasher.array("indices", &part.indices);
    if let Some(weights) = &part.weights {
        hasher.array("weights", weights);
    }
    for n in &part.halo.neighbours {
        hasher.array("neighbour", &[n.rank as u64, n.receive.start as u64, n.receive.end as u64]);
        hasher.array("send", &n.send);
    }
    hasher.finish()
}

impl Part {
    /// Reads one part, after making sure that the file is a partition of this very graph.
    pub fn read(path: &Path, rank: usize, parts: usize, graph_hash: &str) -> Result<Part> {
        let file = storage::open(path)?;
        if storage::read_text(&file, "format", path).ok().as_deref() != Some(FORMAT) {
            return Err(Error::file(path, "this HDF5 file is not a partition"));
        }
        let number = |at: &hdf5::Location, name: &str| -> Result<usize> {
            let attribute = at.attr(name).and_then(|a| a.read_scalar::<u64>());
            Ok(attribute.with_path(path, &format!("attribute {name}"))? as usize)
        };
        let version = number(&file, "version")?;
        if version != VERSION as usize {
            return Err(Error::file(path, format!("partition format version {version}")));
        }
        let found = number(&file, "parts")?;
        if found != parts {
            return Err(Error::file(path, format!("{found} parts, but there are {parts} ranks")));
        }
        if storage::read_text(&file, "graph_hash", path)? != graph_hash {
            return Err(Error::file(path, "made for another graph than the dataset's"));
        }
        let order = Order::from_name(&storage::read_text(&file, "order", path)?);
        let group = file.group(&group_name(rank)).with_path(path, &group_name(rank))?;
        let halo = group.group("halo").with_path(path, "halo")?;
        let ranks: Vec<u32> = storage::read_array(&halo, "ranks", path)?;
        let send: Vec<u32> = storage::read_array(&halo, "send", path)?;
        let send_ptr: Vec<u64> = storage::read_array(&halo, "send_ptr", path)?;
        let receive_ptr: Vec<u64> = storage::read_array(&halo, "receive_ptr", path)?;
        let damaged = || Error::file(path, format!("part {rank} is damaged"));
        if send_ptr.len() != ranks.len() + 1 || receive_ptr.len() != ranks.len() + 1 {
            return Err(damaged());
        }
        let mut neighbours = Vec::with_capacity(ranks.len());
        for (k, &rank) in ranks.iter().enumerate() {
            let rows =
                send.get(send_ptr[k] as usize..send_ptr[k + 1] as usize).ok_or_else(damaged)?;
            let receive = receive_ptr[k] as usize..receive_ptr[k + 1] as usize;
            if receive.start > receive.end {
                return Err(damaged());
            }
            neighbours.push(Neighbour { rank: rank as usize, send: rows.to_vec(), receive });
        }
        let weighted = group.link_exists("weights");
        let weights = weighted.then(|| storage::read_array(&group, "weights", path)).transpose()?;
        let part = Part {
            rank,
            parts,
            nodes: number(&file, "nodes")?,
            offset: number(&group, "offset")?,
            owned: number(&group, "owned")?,
            interior: number(&group, "interior")?,
            ids: storage::read_array(&group, "ids", path)?,
            degree: storage::read_array(&group, "degree", path)?,
            neighbour_count: storage::read_array(&group, "neighbour_count", path)?,
            indptr: storage::read_array(&group, "indptr", path)?.into(),
            indices: storage::read_array(&group, "indices", path)?.into(),
            weights: weights.map(Into::into),
            halo: Arc::new(HaloPlan { neighbours }),
            order: order.ok_or_else(damaged)?,
        };
        part.check().map_err(|e| Error::file(path, e.to_string()))?;
        if storage::read_text(&group, "hash", path)? != hash(&part) {
            return Err(damaged());
        }
        Ok(part)
    }
}

/// The part of this rank, from a file that rank 0 makes first if it is missing.
/// To be called by all ranks.
pub fn load_or_make(
    world: &World,
    data: &DatasetFile,
    path: Option<&Path>,
    options: &Options,
) -> Result<Loaded> {
    let (header, parts) = (data.header(), world.size());
    let path = path.map_or_else(|| default_path(&header.name, parts), Path::to_owned);
    let write = || data.read().and_then(|data| write(&path, &data, parts, options));
    let made = world.make_if_missing(|| Ok(path.exists()), || world.on_root(write).map(|_| ()))?;
    let part = Part::read(&path, world.rank(), parts, &header.graph_hash).map_err(|error| {
        let (data, path) = (data.path().display(), path.display());
        let fix = format!("dgmrf partition {data} --parts {parts} -o {path}");
        Error::Data(format!("{error}; make it again with `{fix}`"))
    });
    Ok(Loaded { part: world.agree(part)?, path, made })
}

/// What [`load_or_make`] found or made.
pub struct Loaded {
    /// The part of this rank.
    pub part: Part,
    /// The file that holds it.
    pub path: PathBuf,
    /// Whether the file was made just now.
    pub made: bool,
}
