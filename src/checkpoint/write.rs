//! Writing a checkpoint: shards, then the manifest, then the oldest goes.

use super::{
    FORMAT, Fingerprint, KEEP, Manifest, Shard, State, VERSION, directory, shard_name, step_of,
};
use crate::comm::World;
use crate::error::{Result, WithPath};
use crate::partition::Part;
use crate::progress;
use crate::storage;
use std::path::{Path, PathBuf};

/// Writes the checkpoint `checkpoints/step-NNN` and removes all but the last two. To be called by
/// all ranks; on failure the checkpoints that were there before are untouched.
pub fn save(
    world: &World,
    checkpoints: &Path,
    part: &Part,
    fingerprint: &Fingerprint,
    state: &State,
) -> Result<PathBuf> {
    let to = directory(checkpoints, state.step);
    let shard = to.join(shard_name(world.rank()));
    // A damaged checkpoint of this step may be there: without a manifest it is none.
    if world.is_root() {
        let _ = std::fs::remove_file(to.join("manifest.json"));
    }
    world.barrier();
    let written = write_shard(&shard, world.is_root(), part, state).and_then(|()| hash(&shard));
    let (digest, bytes) = world.agree(written)?;
    // Eight words of 32 bits and the length: whole numbers, which travel as numbers unchanged.
    let words = digest.as_bytes().as_chunks::<4>().0.iter();
    let mut row: Vec<f64> = words.map(|word| f64::from(u32::from_le_bytes(*word))).collect();
    row.push(bytes as f64);
    let rank = [world.rank() as u32];
    let rows = world.gather_rows(&rank, &row, row.len(), world.size());
    let rows = world.agree(rows)?;
    let finished = match rows {
        Some(rows) => {
            let shards = rows.chunks_exact(row.len()).enumerate().map(|(rank, row)| {
                let words = row[..8].iter().flat_map(|word| (*word as u32).to_le_bytes());
                let digest: Vec<u8> = words.collect();
                let digest: [u8; 32] = digest.try_into().expect("eight words");
                Shard {
                    file: shard_name(rank),
                    bytes: row[8] as u64,
                    blake3: blake3::Hash::from(digest).to_hex().to_string(),
                }
            });
            let manifest = Manifest {
                format: FORMAT.into(),
                version: VERSION,
                step: state.step,
                nodes: part.nodes,
                fingerprint: fingerprint.clone(),
                shards: shards.collect(),
            };
            finish(checkpoints, &to, &manifest)
        }
        None => Ok(()),
    };
    world.agree(finished)?;
    Ok(to)
}

/// Rank 0: the manifest makes it a checkpoint; older ones may go then.
fn finish(checkpoints: &Path, to: &Path, manifest: &Manifest) -> Result<()> {
    storage::sync_directory(to)?;
    let text = format!("{:#}\n", serde_json::json!(manifest));
    storage::write_text_file(&to.join("manifest.json"), &text)?;
    storage::sync_directory(to)?;
    storage::sync_directory(checkpoints)?;
    let entries = std::fs::read_dir(checkpoints).with_path(checkpoints, "")?;
    let mut steps: Vec<(u64, PathBuf)> =
        entries.flatten().filter_map(|e| Some((step_of(&e.path())?, e.path()))).collect();
    steps.sort();
    // Steps beyond this one are of a run that was not continued.
    let (kept, beyond): (Vec<_>, Vec<_>) = steps.into_iter().partition(|s| s.0 <= manifest.step);
    let whole = kept.iter().rev().filter(|(_, path)| path.join("manifest.json").is_file());
    let oldest = whole.take(KEEP).last().map_or(0, |s| s.0);
    let stale = kept.into_iter().filter(|s| s.0 < oldest).chain(beyond);
    for (_, path) in stale {
        // The manifest first: half a checkpoint must not look like one.
        let _ = std::fs::remove_file(path.join("manifest.json"));
        if let Err(error) = std::fs::remove_dir_all(&path) {
            progress::warning(format!("{}: {error}", path.display()));
        }
    }
    Ok(())
}

fn write_shard(path: &Path, root: bool, part: &Part, state: &State) -> Result<()> {
    storage::write_hdf5(path, |file| {
        storage::write_text(file, "format", FORMAT)?;
        file.new_attr::<u32>().create("version")?.write_scalar(&VERSION)?;
        file.new_attr::<u64>().create("step")?.write_scalar(&state.step)?;
        storage::write_array(file, "ids", part.owned_ids())?;
        let fields = file.create_group("fields")?;
        for (name, values) in &state.fields {
            assert_eq!(values.len(), part.owned, "one value per owned row: {name}");
            storage::write_array(&fields, name, values)?;
        }
        if root {
            let numbers = file.create_group("numbers")?;
            for (name, values) in &state.numbers {
                storage::write_array(&numbers, name, values)?;
            }
        }
        Ok(())
    })
}

/// BLAKE3 and length of a file.
pub(super) fn hash(path: &Path) -> Result<(blake3::Hash, u64)> {
    let file = std::fs::File::open(path).with_path(path, "")?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).with_path(path, "")?;
    Ok((hasher.finalize(), hasher.count()))
}
