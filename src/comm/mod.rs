//! The only room that talks to MPI.
//!
//! Here: the ranks of a job ([`World`]), sums over all of them, the halo exchange ([`halo`]),
//! moving node values between rank 0 and their owners ([`World::gather_rows`],
//! [`World::scatter_rows`]), failing together ([`World::agree`]), and the threads of a rank
//! ([`threads`]). A world of one rank is the single-machine case: the same calls, no messages.
//!
//! MPI is used from the thread that made the world only (`MPI_THREAD_FUNNELED`); a `World` is
//! therefore neither `Send` nor `Sync`.
//!
//! Not done: one-sided communication, GPU-aware transfers (blocks on a GPU are staged through
//! host memory).

pub mod halo;
mod root;
mod rows;
pub mod threads;

use crate::error::{Error, Result};
use crate::profile::{self, Phase};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The ranks that work together on one job.
pub struct World {
    // Declared before the universe: the communicator must go before MPI is finalised.
    comm: Option<SimpleCommunicator>,
    rank: usize,
    size: usize,
    local_rank: usize,
    local_size: usize,
    core_sharers: usize,
    /// Receives reductions, so that they allocate nothing after the first.
    scratch: RefCell<Vec<f64>>,
    /// Whether a failure has passed through [`World::agree`].
    failed: Cell<bool>,
    _universe: Option<Universe>,
}

impl World {
    /// Joins the MPI job this process was started in (a job of one without `mpirun`).
    ///
    /// From here on a panic on any rank ends the whole job instead of leaving the others waiting
    /// for messages that never come.
    pub fn init() -> Result<Rc<World>> {
        let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Funneled)
        else {
            return Err(Error::Setting("MPI was initialised before in this process".into()));
        };
        if threading < Threading::Funneled {
            return Err(Error::Setting(format!(
                "this MPI library supports {threading:?} only; dgmrf needs at least Funneled \
                 (an MPI built with thread support)"
            )));
        }
        let comm = universe.world();
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        // Standard section 6.4.2: ranks that share memory, that is one machine.
        let local = comm.split_shared(comm.rank());
        let (local_rank, local_size) = (local.rank() as usize, local.size() as usize);
        let mine = threads::allowed_cores();
        let mut all = vec![0u64; local_size];
        local.all_gather_into(&mine, &mut all[..]);
        let core_sharers = all.iter().filter(|&&cores| cores == mine).count();
        drop(local);
        abort_on_panic(rank);
        Ok(Rc::new(World {
            comm: Some(comm),
            rank,
            size,
            local_rank,
            local_size,
            core_sharers,
            scratch: RefCell::default(),
            failed: Cell::new(false),
            _universe: Some(universe),
        }))
    }

    /// A world of this process alone, without MPI.
    pub fn solo() -> Rc<World> {
        Rc::new(World {
            comm: None,
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: 1,
            core_sharers: 1,
            scratch: RefCell::default(),
            failed: Cell::new(false),
            _universe: None,
        })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This rank among those on the same machine: which GPU is mine.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Number of ranks on this machine.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// Number of ranks on this machine that may use the same cores as this one, itself included:
    /// 1 where the launcher has bound each rank to cores of its own.
    pub fn core_sharers(&self) -> usize {
        self.core_sharers
    }

    /// Whether this is the rank that speaks and writes shared files.
    pub fn is_root(&self) -> bool {
        self.rank == 0
    }

    /// The communicator, absent in a world of one (which has nobody to talk to).
    fn comm(&self) -> Option<&SimpleCommunicator> {
        self.comm.as_ref().filter(|_| self.size > 1)
    }

    /// Replaces each value by its sum over all ranks: any number of scalars, one reduction.
    pub fn sum(&self, values: &mut [f64]) {
        self.reduce(values, SystemOperation::sum());
    }

    /// Replaces each value by its maximum over all ranks.
    pub fn max(&self, values: &mut [f64]) {
        self.reduce(values, SystemOperation::max());
    }

    /// Replaces each value by its minimum over all ranks.
    pub fn min(&self, values: &mut [f64]) {
        self.reduce(values, SystemOperation::min());
    }

    /// Whether the flag is set on any rank.
    pub fn any(&self, flag: bool) -> bool {
        let mut flags = [f64::from(u8::from(flag))];
        self.max(&mut flags);
        flags[0] > 0.0
    }

    /// Standard section 5.9.6. For the same ranks and counts the order of the additions is the
    /// same in every run, as the standard asks of implementations (5.9.1).
    fn reduce(&self, values: &mut [f64], operation: SystemOperation) {
        let Some(comm) = self.comm() else { return };
        let timer = profile::start();
        let mut scratch = self.scratch.borrow_mut();
        if scratch.len() < values.len() {
            scratch.resize(values.len(), 0.0);
        }
        let total = &mut scratch[..values.len()];
        comm.all_reduce_into(&*values, total, operation);
        values.copy_from_slice(total);
        profile::stop(Phase::Reduce, timer, std::mem::size_of_val(values) as u64, 1);
    }

    /// Waits for all ranks.
    pub fn barrier(&self) {
        if let Some(comm) = self.comm() {
            comm.barrier();
        }
    }

    /// Gives the bytes of rank 0 to all ranks.
    pub fn broadcast(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.broadcast_from(0, bytes)
    }

    /// Gives the numbers of rank 0 to all ranks.
    pub fn broadcast_numbers(&self, numbers: Vec<f64>) -> Vec<f64> {
        let bytes = self.broadcast(bytemuck::cast_slice(&numbers).to_vec());
        bytes.as_chunks().0.iter().map(|&b| f64::from_ne_bytes(b)).collect()
    }

    fn broadcast_from(&self, source: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        let Some(comm) = self.comm() else { return bytes };
        let process = comm.process_at_rank(source as i32);
        let mut length = bytes.len() as u64;
        process.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        if length > 0 {
            process.broadcast_into(&mut bytes[..]); // Open MPI refuses an empty message
        }
        bytes
    }

    /// Turns a failure on any rank into a failure on all of them, with the message of the lowest
    /// failing rank. To be called by all ranks, wherever one may fail alone (files, memory).
    pub fn agree<T>(&self, result: Result<T>) -> Result<T> {
        if self.size == 1 {
            return result;
        }
        let failed = if result.is_err() { -(self.rank as f64) } else { f64::NEG_INFINITY };
        let mut first = [failed];
        self.max(&mut first);
        if first[0] == f64::NEG_INFINITY {
            return result;
        }
        self.failed.set(true);
        let rank = -first[0] as usize;
        let mine = match &result {
            Err(error) if rank == self.rank => error.to_string().into_bytes(),
            _ => Vec::new(),
        };
        let message = String::from_utf8_lossy(&self.broadcast_from(rank, mine)).into_owned();
        match result {
            Err(error) if rank == self.rank => Err(error),
            _ => Err(Error::Rank { rank, message }),
        }
    }

    /// Whether all ranks know of a failure: then each can end by itself.
    pub fn failed_together(&self) -> bool {
        self.failed.get()
    }

    /// The profile over all ranks since [`profile::enable`]; every rank must call it.
    pub fn profile(&self) -> Vec<profile::Line> {
        profile::collect(|values| self.max(values), |values| self.sum(values))
    }

    /// Ends all ranks at once: for failures after which a rank cannot take part any more.
    pub fn abort(&self, code: i32) -> ! {
        match &self.comm {
            Some(comm) => comm.abort(code),
            None => std::process::exit(code),
        }
    }
}

/// Version of the MPI library, in its own words.
pub fn library_version() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    text.split(',').next().unwrap_or_default().trim().to_owned()
}

/// Rank that the launcher gave this process, known without joining the job. Commands that are
/// not distributed run on the first rank only.
pub fn launched_rank() -> usize {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
        .unwrap_or(0)
}

/// The hook may run on a worker thread, where MPI must not be called (Funneled), or after MPI has
/// ended: aborting is the one call for which that risk is right, since the job is lost anyway.
fn abort_on_panic(rank: usize) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("rank {rank}: internal error, ending the job; please report this:");
        before(info);
        if mpi::environment::is_finalized() {
            std::process::exit(1);
        }
        SimpleCommunicator::world().abort(1);
    }));
}
