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
//! No coarse level: fields of layers with `ρ` near −1 reach further than blocks overlap, and then
//! iterations grow with `1/(1 + ρ)`, from a much lower level than those of the diagonal.

use super::Precision;
use super::columns::Columns;
use super::factor::{Factor, Lower, Pattern};
use super::gram::Gram;
use super::memory;
use super::precondition::Operator;
use crate::comm::World;
use crate::error::Result;
use crate::field::Engine;
use crate::graph::Graph;
use crate::partition::Vicinity;
use crate::partition::{self, Balance, Part};
use faer::dyn_stack::{MemBuffer, StackReq};
use rayon::prelude::*;

/// How blocks are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Nodes of a block before it grows.
    pub nodes: usize,
    /// Hops that it grows; when absent, 6 for one layer and 2 more for each further one, up to 10.
    pub overlap: Option<usize>,
    /// Entries that a rank may hold at most: of `G`, and of all factors together.
    pub entries: [usize; 2],
}

impl Default for Options {
    fn default() -> Self {
        // 1.7 GB for G (twice) while blocks are made, 2 GB for the factors.
        Options { nodes: 4000, overlap: None, entries: [60_000_000, 250_000_000] }
    }
}

/// Why there are no blocks for a graph, a model and this machine.
pub type Refusal = &'static str;

/// The blocks of a rank.
pub struct Schwarz {
    vicinity: Vicinity,
    blocks: Vec<Block>,
    limit: usize,
    /// Room to solve in, one for each task, for so many columns.
    scratch: Vec<MemBuffer>,
    columns: usize,
}

struct Block {
    /// Rows of the vicinity.
    members: Vec<u32>,
    factor: Factor,
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
        let vicinity = Vicinity::collect_within(world, part, depth, overlap, most)
            .ok_or("a few hops reach too much of the graph")?;
        let sets = sets(part, &vicinity, options.nodes, overlap);
        let sets = together(world, sets.ok(), "METIS cannot divide the graph")?;
        let weight = weights(world, precision, &vicinity);
        let gram = gram(precision, &vicinity, options.entries[0]);
        let gram = together(world, gram, "the layers reach too much of the graph")?;

        let patterns: Result<Vec<(Lower, Pattern)>> = sets
            .par_iter()
            .map(|members| {
                let matrix = gram.lower(members, &weight);
                let pattern = Pattern::to_solve(&matrix)?;
                Ok((matrix, pattern))
            })
            .collect();
        drop(gram);
        let room = memory::share(world, 0.25) / 8.0;
        let fits = |made: &Vec<(Lower, Pattern)>| {
            let entries: usize = made.iter().map(|(_, pattern)| pattern.entries()).sum();
            entries <= options.entries[1] && entries as f64 <= room
        };
        let patterns = patterns.ok().filter(fits);
        let patterns = together(world, patterns, "its factors take too much memory")?;
        let blocks: Result<Vec<Block>> = patterns
            .into_par_iter()
            .zip(sets)
            .map(|((matrix, pattern), members)| {
                let factor = pattern.factorise(&matrix)?;
                Ok(Block { members, factor, x: Vec::new() })
            })
            .collect();
        let blocks = together(world, blocks.ok(), "a block is singular in double precision")?;
        let limit = options.entries[0];
        Ok(Schwarz { vicinity, blocks, limit, scratch: Vec::new(), columns: 0 })
    }

    /// Room for blocks of so many columns.
    fn fit(&mut self, columns: usize) {
        if self.columns == columns {
            return;
        }
        self.columns = columns;
        for block in &mut self.blocks {
            block.x.resize(block.members.len() * columns, 0.0);
        }
        let need = self.blocks.iter().map(|b| b.factor.scratch(columns));
        let need = need.fold(StackReq::EMPTY, StackReq::or);
        self.scratch = (0..rayon::current_num_threads()).map(|_| MemBuffer::new(need)).collect();
    }
}

impl<E: Engine> Operator<E> for Schwarz {
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        let columns = engine.columns(r);
        self.fit(columns);
        let (world, owned) = (engine.world().clone(), self.vicinity.owned);
        let mut inner = engine.download(r);
        let mut outer = self.vicinity.fetch(&world, &inner, columns);
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
        self.vicinity.add_back(&world, &outer, columns, &mut inner);
        engine.upload(&inner, z);
    }

    fn prepare(&mut self, engine: &E, precision: &Precision<E>) {
        let weight = weights(engine.world(), precision, &self.vicinity);
        let Some(gram) = gram(precision, &self.vicinity, self.limit) else { return };
        self.blocks.par_iter_mut().for_each(|block| {
            // A block that cannot follow keeps the factor it has: `M` stays positive definite.
            let _ = block.factor.update(&gram.lower(&block.members, &weight));
        });
    }
}

/// What was made, if it was on all ranks.
fn together<T>(world: &World, made: Option<T>, why: Refusal) -> Result<T, Refusal> {
    let mut missing = [f64::from(u8::from(made.is_none()))];
    world.max(&mut missing);
    made.filter(|_| missing[0] == 0.0).ok_or(why)
}

/// `σ⁻² m` of the owned rows and of those in reach of a block. All ranks call it.
fn weights<E: Engine>(world: &World, precision: &Precision<E>, vicinity: &Vicinity) -> Vec<f64> {
    let mut weight: Vec<f64> = precision.weight().collect();
    weight.extend(vicinity.fetch(world, &weight, 1));
    weight
}

/// Products that the entries of all blocks may take: some ten seconds on one core. On graphs with
/// hubs, `GᵀG` of five layers is full.
const WORK: usize = 20_000_000_000;

/// The columns of `G` of all rows that blocks may have.
fn gram<E: Engine>(precision: &Precision<E>, vicinity: &Vicinity, limit: usize) -> Option<Gram> {
    let layers = precision.coefficients();
    let rows = vicinity.rings[vicinity.rings.len() - 1 - layers.len()];
    let columns = Columns::new(vicinity, layers, rows, limit).ok()?;
    Some(Gram::new(columns, vicinity.ids.len())).filter(|gram| gram.work() <= WORK)
}

/// Owned rows divided by METIS, each set with the rows around it.
fn sets(part: &Part, vicinity: &Vicinity, nodes: usize, hops: usize) -> Result<Vec<Vec<u32>>> {
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
    sets.par_iter_mut().for_each(|set| grow(vicinity, set, hops, 4 * nodes));
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
fn grow(vicinity: &Vicinity, set: &mut Vec<u32>, hops: usize, most: usize) {
    let mut marked = vec![false; vicinity.ids.len()];
    set.iter().for_each(|&i| marked[i as usize] = true);
    let mut ring = 0..set.len();
    for _ in 0..hops {
        for at in ring.clone() {
            for (k, _) in vicinity.neighbours(set[at] as usize) {
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
