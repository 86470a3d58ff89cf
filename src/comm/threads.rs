//! Threads of one rank: cores divided by the ranks that share them.

#![allow(unsafe_code, reason = "the cores of a process are asked of the C library")]

use super::World;
use crate::error::{Error, Result};

/// Threads this rank should use when nobody says otherwise: `OMP_NUM_THREADS`, as batch systems
/// set it, or the cores this rank may use divided by the ranks that may use the same ones.
pub fn default_count(world: &World) -> usize {
    let wanted = std::env::var("OMP_NUM_THREADS").ok().and_then(|n| n.parse().ok());
    wanted.filter(|&n| n > 0).unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / world.core_sharers()).max(1)
    })
}

/// A fingerprint of the set of cores this process may use: equal for ranks that share them.
pub(super) fn allowed_cores() -> u64 {
    // SAFETY: an all-zero set is valid, and the call fills at most its size.
    let cores = unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut cores);
        cores
    };
    let mut print = 0u64;
    for core in 0..8 * size_of::<libc::cpu_set_t>() {
        // SAFETY: `core` is within the set.
        if unsafe { libc::CPU_ISSET(core, &cores) } {
            print = print.wrapping_mul(31).wrapping_add(core as u64 + 1);
        }
    }
    print
}

/// Sizes the thread pool of this process. To be called once, after [`World::init`], because only
/// then the number of local ranks is known.
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
    Ok(threads)
}
