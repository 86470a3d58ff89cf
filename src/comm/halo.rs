//! Exchange of boundary rows with neighbouring ranks, overlapped with work.
//!
//! A plan has two directions: values of owned rows go out to the ranks that hold copies of them
//! ([`HaloExchange::run`]), and contributions to the copies come back to the owners
//! ([`HaloExchange::run_back`]). Either is one message per neighbour, whatever the number of ranks.

#![allow(unsafe_code, reason = "buffers of MPI's non-blocking calls; rsmpi's own would allocate")]

use super::World;
use crate::error::{Error, Result};
use crate::profile::{self, Phase};
use mpi::ffi;
use mpi::traits::*;
use std::ops::Range;
use std::os::raw::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

/// Who sends which rows to whom. Rows are local row numbers; the rows received from all neighbours,
/// one neighbour after the other, are the halo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HaloPlan {
    /// Neighbouring ranks, ascending.
    pub neighbours: Vec<Neighbour>,
}

/// What passes between this rank and one neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The other rank.
    pub rank: usize,
    /// Owned rows the neighbour needs, in the order in which its halo has them.
    pub send: Vec<u32>,
    /// Halo rows (counted from 0) that come from the neighbour.
    pub receive: Range<usize>,
}

impl HaloPlan {
    /// Rows received: the length of the halo.
    pub fn received_rows(&self) -> usize {
        self.neighbours.last().map_or(0, |n| n.receive.end)
    }

    /// Rows sent, counted once per receiver.
    pub fn sent_rows(&self) -> usize {
        self.neighbours.iter().map(|n| n.send.len()).sum()
    }

    /// All rows to send, neighbour by neighbour: the packing order.
    pub fn send_order(&self) -> impl Iterator<Item = u32> + '_ {
        self.neighbours.iter().flat_map(|n| n.send.iter().copied())
    }

    /// For each neighbour: its rank, its rows in the packing order, its rows in the halo.
    fn lines(&self) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + '_ {
        self.neighbours.iter().scan(0, |end, n| {
            let start = *end;
            *end += n.send.len();
            Some((n.rank, start..*end, n.receive.clone()))
        })
    }
}

/// Runs the exchanges of one plan; holds the request handles so that no exchange allocates.
pub struct HaloExchange {
    world: Rc<World>,
    plan: Arc<HaloPlan>,
    tags: Tags,
    requests: Vec<ffi::MPI_Request>,
}

/// Tags of the messages out and back. Messages with one tag are matched in the order in which all
/// ranks make their exchanges; each kind of exchange has tags of its own, so that one may run in
/// the `work` of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    out: c_int,
    back: c_int,
}

impl Tags {
    /// For the halo of a part, in the passes of an engine.
    pub const HALO: Tags = Tags { out: 11, back: 12 };
    /// For the rings around a part.
    pub const OVERLAP: Tags = Tags { out: 13, back: 14 };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    Back,
}

impl HaloExchange {
    /// An exchange of the plan among the ranks of the world.
    pub fn new(world: Rc<World>, plan: Arc<HaloPlan>) -> Result<Self> {
        Self::with_tags(world, plan, Tags::HALO)
    }

    /// An exchange whose messages have the given tags.
    pub fn with_tags(world: Rc<World>, plan: Arc<HaloPlan>, tags: Tags) -> Result<Self> {
        if let Some(n) = plan.neighbours.iter().find(|n| n.rank >= world.size()) {
            return Err(Error::Setting(format!(
                "the partition names rank {}, but there are only {} ranks",
                n.rank,
                world.size()
            )));
        }
        let requests = Vec::with_capacity(2 * plan.neighbours.len());
        Ok(HaloExchange { world, plan, tags, requests })
    }

    /// The plan.
    pub fn plan(&self) -> &HaloPlan {
        &self.plan
    }

    /// Sends the packed rows (`columns` values each, in [`HaloPlan::send_order`]), fills `receive`
    /// with the halo, and does `work` while the messages travel. Most MPI libraries move large
    /// messages only while they are called: `work` should call [`InFlight::progress`] now and then.
    ///
    /// # Panics
    /// If the buffers do not fit the plan (a bug of the caller).
    pub fn run<T: Equivalence, R>(
        &mut self,
        columns: usize,
        send: &[T],
        receive: &mut [T],
        work: impl FnOnce(&mut InFlight) -> R,
    ) -> R {
        assert_eq!(send.len(), self.plan.sent_rows() * columns, "send buffer");
        assert_eq!(receive.len(), self.plan.received_rows() * columns, "receive buffer");
        self.exchange(Direction::Out, columns, send, receive, work)
    }

    /// Sends the halo back to the owners of its rows, and fills `receive` with what the halos of
    /// the neighbours hold for rows of this rank, in [`HaloPlan::send_order`].
    ///
    /// # Panics
    /// If the buffers do not fit the plan (a bug of the caller).
    pub fn run_back<T: Equivalence>(&mut self, columns: usize, halo: &[T], receive: &mut [T]) {
        assert_eq!(halo.len(), self.plan.received_rows() * columns, "halo to send back");
        assert_eq!(receive.len(), self.plan.sent_rows() * columns, "receive buffer");
        self.exchange(Direction::Back, columns, halo, receive, |_| ());
    }

    /// Standard sections 3.7.2 (`MPI_Isend`, `MPI_Irecv`) and 3.7.5 (`MPI_Waitall`): one message
    /// per neighbour carries all columns; where there is nothing to carry, there is no message.
    fn exchange<T: Equivalence, R>(
        &mut self,
        direction: Direction,
        columns: usize,
        send: &[T],
        receive: &mut [T],
        work: impl FnOnce(&mut InFlight) -> R,
    ) -> R {
        self.requests.clear();
        // The buffers are borrowed until this guard has waited, whatever `work` does.
        let mut flight = InFlight { requests: &mut self.requests };
        let Some(comm) = self.world.comm() else { return work(&mut flight) };
        let timer = profile::start();
        let (comm, datatype) = (comm.as_raw(), T::equivalent_datatype().as_raw());
        let tag = if direction == Direction::Out { self.tags.out } else { self.tags.back };
        let lines = || {
            self.plan.lines().map(|(rank, packed, halo)| {
                let (from, to) =
                    if direction == Direction::Out { (packed, halo) } else { (halo, packed) };
                let values = |rows: Range<usize>| rows.start * columns..rows.end * columns;
                (rank as c_int, values(from), values(to))
            })
        };
        for (rank, _, to) in lines().filter(|(_, _, to)| !to.is_empty()) {
            let rows = &mut receive[to];
            // SAFETY: `rows` is a live, exclusive slice of `rows.len()` values of `datatype`; it
            // stays borrowed by this function until `flight` has waited for the request.
            flight.post(|request| unsafe {
                let to = rows.as_mut_ptr().cast::<c_void>();
                ffi::MPI_Irecv(to, count(rows), datatype, rank, tag, comm, request)
            });
        }
        let mut messages = 0;
        for (rank, from, _) in lines().filter(|(_, from, _)| !from.is_empty()) {
            let rows = &send[from];
            messages += 1;
            // SAFETY: `rows` is live and shared until `flight` has waited; MPI only reads it.
            flight.post(|request| unsafe {
                let from = rows.as_ptr().cast::<c_void>();
                ffi::MPI_Isend(from, count(rows), datatype, rank, tag, comm, request)
            });
        }
        profile::stop(Phase::HaloPost, timer, 0, 0);
        let result = work(&mut flight);
        let timer = profile::start();
        drop(flight);
        profile::stop(Phase::HaloWait, timer, std::mem::size_of_val(send) as u64, messages);
        result
    }
}

/// MPI counts are 32-bit.
fn count<T>(rows: &[T]) -> c_int {
    c_int::try_from(rows.len()).expect("a halo message has more than 2^31 values: use more ranks")
}

/// Messages under way; dropping waits for them.
pub struct InFlight<'a> {
    requests: &'a mut Vec<ffi::MPI_Request>,
}

impl InFlight<'_> {
    /// Gives the MPI library a moment to move messages (section 3.7.5, `MPI_Testall`).
    pub fn progress(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let mut done = 0;
        // SAFETY: every handle was set by `post`; those of finished messages become null, which
        // later calls accept.
        unsafe {
            ffi::MPI_Testall(
                self.requests.len() as c_int,
                self.requests.as_mut_ptr(),
                &mut done,
                ffi::RSMPI_STATUSES_IGNORE,
            );
        }
    }

    /// MPI errors are fatal to the job (rsmpi keeps `MPI_ERRORS_ARE_FATAL`), so no code is checked.
    fn post(&mut self, start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) {
        // SAFETY: a handle set by MPI; the null handle is what MPI itself stores in done requests.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        start(&mut request);
        self.requests.push(request);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.requests.is_empty() {
            return; // a world of one may have no MPI at all
        }
        // SAFETY: every handle was set by `post`; statuses are not wanted.
        unsafe {
            ffi::MPI_Waitall(
                self.requests.len() as c_int,
                self.requests.as_mut_ptr(),
                ffi::RSMPI_STATUSES_IGNORE,
            );
        }
    }
}
