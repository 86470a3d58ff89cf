//! Threads of one rank: cores divided by the ranks that share them.

use super::World;
use crate::error::{Error, Result};

/// Threads this rank should use when nobody says otherwise.
///
/// If the launcher has bound the rank to some cores, those are its share; otherwise the cores of
/// the machine are divided among the ranks on it.
pub fn default_count(world: &World) -> usize {
    let mine = std::thread::available_parallelism().map_or(1, usize::from);
    let bound = mine < cores_online();
    if bound { mine } else { (mine / world.local_size()).max(1) }
}

/// Cores of the machine, whether or not this process may use them.
fn cores_online() -> usize {
    // SAFETY: a plain query without pointers.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}

/// Sizes the thread pools of this process (rayon, and libtorch where it is built in). To be called
/// once, after [`World::init`], because only then the number of local ranks is known.
pub fn configure(world: &World, threads: Option<usize>) -> Result<usize> {
    let threads = match threads {
        Some(0) => return Err(Error::Setting("threads must be at least 1".into())),
        Some(count) => count,
        None => default_count(world),
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread() // the thread that talks to MPI works too, instead of watching
        .build_global()
        .map_err(|e| Error::Setting(format!("cannot start {threads} threads: {e}")))?;
    #[cfg(feature = "torch")]
    tch::set_num_threads(threads as i32);
    Ok(threads)
}
