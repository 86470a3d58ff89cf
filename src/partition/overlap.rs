//! The graph around the part of a rank, further than the halo reaches.
//!
//! A layer needs the next neighbours of a rank's rows only, and the engines exchange those. What
//! is made from the *entries* of `G = G_L ... G_1` needs more: rings of nodes around the part, with
//! their edges.

use super::Part;
use super::lists::{Collected, Entries, Lists};
use crate::comm::World;
use crate::comm::halo::{HaloPlan, Neighbour};
use std::collections::HashMap;
use std::sync::Arc;

/// Owned rows, then rings 1, 2, ... of other ranks' nodes, nearest first.
pub struct Overlap {
    /// Rows of this rank.
    pub owned: usize,
    /// Rows whose edges are all here: the owned ones and the rings up to the depth asked for. The
    /// rows after them are only named as neighbours.
    pub complete: usize,
    /// Number of rows up to the end of each ring; ring 0 is the owned rows.
    pub rings: Vec<usize>,
    /// Original ids of all rows.
    pub ids: Vec<u32>,
    /// Weighted degrees of all rows.
    pub degree: Vec<f64>,
    own: Entries,
    beyond: Entries,
    /// This rank, and the ranks of the rows after the owned ones.
    rank: u32,
    owners: Vec<u32>,
    /// What passes between ranks when values of the rings are fetched, and where each row that is
    /// received stands among the rows after the owned ones.
    pub(super) plan: Arc<HaloPlan>,
    pub(super) places: Arc<Vec<u32>>,
}

/// A row of the whole graph: who owns it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GlobalRow {
    rank: u32,
    row: u32,
}

/// Collects the overlap row by row.
struct Builder<'a> {
    part: &'a Part,
    /// What the rows beyond the owned ones are in the whole graph, and back.
    global: Vec<GlobalRow>,
    rows: HashMap<GlobalRow, u32>,
    /// Edges of the rows beyond the owned ones.
    beyond: Collected,
    overlap: Overlap,
}

impl Overlap {
    /// The part with `depth` complete rings around it; values are wanted for the first
    /// `fetched` of them ([`OverlapExchange`](super::OverlapExchange)). All ranks call it: each
    /// ring is collected by messages between all ranks, in time and memory that grow with their
    /// number. Exchanges of values pass between neighbours only.
    pub fn collect(world: &World, part: &Part, depth: usize, fetched: usize) -> Self {
        Self::collect_within(world, part, depth, fetched, usize::MAX).expect("no limit")
    }

    /// What [`Overlap::collect`] gives, or nothing on all ranks where one of them would hold more
    /// rows than its `limit`: on graphs with hubs, a few hops may be the whole graph.
    pub fn collect_within(
        world: &World,
        part: &Part,
        depth: usize,
        fetched: usize,
        limit: usize,
    ) -> Option<Self> {
        let mut builder = Builder::new(part);
        let mut ring = 0..part.owned;
        for level in 0..=depth {
            if level == 0 {
                builder.own_edges(world);
            } else {
                builder.fetch_edges(world, ring);
            }
            let end = builder.overlap.ids.len();
            ring = builder.overlap.complete..end;
            builder.overlap.rings.push(end);
            if world.any(end > limit) {
                return None;
            }
        }
        Some(builder.finish(world, fetched))
    }

    /// The whole graph on rank 0, rows in the order of ids, without any ring; nothing elsewhere.
    /// All ranks call it.
    pub fn gather(world: &World, part: &Part) -> Option<Self> {
        let to_root = |list: Vec<u32>| {
            let mut lists = vec![Vec::new(); world.size()];
            lists[0] = list;
            world.all_to_all(lists)
        };
        let row = |i: usize| part.indptr[i] as usize..part.indptr[i + 1] as usize;
        let names = to_root(
            (0..part.owned)
                .flat_map(|i| {
                    let neighbours = part.indices[row(i)].iter().map(|&j| part.ids[j as usize]);
                    [part.ids[i], row(i).len() as u32].into_iter().chain(neighbours)
                })
                .collect(),
        );
        let mut weights = vec![Vec::new(); world.size()];
        weights[0] =
            part.weights.as_ref().map_or_else(|| vec![1.0; part.entries()], |w| w.to_vec());
        let weights = world.all_to_all(weights);
        if !world.is_root() {
            return None;
        }
        // Where each node's row stands in what the ranks have sent.
        let mut places = vec![(0, 0, 0, 0); part.nodes];
        for (rank, names) in names.iter().enumerate() {
            let (mut at, mut edge) = (0, 0);
            while at < names.len() {
                let count = names[at + 1] as usize;
                places[names[at] as usize] = (rank, at + 2, edge, count);
                (at, edge) = (at + 2 + count, edge + count);
            }
        }
        let mut whole = Overlap {
            owned: part.nodes,
            complete: part.nodes,
            rings: vec![part.nodes],
            ids: (0..part.nodes as u32).collect(),
            rank: 0,
            owners: Vec::new(),
            degree: Vec::with_capacity(part.nodes),
            own: Entries::default(),
            beyond: Entries::default(),
            plan: Arc::default(),
            places: Arc::default(),
        };
        let mut rows = Collected::default();
        for (rank, at, edge, count) in places {
            rows.indices.extend_from_slice(&names[rank][at..at + count]);
            let weights = &weights[rank][edge..edge + count];
            rows.weights.extend_from_slice(weights);
            rows.close();
            whole.degree.push(weights.iter().sum());
        }
        whole.own = rows.into();
        Some(whole)
    }

    /// Edges of all complete rows.
    pub fn lists(&self) -> Lists<'_> {
        Lists { owned: self.owned, own: self.own.list(), beyond: self.beyond.list() }
    }

    /// Neighbours of a complete row and the weights of the edges, one by one.
    pub fn neighbours(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let (neighbours, weights) = self.lists().row(row);
        let weight = |k: usize| weights.get(k).copied().unwrap_or(1.0);
        neighbours.iter().enumerate().map(move |(k, &j)| (j as usize, weight(k)))
    }

    /// Whether a row beyond the owned ones belongs to a later rank than this one.
    pub fn is_of_later_rank(&self, row: usize) -> bool {
        self.owners[row - self.owned] > self.rank
    }
}

impl<'a> Builder<'a> {
    fn new(part: &'a Part) -> Self {
        let overlap = Overlap {
            owned: part.owned,
            complete: 0,
            rings: vec![part.owned],
            ids: part.ids[..part.owned].to_vec(),
            rank: part.rank as u32,
            owners: Vec::new(),
            degree: part.degree[..part.owned].to_vec(),
            own: Entries {
                indptr: part.indptr.clone(),
                indices: part.indices.clone(),
                weights: part.weights.clone(),
            },
            beyond: Entries::default(),
            plan: Arc::default(),
            places: Arc::default(),
        };
        let beyond = Collected::default();
        Builder { part, global: Vec::new(), rows: HashMap::new(), beyond, overlap }
    }

    /// The halo rows in the whole graph: their owners send the numbers of their rows.
    fn halo_rows(&self, world: &World) -> Vec<GlobalRow> {
        let mut lists = vec![Vec::new(); world.size()];
        for n in &self.part.halo.neighbours {
            lists[n.rank] = n.send.clone();
        }
        let numbers = world.all_to_all(lists);
        let neighbours = self.part.halo.neighbours.iter();
        let rows = |n: &Neighbour| {
            let rank = n.rank as u32;
            numbers[n.rank].iter().map(move |&row| GlobalRow { rank, row })
        };
        neighbours.flat_map(rows).collect()
    }

    /// The row of a node here, new if it has none yet.
    fn row(&mut self, global: GlobalRow, id: u32, degree: f64) -> u32 {
        if global.rank as usize == self.part.rank {
            return global.row;
        }
        let v = &mut self.overlap;
        *self.rows.entry(global).or_insert_with(|| {
            self.global.push(global);
            v.ids.push(id);
            v.degree.push(degree);
            v.ids.len() as u32 - 1
        })
    }

    fn own_edges(&mut self, world: &World) {
        let part = self.part;
        let halo = self.halo_rows(world);
        for (k, &global) in halo.iter().enumerate() {
            self.row(global, part.ids[part.owned + k], part.degree[part.owned + k]);
        }
        // The halo is the first ring, in the same order: columns keep their numbers.
        self.overlap.complete = part.owned;
    }

    /// Asks the owners of a ring for the edges of its rows.
    fn fetch_edges(&mut self, world: &World, ring: std::ops::Range<usize>) {
        let part = self.part;
        let mut wanted = vec![Vec::new(); world.size()];
        for row in ring.clone() {
            let GlobalRow { rank, row: number } = self.global[row - part.owned];
            wanted[rank as usize].push(number);
        }
        let asked = world.all_to_all(wanted);
        let halo = self.halo_rows(world);
        // For each row: the number of neighbours, then (rank, row there, id) of each; and beside
        // it (degree, weight) of each.
        let (mut names, mut numbers) = (Vec::new(), Vec::new());
        for rows in asked {
            let (mut name, mut number) = (Vec::new(), Vec::new());
            for i in rows {
                let range = part.indptr[i as usize] as usize..part.indptr[i as usize + 1] as usize;
                name.push(range.len() as u32);
                for k in range {
                    let j = part.indices[k] as usize;
                    let global = if j < part.owned {
                        GlobalRow { rank: part.rank as u32, row: j as u32 }
                    } else {
                        halo[j - part.owned]
                    };
                    name.extend([global.rank, global.row, part.ids[j]]);
                    number.extend([part.degree[j], part.weights.as_ref().map_or(1.0, |w| w[k])]);
                }
            }
            names.push(name);
            numbers.push(number);
        }
        let (names, numbers) = (world.all_to_all(names), world.all_to_all(numbers));
        let mut cursors = vec![(0, 0); world.size()];
        for row in ring {
            let rank = self.global[row - part.owned].rank as usize;
            let (mut name, mut number) = cursors[rank];
            let count = names[rank][name] as usize;
            name += 1;
            for _ in 0..count {
                let [owner, there, id] = names[rank][name..name + 3] else { unreachable!() };
                let (degree, weight) = (numbers[rank][number], numbers[rank][number + 1]);
                let column = self.row(GlobalRow { rank: owner, row: there }, id, degree);
                self.beyond.indices.push(column);
                self.beyond.weights.push(weight);
                (name, number) = (name + 3, number + 2);
            }
            cursors[rank] = (name, number);
            self.beyond.close();
            self.overlap.complete += 1;
        }
    }

    /// Agrees with the owners who sends which rows when values are fetched.
    fn finish(self, world: &World, fetched: usize) -> Overlap {
        let mut overlap = self.overlap;
        overlap.beyond = self.beyond.into();
        overlap.owners = self.global.iter().map(|global| global.rank).collect();
        let mut wanted = vec![Vec::new(); world.size()];
        let mut asked = vec![Vec::new(); world.size()];
        for row in overlap.owned..overlap.rings[fetched] {
            let GlobalRow { rank, row: number } = self.global[row - overlap.owned];
            wanted[rank as usize].push(number);
            asked[rank as usize].push((row - overlap.owned) as u32);
        }
        let (mut places, mut neighbours) = (Vec::new(), Vec::new());
        for (rank, (send, asked)) in world.all_to_all(wanted).into_iter().zip(asked).enumerate() {
            if send.is_empty() && asked.is_empty() {
                continue;
            }
            let start = places.len();
            places.extend(asked);
            neighbours.push(Neighbour { rank, send, receive: start..places.len() });
        }
        (overlap.plan, overlap.places) = (Arc::new(HaloPlan { neighbours }), Arc::new(places));
        overlap
    }
}
