//! Finding and reading checkpoints, on any number of ranks.

use super::write::hash;
use super::{FORMAT, Fingerprint, Manifest, State, VERSION, shard_name, step_of};
use crate::comm::World;
use crate::error::{Error, Result, WithPath};
use crate::partition::Part;
use crate::progress;
use crate::storage;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The state, with the node fields of this rank.
    pub state: State,
    /// The fingerprint of the run that saved it.
    pub fingerprint: Fingerprint,
    /// Where it was.
    pub path: PathBuf,
    /// Number of ranks that wrote it.
    pub ranks: usize,
}

/// Reads the newest checkpoint that is whole, or nothing if there is none. One that is damaged is
/// passed over with a warning. To be called by all ranks.
pub fn latest(world: &World, checkpoints: &Path, part: &Part) -> Result<Option<Loaded>> {
    let steps = match std::fs::read_dir(checkpoints) {
        Ok(entries) => entries.flatten().filter_map(|e| step_of(&e.path())).collect(),
        Err(_) => Vec::new(),
    };
    // Rank 0 decides: another rank may see the directory a moment later.
    let mut steps: Vec<f64> = steps.into_iter().map(|s: u64| s as f64).collect();
    steps.sort_by(|a, b| b.total_cmp(a));
    for step in world.broadcast_numbers(steps) {
        let path = super::directory(checkpoints, step as u64);
        if !world.any(world.is_root() && path.join("manifest.json").is_file()) {
            continue; // it was being written when the run ended
        }
        match load(world, &path, part) {
            Ok(loaded) => return Ok(Some(loaded)),
            Err(error) if world.is_root() => {
                progress::warning(format!("{error}; it is passed over"));
            }
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Reads the checkpoint in this directory. To be called by all ranks.
pub fn load(world: &World, path: &Path, part: &Part) -> Result<Loaded> {
    let manifest = world.agree(read_manifest(world, path))?;
    if manifest.nodes != part.nodes {
        return world.agree(Err(Error::file(
            path,
            format!("a checkpoint of {} nodes; the graph has {}", manifest.nodes, part.nodes),
        )));
    }
    // Usually every rank finds its very rows in its own shard.
    let mine = if manifest.shards.len() == world.size() {
        Some(world.agree(Contents::read(path, &manifest, world.rank()))?)
    } else {
        None
    };
    let same = mine.as_ref().is_some_and(|contents| contents.ids == part.owned_ids());
    let moved = world.any(!same);
    let (mut numbers, fields) = match mine {
        Some(contents) if !moved => (contents.numbers, contents.fields),
        _ => redistribute(world, path, &manifest, part)?,
    };
    numbers = broadcast(world, numbers);
    let state = State { step: manifest.step, numbers, fields };
    let ranks = manifest.shards.len();
    Ok(Loaded { state, fingerprint: manifest.fingerprint, path: path.to_owned(), ranks })
}

/// Rank 0 reads the manifest; all get it.
fn read_manifest(world: &World, path: &Path) -> Result<Manifest> {
    let file = path.join("manifest.json");
    let text = world.on_root(|| std::fs::read(&file).with_path(&file, ""))?;
    let text = world.broadcast(text.unwrap_or_default());
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|e| Error::parse(&file, e.line() as u64, e.to_string()))?;
    if manifest.format != FORMAT || manifest.version != VERSION {
        let Manifest { format, version, .. } = &manifest;
        return Err(Error::file(
            &file,
            format!("{format} version {version}; this program reads {FORMAT} version {VERSION}"),
        ));
    }
    Ok(manifest)
}

/// Values by name.
type Named = BTreeMap<String, Vec<f64>>;

/// What one shard holds.
struct Contents {
    ids: Vec<u32>,
    fields: Named,
    numbers: Named,
}

impl Contents {
    /// Verifies the hash, then reads.
    fn read(checkpoint: &Path, manifest: &Manifest, rank: usize) -> Result<Self> {
        let shard = &manifest.shards[rank];
        let path = checkpoint.join(shard_name(rank));
        let (found, bytes) = hash(&path)?;
        if shard.file != shard_name(rank)
            || bytes != shard.bytes
            || found.to_hex().as_str() != shard.blake3
        {
            return Err(Error::file(&path, "damaged: it is not what the manifest says"));
        }
        let file = storage::open(&path)?;
        let ids: Vec<u32> = storage::read_array(&file, "ids", &path)?;
        let fields = read_group(&file, "fields", &path)?;
        if let Some((name, _)) = fields.iter().find(|(_, values)| values.len() != ids.len()) {
            return Err(Error::file(&path, format!("field {name} does not have a value per id")));
        }
        let numbers = file.link_exists("numbers").then(|| read_group(&file, "numbers", &path));
        let numbers = numbers.transpose()?.unwrap_or_default();
        Ok(Contents { ids, fields, numbers })
    }
}

fn read_group(file: &hdf5::File, name: &str, path: &Path) -> Result<Named> {
    let group = file.group(name).with_path(path, name)?;
    let members = group.member_names().with_path(path, name)?;
    members
        .into_iter()
        .map(|member| {
            let values = storage::read_array(&group, &member, path)?;
            Ok((member, values))
        })
        .collect()
}

/// The checkpoint of another number of ranks, or of another division of the graph: rank 0 reads
/// shard by shard and gives every rank its rows.
fn redistribute(
    world: &World,
    path: &Path,
    manifest: &Manifest,
    part: &Part,
) -> Result<(Named, Named)> {
    let (numbers, all) = world.on_root(|| read_all(path, manifest))?.unwrap_or_default();
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    let names = world.broadcast(names.join("\n").into_bytes());
    let names = String::from_utf8_lossy(&names).into_owned();
    let fields = names.lines().map(|name| {
        let values = all.get(name).map(Vec::as_slice);
        (name.to_owned(), world.scatter_rows(part.owned_ids(), values, 1))
    });
    Ok((numbers, fields.collect()))
}

/// Numbers, and node fields by global id, of all shards.
fn read_all(path: &Path, manifest: &Manifest) -> Result<(Named, Named)> {
    let mut numbers = Named::new();
    let mut all = Named::new();
    let mut seen = vec![false; manifest.nodes];
    for rank in 0..manifest.shards.len() {
        let contents = Contents::read(path, manifest, rank)?;
        if rank == 0 {
            numbers = contents.numbers;
        }
        for &id in &contents.ids {
            match seen.get_mut(id as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(Error::file(path, format!("node {id} twice or out of range"))),
            }
        }
        for (name, values) in contents.fields {
            let to = all.entry(name).or_insert_with(|| vec![0.0; manifest.nodes]);
            contents.ids.iter().zip(values).for_each(|(&id, value)| to[id as usize] = value);
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(id) => Err(Error::file(path, format!("node {id} is in no shard"))),
        None => Ok((numbers, all)),
    }
}

/// Gives the numbers of rank 0 to all.
fn broadcast(world: &World, numbers: Named) -> Named {
    let names: Vec<String> = numbers.iter().map(|(k, v)| format!("{} {k}", v.len())).collect();
    let names = world.broadcast(names.join("\n").into_bytes());
    let all: Vec<f64> = numbers.into_values().flatten().collect();
    let all = world.broadcast_numbers(all);
    let mut rest = &all[..];
    let mut found = Named::new();
    for line in String::from_utf8_lossy(&names).lines() {
        let Some((length, name)) = line.split_once(' ') else { continue };
        let (values, after) = rest.split_at(length.parse().unwrap_or(0));
        found.insert(name.to_owned(), values.to_vec());
        rest = after;
    }
    found
}
