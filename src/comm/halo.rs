//! Exchange of boundary rows with neighbouring ranks, overlapped with work.

#![allow(unsafe_code)] // messages in flight: MPI has no safe call that fills part of a block

use super::World;
use crate::error::{Error, Result};
use crate::profile::{self, Phase};
use mpi::ffi;
use mpi::traits::*;
use std::ops::Range;
use std::os::raw::{c_int, c_void};
use std::rc::Rc;

/// Who sends which rows to whom. Rows are local row numbers.
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
    /// Owned rows the neighbour needs, ascending: its halo has them in this order.
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
}

/// Runs the exchanges of one plan; holds the request handles so that no exchange allocates.
pub struct HaloExchange {
    world: Rc<World>,
    plan: Rc<HaloPlan>,
    requests: Vec<ffi::MPI_Request>,
}

/// All exchanges are matched by order, so one tag is enough.
const TAG: c_int = 11;

impl HaloExchange {
    /// An exchange of the plan among the ranks of the world.
    pub fn new(world: Rc<World>, plan: Rc<HaloPlan>) -> Result<Self> {
        if let Some(n) = plan.neighbours.iter().find(|n| n.rank >= world.size()) {
            return Err(Error::Setting(format!(
                "the partition names rank {}, but there are only {} ranks",
                n.rank,
                world.size()
            )));
        }
        let requests = Vec::with_capacity(2 * plan.neighbours.len());
        Ok(HaloExchange { world, plan, requests })
    }

    /// The plan.
    pub fn plan(&self) -> &HaloPlan {
        &self.plan
    }

    /// Sends the packed rows (`columns` values each, in [`HaloPlan::send_order`]), fills `receive`
    /// with the halo, and does `work` while the messages travel. Most MPI libraries move large
    /// messages only while they are called: `work` should call [`InFlight::progress`] now and then.
    ///
    /// Standard sections 3.7.2 (`MPI_Isend`, `MPI_Irecv`) and 3.7.5 (`MPI_Waitall`): one message
    /// per neighbour and direction carries all columns.
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
        self.requests.clear();
        // The buffers are borrowed until this guard has waited, whatever `work` does.
        let mut flight = InFlight { requests: &mut self.requests };
        let Some(comm) = self.world.comm() else { return work(&mut flight) };
        let timer = profile::start();
        let (comm, datatype) = (comm.as_raw(), T::equivalent_datatype().as_raw());
        for n in &self.plan.neighbours {
            let rows = &mut receive[n.receive.start * columns..n.receive.end * columns];
            // SAFETY: `rows` is a live, exclusive slice of `rows.len()` values of `datatype`; it
            // stays borrowed by this function until `flight` has waited for the request.
            flight.post(|request| unsafe {
                let to = rows.as_mut_ptr().cast::<c_void>();
                ffi::MPI_Irecv(to, count(rows), datatype, n.rank as c_int, TAG, comm, request)
            });
        }
        let mut offset = 0;
        for n in &self.plan.neighbours {
            let rows = &send[offset..offset + n.send.len() * columns];
            offset += rows.len();
            // SAFETY: `rows` is live and shared until `flight` has waited; MPI only reads it.
            flight.post(|request| unsafe {
                let from = rows.as_ptr().cast::<c_void>();
                ffi::MPI_Isend(from, count(rows), datatype, n.rank as c_int, TAG, comm, request)
            });
        }
        profile::stop(Phase::HaloPost, timer, 0, 0);
        let result = work(&mut flight);
        let timer = profile::start();
        drop(flight);
        let bytes = std::mem::size_of_val(send) as u64;
        profile::stop(Phase::HaloWait, timer, bytes, self.plan.neighbours.len() as u64);
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
