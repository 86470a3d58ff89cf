//! A graph divided among ranks: who owns which node, in which order, and who needs what of whom.
//!
//! Here: dividing with METIS ([`divide`]), the order of rows inside a part ([`order`]), the
//! [`Part`] a rank works on, the partition file of which a rank reads only its own part
//! ([`write()`], [`Part::read`], [`load_or_make`]), and the graph further around a part than its halo
//! ([`Overlap`]) with the exchange of values there ([`OverlapExchange`]). One part is the same path
//! as a thousand.

mod file;
mod lists;
mod metis;
pub mod order;
mod overlap;
mod overlap_exchange;

pub use file::{Loaded, default_path, load_or_make, write};
pub use lists::Lists;
pub use metis::{Balance, Options, divide};
pub use overlap::Overlap;
pub use overlap_exchange::OverlapExchange;

use crate::comm::halo::{HaloPlan, Neighbour};
use crate::error::{Error, Result};
use crate::graph::Graph;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// What one rank holds: its rows of the graph and the plan of its halo.
///
/// Local rows are numbered `0..interior` (no neighbour elsewhere), then `interior..owned`
/// (boundary), then the halo: rows of other ranks, grouped by their owner, in the owner's order.
/// The columns of the local CSR use the same numbers, so a block `[owned + halo, s]` is all a
/// layer needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// This part, equal to the rank that works on it.
    pub rank: usize,
    /// Number of parts.
    pub parts: usize,
    /// Nodes of the whole graph.
    pub nodes: usize,
    /// Rows `offset..offset + owned` of the new, contiguous numbering are this part's.
    pub offset: usize,
    /// Owned rows.
    pub owned: usize,
    /// Owned rows without a neighbour on another rank; they come first.
    pub interior: usize,
    /// Original node id of every local row, halo included.
    pub ids: Vec<u32>,
    /// Weighted degree in the whole graph of every local row, halo included.
    pub degree: Vec<f64>,
    /// Number of neighbours in the whole graph of every local row, halo included.
    pub neighbour_count: Vec<u32>,
    /// Row pointers of the owned rows. (Pointers, columns and weights are shared, so that an
    /// [`Overlap`] needs no copy of them.)
    pub indptr: Arc<Vec<u64>>,
    /// Local column of every entry.
    pub indices: Arc<Vec<u32>>,
    /// Weight of every entry, if the graph has weights.
    pub weights: Option<Arc<Vec<f64>>>,
    /// Which rows pass between this part and its neighbours.
    pub halo: Arc<HaloPlan>,
    /// How the rows are ordered.
    pub order: order::Order,
}

impl Part {
    /// Rows of other ranks this part needs.
    pub fn halo_rows(&self) -> usize {
        self.ids.len() - self.owned
    }

    /// Original ids of the owned rows.
    pub fn owned_ids(&self) -> &[u32] {
        &self.ids[..self.owned]
    }

    /// Entries of the owned rows in the adjacency matrix.
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// This part of the graph without the weights of its edges (`model.weighted = false`).
    pub fn without_weights(mut self) -> Self {
        self.weights = None;
        self.degree = self.neighbour_count.iter().map(|&count| f64::from(count)).collect();
        self
    }

    /// Verifies that a part read from a file cannot lead a kernel out of its arrays.
    fn check(&self) -> Result<()> {
        let rows = self.ids.len();
        let sane = self.rank < self.parts
            && self.interior <= self.owned
            && self.owned <= rows
            && self.degree.len() == rows
            && self.neighbour_count.len() == rows
            && self.indptr.len() == self.owned + 1
            && self.indptr[0] == 0
            && self.indptr[self.owned] as usize == self.indices.len()
            && self.indptr.windows(2).all(|w| w[0] <= w[1])
            && self.indices.iter().all(|&j| (j as usize) < rows)
            && self.indices[..self.indptr[self.interior] as usize]
                .iter()
                .all(|&j| (j as usize) < self.owned)
            && self.ids.iter().all(|&id| (id as usize) < self.nodes)
            && self.degree.iter().all(|d| d.is_finite() && *d > 0.0)
            && self.weights.as_ref().is_none_or(|w| w.len() == self.indices.len())
            && self.weights.iter().all(|weights| weights.iter().all(|w| w.is_finite() && *w > 0.0))
            && self.halo.received_rows() == self.halo_rows()
            && self.halo.neighbours.first().is_none_or(|n| n.receive.start == 0)
            && self.halo.neighbours.iter().all(|n| {
                n.rank < self.parts
                    && n.rank != self.rank
                    && n.send.iter().all(|&i| (i as usize) < self.owned)
            });
        if sane {
            Ok(())
        } else {
            Err(Error::Data(format!(
                "part {} is damaged: its arrays contradict each other",
                self.rank
            )))
        }
    }
}

/// How good a partition is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Quality {
    /// Number of parts.
    pub parts: usize,
    /// Edges between different parts.
    pub edge_cut: usize,
    /// Largest number of entries of a part over the mean (the work of a layer).
    pub imbalance: f64,
    /// Largest number of owned nodes over the mean.
    pub node_imbalance: f64,
    /// Largest halo of a part, in rows.
    pub halo_max: usize,
    /// All halo rows over all nodes.
    pub halo_share: f64,
    /// Largest number of neighbouring ranks.
    pub neighbours_max: usize,
    /// Mean number of neighbouring ranks.
    pub neighbours_mean: f64,
}

/// A graph with an owner for each node and an order of the rows inside each part.
pub struct Partition<'g> {
    graph: &'g Graph,
    owner: Vec<u32>,
    /// Nodes of each part in their local order.
    rows: Vec<Vec<u32>>,
    interior: Vec<usize>,
    /// Local row of every node on its owner.
    local: Vec<u32>,
    degree: Vec<f64>,
    order: order::Order,
}

impl<'g> Partition<'g> {
    /// Orders the rows of every part: interior before boundary, each in [`order::Order`].
    ///
    /// ```
    /// use dgmrf::{graph::EdgeList, partition::{order::Order, Partition}};
    /// // A path of four nodes, two on each of two ranks.
    /// let mut edges = EdgeList::unweighted();
    /// for i in 0..3 { edges.push(i, i + 1, 1.0); }
    /// let graph = edges.into_graph(4)?.0;
    /// let partition = Partition::new(&graph, vec![0, 0, 1, 1], 2, Order::Locality)?;
    /// let part = partition.part(0);
    /// assert_eq!((part.owned, part.interior, part.halo_rows()), (2, 1, 1));
    /// assert_eq!(part.ids, [0, 1, 2]); // interior, boundary, halo
    /// # Ok::<(), dgmrf::Error>(())
    /// ```
    pub fn new(
        graph: &'g Graph,
        owner: Vec<u32>,
        parts: usize,
        order: order::Order,
    ) -> Result<Self> {
        assert_eq!(owner.len(), graph.nodes(), "an owner for each node");
        let mut members = vec![Vec::new(); parts];
        for (i, &p) in owner.iter().enumerate() {
            members[p as usize].push(i as u32);
        }
        if let Some(empty) = members.iter().position(Vec::is_empty) {
            return Err(Error::Setting(format!(
                "{parts} parts of {} nodes: part {empty} would be empty; use fewer parts",
                graph.nodes()
            )));
        }
        let at_home = |i: u32| {
            let mut neighbours = graph.neighbours(i as usize).iter();
            neighbours.all(|&j| owner[j as usize] == owner[i as usize])
        };
        let ordered: Vec<(Vec<u32>, usize)> = members
            .into_par_iter()
            .map(|nodes| {
                let nodes = order::order(graph, &owner, nodes, order);
                let (mut rows, boundary): (Vec<u32>, Vec<u32>) =
                    nodes.into_iter().partition(|&i| at_home(i));
                let interior = rows.len();
                rows.extend(boundary);
                (rows, interior)
            })
            .collect();
        let (rows, interior): (Vec<_>, Vec<_>) = ordered.into_iter().unzip();
        let mut local = vec![0u32; graph.nodes()];
        for nodes in &rows {
            for (row, &i) in nodes.iter().enumerate() {
                local[i as usize] = row as u32;
            }
        }
        Ok(Partition { graph, owner, rows, interior, local, degree: graph.degrees(), order })
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.rows.len()
    }

    /// What the rank of this part will hold.
    pub fn part(&self, rank: usize) -> Part {
        let (graph, owner, local) = (self.graph, &self.owner, &self.local);
        let rows = &self.rows[rank];
        let owned = rows.len();
        let mine = rank as u32;
        // (owner, its row, node): sorted, this is the halo in the order the owners send it.
        let mut halo: Vec<(u32, u32, u32)> = Vec::new();
        let mut send: Vec<(u32, u32)> = Vec::new();
        for (row, &i) in rows.iter().enumerate().skip(self.interior[rank]) {
            for &j in graph.neighbours(i as usize) {
                let p = owner[j as usize];
                if p != mine {
                    halo.push((p, local[j as usize], j));
                    send.push((p, row as u32));
                }
            }
        }
        send.sort_unstable();
        send.dedup();
        halo.sort_unstable();
        halo.dedup();

        let mut ids = rows.clone();
        ids.extend(halo.iter().map(|&(_, _, j)| j));
        let degree = ids.iter().map(|&i| self.degree[i as usize]).collect();
        let count = |i: &u32| graph.neighbour_count(*i as usize) as u32;
        let neighbour_count = ids.iter().map(count).collect();
        let halo_row = |j: u32| {
            let key = (owner[j as usize], local[j as usize], j);
            let at = halo.binary_search(&key).expect("every outside neighbour is in the halo");
            (owned + at) as u32
        };
        let mut indptr = vec![0u64];
        let mut indices = Vec::new();
        let mut weights = graph.weights().map(|_| Vec::new());
        // Neighbours stay in the order of their original ids: sums over them are then the same, bit
        // for bit, however the graph is divided.
        for &i in rows {
            for (j, w) in graph.weighted_neighbours(i as usize) {
                let at_home = owner[j as usize] == mine;
                indices.push(if at_home { local[j as usize] } else { halo_row(j) });
                weights.iter_mut().for_each(|weights| weights.push(w));
            }
            indptr.push(indices.len() as u64);
        }
        let neighbours = neighbours(&halo, &send);
        Part {
            rank,
            parts: self.parts(),
            nodes: graph.nodes(),
            offset: self.rows[..rank].iter().map(Vec::len).sum(),
            owned,
            interior: self.interior[rank],
            ids,
            degree,
            neighbour_count,
            indptr: indptr.into(),
            indices: indices.into(),
            weights: weights.map(Arc::new),
            halo: Arc::new(HaloPlan { neighbours }),
            order: self.order,
        }
    }

    /// Edge cut, balance and halo sizes.
    pub fn quality(&self) -> Quality {
        let n = self.graph.nodes();
        let cut = |i: usize| {
            let mine = self.owner[i];
            self.graph.neighbours(i).iter().filter(|&&j| self.owner[j as usize] != mine).count()
        };
        let edge_cut = (0..n).map(cut).sum::<usize>() / 2;
        let parts = self.parts();
        let of_each = |f: &dyn Fn(usize) -> usize| (0..parts).map(f).collect::<Vec<_>>();
        let nodes = of_each(&|p| self.rows[p].len());
        let entries = of_each(&|p| {
            self.rows[p].iter().map(|&i| self.graph.neighbour_count(i as usize)).sum()
        });
        let (halos, neighbours): (Vec<_>, Vec<_>) = (0..parts).map(|p| self.halo_of(p)).unzip();
        let max_over_mean = |counts: &[usize]| {
            let mean = counts.iter().sum::<usize>() as f64 / parts as f64;
            counts.iter().copied().max().unwrap_or(0) as f64 / mean.max(f64::MIN_POSITIVE)
        };
        Quality {
            parts,
            edge_cut,
            imbalance: max_over_mean(&entries),
            node_imbalance: max_over_mean(&nodes),
            halo_max: halos.iter().copied().max().unwrap_or(0),
            halo_share: halos.iter().sum::<usize>() as f64 / n as f64,
            neighbours_max: neighbours.iter().copied().max().unwrap_or(0),
            neighbours_mean: neighbours.iter().sum::<usize>() as f64 / parts as f64,
        }
    }

    /// Halo rows and neighbouring ranks of a part.
    fn halo_of(&self, part: usize) -> (usize, usize) {
        let mut outside: Vec<u32> = self.rows[part][self.interior[part]..]
            .iter()
            .flat_map(|&i| self.graph.neighbours(i as usize))
            .copied()
            .filter(|&j| self.owner[j as usize] != part as u32)
            .collect();
        outside.sort_unstable();
        outside.dedup();
        let mut ranks: Vec<u32> = outside.iter().map(|&j| self.owner[j as usize]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        (outside.len(), ranks.len())
    }
}

/// Groups the sorted halo `(rank, row, node)` and send rows `(rank, row)` by rank. The graph is
/// symmetric, so whoever sends also receives.
fn neighbours(halo: &[(u32, u32, u32)], send: &[(u32, u32)]) -> Vec<Neighbour> {
    let mut list = Vec::new();
    let (mut received, mut sent) = (0, 0);
    while received < halo.len() {
        let rank = halo[received].0;
        let last = received + halo[received..].partition_point(|h| h.0 == rank);
        let last_sent = sent + send[sent..].partition_point(|s| s.0 == rank);
        list.push(Neighbour {
            rank: rank as usize,
            send: send[sent..last_sent].iter().map(|s| s.1).collect(),
            receive: Range { start: received, end: last },
        });
        (received, sent) = (last, last_sent);
    }
    list
}
