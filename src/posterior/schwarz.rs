//! Overlapping blocks of `Q̃`, each solved exactly: additive Schwarz.
//!
//! ```text
//! M⁻¹ = Σ_k R_kᵀ (R_k Q̃ R_kᵀ)⁻¹ R_k
//! ```
//!
//! with `R_k` the restriction to block `k`. The blocks are METIS parts of each rank's rows, grown a
//! few hops into their surroundings (also into those of other ranks), and every row is in one of them
//! at least, so `M` is positive definite. Where nothing is observed, the diagonal says nothing about
//! `Q̃`; but what happens at a node depends on the nodes within the reach of the field only, and that
//! is a matter of hops: blocks that overlap by as much leave little to be done.
//!
//! One block at a time is assembled, factorised, and its factor stored in single precision
//! ([`Panels`]): a rank never holds more of `G` or `Q̃` than the blocks that its threads work on. A block
//! of the whole graph is a solution rather than a preconditioner, and keeps double precision.
//!
//! No coarse level: fields of layers with `ρ` near −1 reach further than blocks overlap, and then
//! iterations grow with `1/(1 + ρ)`, from a much lower level than those of the diagonal.

use super::Precision;
use super::columns::{Layers, Walk};
use super::factor::Pattern;
use super::gram::Gram;
use super::memory;
use super::panels::{Panels, Store};
use super::precondition::Operator;
use super::substitution::Scratch;
use crate::comm::World;
use crate::error::Result;
use crate::field::Engine;
use crate::graph::Graph;
use crate::partition::Overlap;
use crate::partition::{self, Balance, Part};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How blocks are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Nodes of a block before it grows.
    pub nodes: usize,
    /// Hops that it grows; when absent, 6 for one layer and 2 more for each further one, up to 10.
    pub overlap: Option<usize>,
    /// Entries at most: of `G` for one block, and of all factors of a rank together, where those in
    /// double precision count twice.
    pub entries: [usize; 2],
}

impl Default for Options {
    fn default() -> Self {
        // 0.5 GB for G (twice) while a block is made, 2 GB for the factors.
        Options { nodes: 4000, overlap: None, entries: [20_000_000, 500_000_000] }
    }
}

/// Why there are no blocks for a graph, a model and this machine.
pub type Refusal = &'static str;

const REACH: Refusal = "the layers reach too much of the graph";
const MEMORY: Refusal = "its factors take too much memory";
const SINGULAR: Refusal = "a block is singular in double precision";

/// The blocks of a rank.
pub struct Schwarz {
    around: Overlap,
    blocks: Vec<Block>,
    /// Entries of `G` at most, for one block.
    limit: usize,
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
    pub fn new<E: Engine>(
        engine: &E,
        precision: &Precision<E>,
        options: &Options,
    ) -> Result<Self, Refusal> {
        let (world, part) = (engine.world(), engine.part());
        let layers = precision.coefficients().len();
        let overlap = options.overlap.unwrap_or((4 + 2 * layers).min(10));
        // More than a few times its own rows: then these hops are no surroundings any more.
        let most = 4 * part.owned + 50_000;
        let depth = overlap + layers - 1;
        let around = Overlap::collect_within(world, part, depth, overlap, most)
            .ok_or("a few hops reach too much of the graph")?;
        let sets = sets(part, &around, options.nodes, overlap);
        let mut sets = together(world, sets.ok(), "METIS cannot divide the graph")?;
        let weight = weights(world, precision, &around);
        let [limit, entries] = options.entries;
        let room = (memory::share(world, 0.25) / 4.0).min(entries as f64) as usize;
        let layers = Layers::new(&around, precision.coefficients());
        let maker = Maker::new(layers, &weight, part.nodes, [limit, room]);
        let share = sets.len().div_ceil(rayon::current_num_threads()).max(1);
        let made: Vec<Result<Block, Refusal>> = sets
            .par_chunks_mut(share)
            .flat_map_iter(|sets| {
                let (mut walk, maker) = (Walk::new(&maker.layers), &maker);
                sets.iter_mut().map(move |set| {
                    let members = std::mem::take(set);
                    let factor = maker.factor(&mut walk, &members)?;
                    Ok(Block { members, factor, x: Vec::new() })
                })
            })
            .collect();
        // The first of these that any block of any rank has met.
        let met = |why: &Refusal| made.iter().any(|block| block.as_ref().err() == Some(why));
        for why in [REACH, MEMORY, SINGULAR] {
            if world.any(met(&why)) {
                return Err(why);
            }
        }
        let blocks = made.into_iter().collect::<Result<_, _>>()?;
        Ok(Schwarz { around, blocks, limit, scratch: Vec::new() })
    }

    /// Room for blocks of so many columns.
    fn fit(&mut self, columns: usize) {
        for block in &mut self.blocks {
            block.x.resize(block.members.len() * columns, 0.0);
        }
        self.scratch.resize_with(rayon::current_num_threads(), Scratch::default);
    }
}

/// Products that the entries of all blocks may take: some ten seconds on one core. On graphs with
/// hubs, `GᵀG` of five layers is full.
const WORK: usize = 20_000_000_000;

/// Makes factors of blocks, as long as they stay within limits. All threads count together; sums of
/// counts do not depend on who comes first, so neither does a refusal.
struct Maker<'a> {
    layers: Layers<'a>,
    /// `σ⁻² m` of the rows that blocks may have.
    weight: &'a [f64],
    /// Nodes of the whole graph.
    nodes: usize,
    /// Entries at most: of `G` for one block, and of all factors.
    limits: [usize; 2],
    /// Products and entries so far.
    work: AtomicUsize,
    entries: AtomicUsize,
}

impl<'a> Maker<'a> {
    fn new(layers: Layers<'a>, weight: &'a [f64], nodes: usize, limits: [usize; 2]) -> Self {
        let [work, entries] = [0; 2].map(AtomicUsize::new);
        Maker { layers, weight, nodes, limits, work, entries }
    }

    fn factor(&self, walk: &mut Walk, members: &[u32]) -> Result<Panels, Refusal> {
        let exceeds = |sum: &AtomicUsize, more: usize, limit: usize| {
            sum.fetch_add(more, Relaxed).saturating_add(more) > limit
        };
        let [limit, room] = self.limits;
        if exceeds(&self.work, 0, WORK) {
            return Err(REACH);
        }
        let gram = Gram::new(walk.columns(members, limit).ok_or(REACH)?);
        if exceeds(&self.work, gram.work(), WORK) {
            return Err(REACH);
        }
        // Only now: who reaches too far is told so, however many factors there are already.
        if exceeds(&self.entries, 0, room) {
            return Err(MEMORY);
        }
        let weight: Vec<f64> = members.iter().map(|&i| self.weight[i as usize]).collect();
        let matrix = gram.lower(&weight);
        drop(gram);
        let pattern = Pattern::to_solve(&matrix).map_err(|_| MEMORY)?;
        let (store, size) = match members.len() == self.nodes {
            true => (Store::Double, 2),
            false => (Store::Single, 1),
        };
        if exceeds(&self.entries, size * Panels::entries(&pattern), room) {
            return Err(MEMORY);
        }
        let factor = pattern.factorise(&matrix).map_err(|_| SINGULAR)?;
        Panels::new(&factor, store).map_err(|_| SINGULAR)
    }
}

impl<E: Engine> Operator<E> for Schwarz {
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        let columns = engine.columns(r);
        self.fit(columns);
        let (world, owned) = (engine.world().clone(), self.around.owned);
        let mut inner = engine.download(r);
        let mut outer = self.around.fetch(&world, &inner, columns);
        let share = self.blocks.len().div_ceil(self.scratch.len());
        let tasks = self.blocks.par_chunks_mut(share).zip(&mut self.scratch);
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
        for block in &self.blocks {
            for (&j, x) in block.members.iter().zip(block.x.chunks_exact(columns)) {
                let to = match (j as usize).checked_sub(owned) {
                    None => &mut inner[j as usize * columns..][..columns],
                    Some(k) => &mut outer[k * columns..][..columns],
                };
                to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
            }
        }
        self.around.add_back(&world, &outer, columns, &mut inner);
        engine.upload(&inner, z);
    }

    fn prepare(&mut self, engine: &E, precision: &Precision<E>) {
        let weight = weights(engine.world(), precision, &self.around);
        let layers = Layers::new(&self.around, precision.coefficients());
        let limits = [self.limit, usize::MAX]; // the new factors take the place of the old ones
        let maker = Maker::new(layers, &weight, engine.part().nodes, limits);
        let share = self.blocks.len().div_ceil(rayon::current_num_threads()).max(1);
        self.blocks.par_chunks_mut(share).for_each(|blocks| {
            let mut walk = Walk::new(&maker.layers);
            for block in blocks {
                // A block that cannot follow keeps the factor it has: `M` stays positive definite.
                if let Ok(factor) = maker.factor(&mut walk, &block.members) {
                    block.factor = factor;
                }
            }
        });
    }
}

/// What was made, if it was on all ranks.
fn together<T>(world: &World, made: Option<T>, why: Refusal) -> Result<T, Refusal> {
    let missing = world.any(made.is_none());
    made.filter(|_| !missing).ok_or(why)
}

/// `σ⁻² m` of the owned rows and of those in reach of a block. All ranks call it.
fn weights<E: Engine>(world: &World, precision: &Precision<E>, around: &Overlap) -> Vec<f64> {
    let mut weight: Vec<f64> = precision.weight().collect();
    weight.extend(around.fetch(world, &weight, 1));
    weight
}

/// Owned rows divided by METIS, each set with the rows around it.
fn sets(part: &Part, around: &Overlap, nodes: usize, hops: usize) -> Result<Vec<Vec<u32>>> {
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
    sets.par_iter_mut().for_each(|set| grow(around, set, hops, 4 * nodes));
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
fn grow(around: &Overlap, set: &mut Vec<u32>, hops: usize, most: usize) {
    let mut marked = vec![false; around.ids.len()];
    set.iter().for_each(|&i| marked[i as usize] = true);
    let mut ring = 0..set.len();
    for _ in 0..hops {
        for at in ring.clone() {
            for (k, _) in around.neighbours(set[at] as usize) {
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
