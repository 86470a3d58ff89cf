//! Overlapping blocks of a matrix, each solved exactly: additive Schwarz.
//!
//! ```text
//! M⁻¹ = Σ_k R_kᵀ (R_k A R_kᵀ)⁻¹ R_k
//! ```
//!
//! with `R_k` the restriction to block `k`. The blocks are METIS parts of each rank's rows, grown a
//! few hops into their overlap (also into rows of other ranks), and every row is in one of them at
//! least, so `M` is positive definite. Where a matrix is far from its diagonal (the precision of a
//! field where nothing is observed), what happens at a node depends on the nodes within the reach
//! of the field only, and that is a matter of hops: blocks that overlap by as much leave little to
//! be done.
//!
//! One block at a time is assembled, factorised, and its factor stored in single precision
//! ([`Panels`]): a rank never holds more of the matrix than the blocks that its threads work on. A
//! block of the whole graph is a solution rather than a preconditioner, and keeps double precision.
//!
//! No coarse level: fields of layers with `ρ` near −1 reach further than blocks overlap, and then
//! iterations grow with `1/(1 + ρ)`, from a much lower level than those of the diagonal.

use super::Precondition;
use crate::comm::World;
use crate::error::Result;
use crate::field::Engine;
use crate::graph::Graph;
use crate::linalg::{Gram, Panels, Pattern, Scratch, SparseColumns, Store};
use crate::memory;
use crate::partition::{self, Balance, Overlap, OverlapExchange, Part};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A matrix `BᵀB + diag(w)`, `w >= 0`, on the nodes of a graph that can be assembled block by
/// block: column `i` of the sparse `B` has entries within some hops of node `i` only.
pub trait Assemble<E: Engine> {
    /// The matrix on the rows of an overlap.
    type Assembly<'a>: Assembly
    where
        Self: 'a;

    /// Hops that a column of `B` reaches.
    fn reach(&self) -> usize;

    /// Makes the columns of `B` ready for the rows of an overlap. All ranks call it.
    fn assembly<'a>(&'a self, engine: &E, overlap: &'a Overlap) -> Self::Assembly<'a>;
}

/// Entries of a matrix `BᵀB + diag(w)` on the rows of an overlap; shared by threads.
pub trait Assembly: Sync {
    /// What a thread needs to compute columns.
    type Walk<'w>
    where
        Self: 'w;

    /// The state for one thread.
    fn walk(&self) -> Self::Walk<'_>;

    /// Columns of `B` for some rows; nothing if they have more than `limit` entries.
    fn columns(
        &self,
        walk: &mut Self::Walk<'_>,
        members: &[u32],
        limit: usize,
    ) -> Option<SparseColumns>;

    /// `w` of a row.
    fn diagonal(&self, row: usize) -> f64;
}

/// How blocks are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Nodes of a block before it grows.
    pub nodes: usize,
    /// Hops that it grows; when absent, 6 where `B` reaches one hop and 2 more for each further
    /// one, up to 10.
    pub overlap: Option<usize>,
    /// Entries at most: of `B` for one block, and of all factors of a rank together, where those in
    /// double precision count twice.
    pub entries: [usize; 2],
}

impl Default for Options {
    fn default() -> Self {
        // 0.5 GB for B (twice) while a block is made, 2 GB for the factors.
        Options { nodes: 4000, overlap: None, entries: [20_000_000, 500_000_000] }
    }
}

/// Why there are no blocks for a graph, a matrix and this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Blocks would grow to cover much of the graph.
    #[error("a few hops reach too much of the graph")]
    Hops,
    /// The rows of a rank have no parts.
    #[error("METIS cannot divide the graph")]
    Parts,
    /// Blocks have too many entries.
    #[error("the layers reach too much of the graph")]
    Entries,
    /// Factors have too many entries.
    #[error("its factors take too much memory")]
    Memory,
    /// A block has no factor.
    #[error("a block is singular in double precision")]
    Singular,
}

/// The blocks of a rank.
pub struct Schwarz {
    overlap: Overlap,
    blocks: Vec<Block>,
    /// Entries of `B` at most, for one block.
    limit: usize,
    exchange: OverlapExchange,
    /// Values of the rings: those that the blocks take, then those that they give.
    outer: Vec<f64>,
    /// Room to solve in, one for each task.
    scratch: Vec<Scratch>,
}

struct Block {
    /// Rows of the overlap.
    members: Vec<u32>,
    factor: Panels,
    /// Right-hand sides, then solutions.
    x: Vec<f64>,
}

impl Schwarz {
    /// Divides, assembles and factorises. All ranks call it and get the same answer.
    pub fn new<E: Engine, A: Assemble<E>>(
        engine: &E,
        matrix: &A,
        options: &Options,
    ) -> Result<Self, Refusal> {
        let (world, part) = (engine.world(), engine.part());
        let hops = options.overlap.unwrap_or((4 + 2 * matrix.reach()).min(10));
        // More than a few times its own rows: then these hops are no overlap any more.
        let most = 4 * part.owned + 50_000;
        // `B` has rows `reach` hops around a column: the edges of all but the last are needed.
        let depth = hops + matrix.reach() - 1;
        let overlap =
            Overlap::collect_within(world, part, depth, hops, most).ok_or(Refusal::Hops)?;
        let sets = sets(part, &overlap, options.nodes, hops);
        let mut sets = together(world, sets.ok(), Refusal::Parts)?;
        let [limit, entries] = options.entries;
        let room = (memory::share(world, 0.25) / 4.0).min(entries as f64) as usize;
        let assembly = matrix.assembly(engine, &overlap);
        let maker = Maker::new(&assembly, part.nodes, [limit, room]);
        let share = sets.len().div_ceil(rayon::current_num_threads()).max(1);
        let made: Vec<Result<Block, Refusal>> = sets
            .par_chunks_mut(share)
            .flat_map_iter(|sets| {
                let (mut walk, maker) = (assembly.walk(), &maker);
                sets.iter_mut().map(move |set| {
                    let members = std::mem::take(set);
                    let factor = maker.factor(&mut walk, &members)?;
                    Ok(Block { members, factor, x: Vec::new() })
                })
            })
            .collect();
        // The first of these that any block of any rank has met.
        let met = |why: &Refusal| made.iter().any(|block| block.as_ref().err() == Some(why));
        for why in [Refusal::Entries, Refusal::Memory, Refusal::Singular] {
            if world.any(met(&why)) {
                return Err(why);
            }
        }
        let blocks = made.into_iter().collect::<Result<_, _>>()?;
        drop(assembly);
        let exchange = OverlapExchange::new(world, &overlap);
        Ok(Schwarz { overlap, blocks, limit, exchange, outer: Vec::new(), scratch: Vec::new() })
    }

    /// Room for blocks of so many columns.
    fn fit(&mut self, columns: usize) {
        for block in &mut self.blocks {
            block.x.resize(block.members.len() * columns, 0.0);
        }
        self.outer.resize(self.exchange.ghosts() * columns, 0.0);
        self.scratch.resize_with(rayon::current_num_threads(), Scratch::default);
    }
}

/// Products that the entries of all blocks may take: some ten seconds on one core. On graphs with
/// hubs, `GᵀG` of five layers is full.
const WORK: usize = 20_000_000_000;

/// Makes factors of blocks, as long as they stay within limits. All threads count together; sums of
/// counts do not depend on which thread comes first, so neither does a refusal.
struct Maker<'a, A> {
    assembly: &'a A,
    /// Nodes of the whole graph.
    nodes: usize,
    /// Entries at most: of `B` for one block, and of all factors.
    limits: [usize; 2],
    /// Products and entries so far.
    work: AtomicUsize,
    entries: AtomicUsize,
}

impl<'a, A: Assembly> Maker<'a, A> {
    fn new(assembly: &'a A, nodes: usize, limits: [usize; 2]) -> Self {
        let [work, entries] = [0; 2].map(AtomicUsize::new);
        Maker { assembly, nodes, limits, work, entries }
    }

    fn factor(&self, walk: &mut A::Walk<'_>, members: &[u32]) -> Result<Panels, Refusal> {
        let exceeds = |sum: &AtomicUsize, more: usize, limit: usize| {
            sum.fetch_add(more, Relaxed).saturating_add(more) > limit
        };
        let [limit, room] = self.limits;
        if exceeds(&self.work, 0, WORK) {
            return Err(Refusal::Entries);
        }
        let columns = self.assembly.columns(walk, members, limit).ok_or(Refusal::Entries)?;
        let gram = Gram::new(columns);
        if exceeds(&self.work, gram.work(), WORK) {
            return Err(Refusal::Entries);
        }
        // After the work is known: a matrix that reaches too far is refused for its reach, whatever
        // memory is left.
        if exceeds(&self.entries, 0, room) {
            return Err(Refusal::Memory);
        }
        let weight: Vec<f64> =
            members.iter().map(|&i| self.assembly.diagonal(i as usize)).collect();
        let matrix = gram.lower(&weight);
        drop(gram);
        let pattern = Pattern::to_solve(&matrix).map_err(|_| Refusal::Memory)?;
        let (store, size) =
            if members.len() == self.nodes { (Store::Double, 2) } else { (Store::Single, 1) };
        if exceeds(&self.entries, size * Panels::entries(&pattern), room) {
            return Err(Refusal::Memory);
        }
        let factor = pattern.factorise(&matrix).map_err(|_| Refusal::Singular)?;
        Panels::new(&factor, store).map_err(|_| Refusal::Singular)
    }
}

impl<E: Engine> Precondition<E> for Schwarz {
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        let columns = engine.columns(r);
        self.fit(columns);
        let owned = self.overlap.owned;
        let mut inner = engine.download(r);
        let Schwarz { exchange, blocks, outer, scratch, .. } = self;
        exchange.fetch(&inner, columns, outer);
        let share = blocks.len().div_ceil(scratch.len());
        let tasks = blocks.par_chunks_mut(share).zip(scratch);
        tasks.for_each(|(blocks, scratch)| {
            for block in blocks {
                for (&j, x) in block.members.iter().zip(block.x.chunks_exact_mut(columns)) {
                    x.copy_from_slice(match (j as usize).checked_sub(owned) {
                        None => &inner[j as usize * columns..][..columns],
                        Some(k) => &outer[k * columns..][..columns],
                    });
                }
                block.factor.solve(&mut block.x, columns, scratch);
            }
        });
        // Block after block: sums have one order, however many threads there are.
        inner.fill(0.0);
        outer.fill(0.0);
        for block in blocks {
            for (&j, x) in block.members.iter().zip(block.x.chunks_exact(columns)) {
                let to = match (j as usize).checked_sub(owned) {
                    None => &mut inner[j as usize * columns..][..columns],
                    Some(k) => &mut outer[k * columns..][..columns],
                };
                to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
            }
        }
        exchange.add_back(outer, columns, &mut inner);
        engine.upload(&inner, z);
    }
}

impl Schwarz {
    /// Makes new factors of all blocks for a matrix whose entries have changed. All ranks call it.
    pub fn follow<E: Engine, A: Assemble<E>>(&mut self, engine: &E, matrix: &A) {
        let assembly = matrix.assembly(engine, &self.overlap);
        let limits = [self.limit, usize::MAX]; // the new factors take the place of the old ones
        let maker = Maker::new(&assembly, engine.part().nodes, limits);
        let share = self.blocks.len().div_ceil(rayon::current_num_threads()).max(1);
        self.blocks.par_chunks_mut(share).for_each(|blocks| {
            let mut walk = assembly.walk();
            for block in blocks {
                // A block that cannot follow keeps the factor it has: `M` stays positive definite.
                if let Ok(factor) = maker.factor(&mut walk, &block.members) {
                    block.factor = factor;
                }
            }
        });
    }
}

/// What was made, if all ranks have made theirs.
fn together<T>(world: &World, made: Option<T>, why: Refusal) -> Result<T, Refusal> {
    let missing = world.any(made.is_none());
    made.filter(|_| !missing).ok_or(why)
}

/// Owned rows divided by METIS, each set with the rows around it.
fn sets(part: &Part, overlap: &Overlap, nodes: usize, hops: usize) -> Result<Vec<Vec<u32>>> {
    let count = part.owned.div_ceil(nodes);
    let owner = match count {
        1 => vec![0; part.owned],
        _ => {
            let settings = partition::Options { balance: Balance::Nodes, ..Default::default() };
            partition::divide(&inside(part), count, &settings)?
        }
    };
    let mut sets = vec![Vec::new(); count];
    owner.iter().enumerate().for_each(|(i, &k)| sets[k as usize].push(i as u32));
    sets.par_iter_mut().for_each(|set| grow(overlap, set, hops, 4 * nodes));
    Ok(sets)
}

/// The graph of the owned rows alone, without weights.
fn inside(part: &Part) -> Graph {
    let mut indptr = vec![0u64];
    let mut indices = Vec::with_capacity(part.entries());
    for i in 0..part.owned {
        let row = part.indptr[i] as usize..part.indptr[i + 1] as usize;
        let first = indices.len();
        indices.extend(part.indices[row].iter().filter(|&&j| (j as usize) < part.owned));
        indices[first..].sort_unstable();
        indptr.push(indices.len() as u64);
    }
    Graph::from_csr_trusted(indptr, indices, None)
}

/// Adds the rows within some hops, as long as there are not too many.
fn grow(overlap: &Overlap, set: &mut Vec<u32>, hops: usize, most: usize) {
    let mut marked = vec![false; overlap.ids.len()];
    set.iter().for_each(|&i| marked[i as usize] = true);
    let mut ring = 0..set.len();
    for _ in 0..hops {
        for at in ring.clone() {
            for (k, _) in overlap.neighbours(set[at] as usize) {
                if !std::mem::replace(&mut marked[k], true) {
                    set.push(k as u32);
                }
            }
        }
        if set.len() > most {
            return set.truncate(ring.end);
        }
        ring = ring.end..set.len();
    }
}
