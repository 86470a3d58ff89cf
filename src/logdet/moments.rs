//! Exact traces of low powers of `Ã`, by walking from every node a few hops.
//!
//! With `v_h = Ãʰ e_i`, a vector that reaches no further than `h` hops, `(Ã^(a+b))_ii = v_a·v_b`:
//! `h` products with sparse vectors give the traces up to `tr Ã^2h`. On meshes that is cheap for
//! several hops; on graphs with hubs the second hop may reach everything, so the work decides.

use super::walks::{LANES, Walks};
use crate::comm::World;
use crate::partition::{Part, Vicinity};
use rayon::prelude::*;

/// Nodes that tell how much work a hop is.
const SAMPLE: usize = 128;
/// How far the work of a hop may be overestimated from those before, before anything is counted:
/// growth slows down from hop to hop.
const SLACK: f64 = 4.0;
/// Groups of nodes that one thread takes at a time.
const TASK: usize = 64;

/// `tr Ãᵏ` for `k = 0..=2h` with `1 <= h <= hops`: as many hops as cross no more than `budget`
/// edges for every entry of the matrix, each walk counted by itself. To be called by all ranks.
pub(super) fn traces(world: &World, part: &Part, hops: usize, budget: f64) -> Vec<f64> {
    let mut vicinity = Vicinity::collect(world, part, 0, 0);
    let (mut hop, mut spent, mut before) = (1, 1.0, 1.0);
    // Hops of growing depth from a few nodes, the same ones on any number of ranks.
    let stride = part.nodes.div_ceil(SAMPLE) as u32;
    let mut entries = [part.entries() as f64];
    world.sum(&mut entries);
    let per_entry = f64::from(stride) / entries[0];
    let degrees = (0..part.owned).map(|i| vicinity.neighbours(i).count() as f64);
    let mut second = [degrees.map(|d| d * d).sum::<f64>()];
    world.sum(&mut second);
    let mut expected = second[0] / entries[0];
    while hop < hops && spent + expected / SLACK <= budget {
        if world.size() > 1 {
            vicinity = Vicinity::collect(world, part, hop, 0);
        }
        let mut walks = Walks::new(&vicinity);
        let starts =
            (0..part.owned as u32).filter(|&i| part.ids[i as usize].is_multiple_of(stride));
        let mut sums = vec![0.0; 2 * hop + 3];
        let mut work = [starts.map(|i| walks.walk(&[i], &mut sums) as f64).sum::<f64>()];
        world.sum(&mut work);
        let found = work[0] * per_entry;
        if spent + found > budget {
            break;
        }
        hop += 1;
        spent += found;
        expected = found * found / before;
        before = found;
    }
    sums(world, part.nodes, &vicinity, hop)
}

/// The traces themselves: walks of `hops` hops from every owned row.
fn sums(world: &World, nodes: usize, vicinity: &Vicinity, hops: usize) -> Vec<f64> {
    let groups = groups(vicinity);
    let tasks: Vec<Vec<f64>> = groups
        .par_chunks(TASK)
        .map_init(
            || Walks::new(vicinity),
            |walks, groups| {
                let mut sums = vec![0.0; 2 * hops + 1];
                for group in groups {
                    walks.walk(group.rows(), &mut sums);
                }
                sums
            },
        )
        .collect();
    let mut traces = vec![0.0; 2 * hops + 1];
    for sums in tasks {
        traces.iter_mut().zip(sums).for_each(|(trace, sum)| *trace += sum);
    }
    world.sum(&mut traces);
    traces[0] = nodes as f64;
    traces[1] = 0.0; // no node is its own neighbour
    traces
}

/// Rows that start together.
#[derive(Clone, Copy, Default)]
struct Group {
    rows: [u32; LANES],
    count: usize,
}

impl Group {
    fn rows(&self) -> &[u32] {
        &self.rows[..self.count]
    }

    /// Takes a row that nobody has taken, while there is room.
    fn take(&mut self, row: usize, taken: &mut [bool]) {
        if self.count < LANES && row < taken.len() && !std::mem::replace(&mut taken[row], true) {
            self.rows[self.count] = row as u32;
            self.count += 1;
        }
    }
}

/// All owned rows, neighbours together.
fn groups(vicinity: &Vicinity) -> Vec<Group> {
    let mut taken = vec![false; vicinity.owned];
    let mut groups = Vec::with_capacity(vicinity.owned / LANES + 1);
    for i in 0..vicinity.owned {
        let mut group = Group::default();
        group.take(i, &mut taken);
        let mut next = 0;
        while next < group.count && group.count < LANES {
            let (neighbours, _) = vicinity.row(group.rows[next] as usize);
            neighbours.iter().for_each(|&k| group.take(k as usize, &mut taken));
            next += 1;
        }
        if group.count > 0 {
            groups.push(group);
        }
    }
    groups
}
