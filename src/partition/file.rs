//! The partition file: one HDF5 group per part, so that a rank reads only its own.

use super::{Options, Part, Partition, Quality, divide};
use crate::comm::World;
use crate::comm::halo::{HaloPlan, Neighbour};
use crate::dataset::Dataset;
use crate::error::{Error, Result, WithPath};
use crate::storage;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    let owner = divide(&data.graph, parts, options)?;
    let partition = Partition::new(&data.graph, owner, parts, options.order)?;
    let quality = partition.quality();
    storage::write_hdf5(path, |file| {
        storage::write_text(file, "format", FORMAT)?;
        file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
        storage::write_text(file, "name", &data.name)?;
        storage::write_text(file, "graph_hash", &data.graph_hash())?;
        file.new_attr::<u64>().create("parts")?.write_scalar(&(parts as u64))?;
        file.new_attr::<u64>().create("nodes")?.write_scalar(&(data.nodes() as u64))?;
        file.new_attr::<u64>().create("edge_cut")?.write_scalar(&(quality.edge_cut as u64))?;
        (0..parts).try_for_each(|p| {
            let group = file.create_group(&group_name(p))?;
            write_part(&group, &partition.part(p))
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
    storage::write_array(group, "degree", &part.degree)?;
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

impl Part {
    /// Reads one part, after making sure that the file is a partition of this very graph.
    pub fn read(path: &Path, rank: usize, parts: usize, graph_hash: &str) -> Result<Part> {
        let file = storage::open(path)?;
        let fix = format!(
            "make it again with `dgmrf partition DATA.h5 --parts {parts} -o {}`",
            path.display()
        );
        if storage::read_text(&file, "format", path).ok().as_deref() != Some(FORMAT) {
            return Err(Error::file(path, format!("this HDF5 file is not a partition; {fix}")));
        }
        let number = |at: &hdf5::Location, name: &str| -> Result<usize> {
            let attribute = at.attr(name).and_then(|a| a.read_scalar::<u64>());
            Ok(attribute.with_path(path, &format!("attribute {name}"))? as usize)
        };
        let version = number(&file, "version")?;
        if version != VERSION as usize {
            return Err(Error::file(path, format!("partition format version {version}; {fix}")));
        }
        let found = number(&file, "parts")?;
        if found != parts {
            return Err(Error::file(
                path,
                format!("{found} parts, but there are {parts} ranks; {fix}"),
            ));
        }
        if storage::read_text(&file, "graph_hash", path)? != graph_hash {
            return Err(Error::file(
                path,
                format!("made for another graph than the dataset's; {fix}"),
            ));
        }
        let group = file.group(&group_name(rank)).with_path(path, &group_name(rank))?;
        let halo = group.group("halo").with_path(path, "halo")?;
        let ranks: Vec<u32> = storage::read_array(&halo, "ranks", path)?;
        let send: Vec<u32> = storage::read_array(&halo, "send", path)?;
        let send_ptr: Vec<u64> = storage::read_array(&halo, "send_ptr", path)?;
        let receive_ptr: Vec<u64> = storage::read_array(&halo, "receive_ptr", path)?;
        let damaged = || Error::file(path, format!("the halo of part {rank} is damaged; {fix}"));
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
        let weights = match group.link_exists("weights") {
            true => Some(storage::read_array(&group, "weights", path)?),
            false => None,
        };
        let part = Part {
            rank,
            parts,
            nodes: number(&file, "nodes")?,
            offset: number(&group, "offset")?,
            owned: number(&group, "owned")?,
            interior: number(&group, "interior")?,
            ids: storage::read_array(&group, "ids", path)?,
            degree: storage::read_array(&group, "degree", path)?,
            indptr: storage::read_array(&group, "indptr", path)?,
            indices: storage::read_array(&group, "indices", path)?,
            weights,
            halo: Rc::new(HaloPlan { neighbours }),
        };
        part.check().map_err(|e| Error::file(path, format!("{e}; {fix}")))?;
        Ok(part)
    }
}

/// The part of this rank: from `path`, which rank 0 makes first if there is no such file.
/// To be called by all ranks.
pub fn load_or_make(
    world: &World,
    data: &Path,
    path: Option<&Path>,
    options: &Options,
) -> Result<Part> {
    let header = world.agree(Dataset::read_header(data))?;
    let default = default_path(&header.name, world.size());
    let path = path.unwrap_or(&default);
    let made = match world.is_root() && !path.exists() {
        true => Dataset::read(data)
            .and_then(|data| write(path, &data, world.size(), options))
            .map(|_| ()),
        false => Ok(()),
    };
    world.agree(made)?;
    world.agree(Part::read(path, world.rank(), world.size(), &header.graph_hash))
}
