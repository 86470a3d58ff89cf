//! Node values between rank 0, which has them by original node id, and the ranks that own them;
//! lists from every rank to every other.

use super::World;
use crate::error::{Error, Result};
use mpi::datatype::{Partition, PartitionMut};
use mpi::topology::Process;
use mpi::traits::*;

/// Rows per message: bounds the memory of rank 0 and keeps counts far below 2^31.
const SLAB: usize = 1 << 18;

impl World {
    /// Collects rows on rank 0, in the order of their original ids.
    ///
    /// Every rank gives its owned `ids` and a row of `columns` values for each; together the ids
    /// must be `0..nodes`, each once (only their number is checked). Other ranks than 0 get `None`,
    /// and an error only shows on rank 0: pass the result through [`World::agree`].
    pub fn gather_rows(
        &self,
        ids: &[u32],
        values: &[f64],
        columns: usize,
        nodes: usize,
    ) -> Result<Option<Vec<f64>>> {
        assert!(columns > 0 && values.len() == ids.len() * columns, "one row per id");
        if !self.is_root() {
            let root = self.comm().expect("other ranks").process_at_rank(0);
            root.send(&(ids.len() as u64));
            for (ids, rows) in ids.chunks(SLAB).zip(values.chunks(SLAB * columns)) {
                root.send(ids);
                root.send(rows);
            }
            return Ok(None);
        }
        let mut all = vec![0.0; nodes * columns];
        let mut missing = nodes as i64;
        let mut place = |ids: &[u32], rows: &[f64]| -> Result<()> {
            for (&id, row) in ids.iter().zip(rows.chunks_exact(columns)) {
                let at = id as usize * columns;
                let Some(slot) = all.get_mut(at..at + columns) else {
                    return Err(Error::Data(format!("node id {id} outside 0..{nodes}")));
                };
                slot.copy_from_slice(row);
            }
            missing -= ids.len() as i64;
            Ok(())
        };
        // Receive everything even after an error: the senders must not be left waiting.
        let mut outcome = place(ids, values);
        self.serve(columns, |owner, ids, rows| {
            owner.receive_into(&mut *rows);
            let before = std::mem::replace(&mut outcome, Ok(()));
            outcome = before.and_then(|()| place(ids, rows));
        });
        outcome?;
        match missing {
            0 => Ok(Some(all)),
            _ => Err(Error::Data(format!(
                "the ranks own {} nodes together, the graph has {nodes}",
                nodes as i64 - missing
            ))),
        }
    }

    /// Gives every rank the rows of its `ids` out of `all`, which only rank 0 needs to have.
    ///
    /// # Panics
    /// If rank 0 has no values or an id is outside of them (a bug of the caller).
    pub fn scatter_rows(&self, ids: &[u32], all: Option<&[f64]>, columns: usize) -> Vec<f64> {
        assert!(columns > 0, "rows have values");
        let mut mine = vec![0.0; ids.len() * columns];
        if !self.is_root() {
            let root = self.comm().expect("other ranks").process_at_rank(0);
            root.send(&(ids.len() as u64));
            for (ids, rows) in ids.chunks(SLAB).zip(mine.chunks_mut(SLAB * columns)) {
                root.send(ids);
                root.receive_into(rows);
            }
            return mine;
        }
        let all = all.expect("rank 0 has the values");
        let pick = |ids: &[u32], rows: &mut [f64]| {
            for (&id, row) in ids.iter().zip(rows.chunks_exact_mut(columns)) {
                row.copy_from_slice(&all[id as usize * columns..][..columns]);
            }
        };
        pick(ids, &mut mine);
        self.serve(columns, |owner, ids, rows| {
            pick(ids, rows);
            owner.send(&*rows);
        });
        mine
    }

    /// Gives each rank its list of values, and returns what the ranks gave to this one, in their
    /// order (standard section 5.8, `MPI_Alltoallv`). Time and memory grow with the number of
    /// ranks: this is for setting things up. What is repeated passes between neighbours
    /// ([`HaloExchange`](crate::comm::halo::HaloExchange)).
    pub fn all_to_all<T: Equivalence + Copy + Default>(&self, lists: Vec<Vec<T>>) -> Vec<Vec<T>> {
        assert_eq!(lists.len(), self.size(), "a list for each rank");
        let Some(comm) = self.comm() else { return lists };
        let count = |n: usize| i32::try_from(n).expect("more than 2^31 values: use more ranks");
        let offsets = |counts: &[i32]| -> Vec<i32> {
            let before = |sum: &mut i64, &n: &i32| {
                *sum += i64::from(n);
                Some(count((*sum - i64::from(n)) as usize))
            };
            counts.iter().scan(0, before).collect()
        };
        let sent: Vec<i32> = lists.iter().map(|list| count(list.len())).collect();
        let mut received = vec![0i32; self.size()];
        comm.all_to_all_into(&sent[..], &mut received[..]);
        let send = lists.concat();
        drop(lists);
        let total: usize = received.iter().map(|&n| n as usize).sum();
        let mut values = vec![T::default(); count(total) as usize];
        let send = Partition::new(&send[..], &sent[..], offsets(&sent));
        let mut receive = PartitionMut::new(&mut values[..], &received[..], offsets(&received));
        comm.all_to_all_varcount_into(&send, &mut receive);
        let mut rest = &values[..];
        let mut split = |&n: &i32| {
            let (list, after) = rest.split_at(n as usize);
            rest = after;
            list.to_vec()
        };
        received.iter().map(&mut split).collect()
    }

    /// On rank 0: takes the ids of every other rank, slab by slab, and lets `answer` exchange the
    /// rows of each slab with their owner.
    fn serve(&self, columns: usize, mut answer: impl FnMut(&Process, &[u32], &mut [f64])) {
        let Some(comm) = self.comm() else { return };
        let (mut ids, mut rows) = (vec![0u32; SLAB], vec![0.0; SLAB * columns]);
        for rank in 1..self.size() {
            let owner = comm.process_at_rank(rank as i32);
            let (mut left, _) = owner.receive::<u64>();
            while left > 0 {
                let count = SLAB.min(left as usize);
                owner.receive_into(&mut ids[..count]);
                answer(&owner, &ids[..count], &mut rows[..count * columns]);
                left -= count as u64;
            }
        }
    }
}
