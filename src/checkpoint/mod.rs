//! The state of a run on disk, from which it continues bit for bit.
//!
//! A checkpoint is a directory `step-NNN` with one HDF5 shard per rank, which holds node values by
//! global id, and `manifest.json`, which holds the hash of every shard and is written last: without
//! it there is no checkpoint. Every file is written under a temporary name, brought to disk, and
//! renamed. The last two checkpoints are kept, so the previous one stays until the new one is
//! whole.
//!
//! What is stored is up to the caller ([`State`]). It can be read on any number of ranks; a shard
//! is opened by HDF5 only after its hash was found right.
//!
//! ```
//! use dgmrf::checkpoint::{self, Fingerprint, State};
//! use dgmrf::{comm::World, synth, partition::Partition};
//! # let dir = std::env::temp_dir().join(format!("dgmrf-doc-checkpoint-{}", std::process::id()));
//! // The part of this rank: all of a graph of 100 nodes.
//! let world = World::solo();
//! let (_points, graph) = synth::random_graph(100, 1, Default::default())?;
//! let part = Partition::new(&graph, vec![0; 100], 1, Default::default())?.part(0);
//!
//! let fingerprint = Fingerprint::from([("seed".to_owned(), "1".to_owned())]);
//! let mut state = State { step: 7, ..State::default() };
//! state.numbers.insert("theta".into(), vec![0.1, 0.2]);
//! state.fields.insert("nu".into(), vec![0.5; part.owned]);
//! checkpoint::save(&world, &dir, &part, &fingerprint, &state)?;
//!
//! let loaded = checkpoint::latest(&world, &dir, &part)?.expect("a checkpoint");
//! assert_eq!((loaded.state, loaded.fingerprint), (state, fingerprint));
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok::<(), dgmrf::Error>(())
//! ```

mod read;
mod write;

pub use read::{Loaded, latest, load};
pub use write::save;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FORMAT: &str = "dgmrf-checkpoint";
const VERSION: u32 = 1;

/// Checkpoints that are kept.
const KEEP: usize = 2;

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Vectors that all ranks have alike.
    pub numbers: BTreeMap<String, Vec<f64>>,
    /// Node fields: one value for every owned row, in the order of the rows of this rank.
    pub fields: BTreeMap<String, Vec<f64>>,
}

/// What tells a run from another: its settings, the hash of its data, and the like, by name. A
/// checkpoint with another fingerprint is not continued.
pub type Fingerprint = BTreeMap<String, String>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    version: u32,
    step: u64,
    nodes: usize,
    #[serde(rename = "about")]
    fingerprint: Fingerprint,
    shards: Vec<Shard>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shard {
    file: String,
    bytes: u64,
    blake3: String,
}

fn directory(checkpoints: &Path, step: u64) -> PathBuf {
    checkpoints.join(format!("step-{step:09}"))
}

/// The step that a directory name stands for.
fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

fn shard_name(rank: usize) -> String {
    format!("shard-{rank:04}.h5")
}
