//! Exact traces of low powers of `Ã`, by walking from every node a few hops.
//!
//! With `v_h = Ãʰ e_i`, a vector that reaches no further than `h` hops, `(Ã^(a+b))_ii = v_a·v_b`:
//! `h` products with sparse vectors give the traces up to `tr Ã^2h`. On meshes that is cheap for
//! several hops; on graphs with hubs the second hop may reach everything, so the work decides.

use crate::comm::World;
use crate::partition::{Part, Vicinity};
use rayon::prelude::*;

/// Nodes that tell how much work a hop is.
const SAMPLE: usize = 512;
/// How far the work of a hop may be overestimated from those before, before anything is counted:
/// growth slows down from hop to hop.
const SLACK: f64 = 4.0;
/// Rows that one thread takes at a time.
const TASK: usize = 512;

/// `tr Ãᵏ` for `k = 0..=2h` with `1 <= h <= hops`: as many hops as take no more than `budget`
/// multiplications for every entry of the matrix. To be called by all ranks.
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
        vicinity = Vicinity::collect(world, part, hop, 0);
        let mut walk = Walk::new(&vicinity);
        let mut work = [0.0];
        for i in (0..part.owned).filter(|&i| part.ids[i].is_multiple_of(stride)) {
            walk.start(i);
            (0..hop).for_each(|_| walk.hop(&vicinity));
            let edges = walk.now.reached().iter().map(|&j| vicinity.neighbours(j as usize).count());
            work[0] += edges.sum::<usize>() as f64;
        }
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

/// The traces themselves: one walk of `hops` hops from every owned row.
fn sums(world: &World, nodes: usize, vicinity: &Vicinity, hops: usize) -> Vec<f64> {
    let tasks: Vec<Vec<f64>> = (0..vicinity.owned.div_ceil(TASK))
        .into_par_iter()
        .map_init(
            || Walk::new(vicinity),
            |walk, task| {
                let mut sums = vec![0.0; 2 * hops + 1];
                for i in task * TASK..vicinity.owned.min((task + 1) * TASK) {
                    walk.start(i);
                    for h in 1..=hops {
                        walk.hop(vicinity);
                        let (odd, even) = walk.dots();
                        sums[2 * h - 1] += odd;
                        sums[2 * h] += even;
                    }
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

/// A sparse vector on its way: dense values, and which of them are reached.
struct Walk {
    inverse_root_degree: Vec<f64>,
    now: Sparse,
    before: Sparse,
}

struct Sparse {
    values: Vec<f64>,
    /// Room for all rows; the first `count` are reached.
    reached: Vec<u32>,
    count: usize,
}

impl Sparse {
    fn clear(&mut self) {
        self.reached[..self.count].iter().for_each(|&k| self.values[k as usize] = 0.0);
        self.count = 0;
    }

    fn reached(&self) -> &[u32] {
        &self.reached[..self.count]
    }
}

impl Walk {
    fn new(vicinity: &Vicinity) -> Self {
        let n = vicinity.ids.len();
        let empty = || Sparse { values: vec![0.0; n], reached: vec![0; n + 1], count: 0 };
        Walk {
            inverse_root_degree: vicinity.degree.iter().map(|d| 1.0 / d.sqrt()).collect(),
            now: empty(),
            before: empty(),
        }
    }

    /// `v = e_i`.
    fn start(&mut self, i: usize) {
        self.now.clear();
        (self.now.values[i], self.now.reached[0], self.now.count) = (1.0, i as u32, 1);
    }

    /// `v ← Ã v`; what it was before is kept.
    fn hop(&mut self, vicinity: &Vicinity) {
        self.before.clear();
        std::mem::swap(&mut self.now, &mut self.before);
        let Sparse { values, reached, count } = &mut self.now;
        for &j in self.before.reached() {
            let j = j as usize;
            let v = self.before.values[j] * self.inverse_root_degree[j];
            for (k, w) in vicinity.neighbours(j) {
                // Written always and counted once: whether a node is new cannot be guessed, and a
                // wrong guess would cost more than the rest.
                reached[*count] = k as u32;
                *count += usize::from(values[k] == 0.0);
                // All terms are positive; none may underflow, or a node would be reached twice.
                values[k] += (w * v).max(f64::MIN_POSITIVE);
            }
        }
        for &k in &reached[..*count] {
            let scaled = values[k as usize] * self.inverse_root_degree[k as usize];
            values[k as usize] = scaled.max(f64::MIN_POSITIVE);
        }
    }

    /// `v_before·v` and `‖v‖²`.
    fn dots(&self) -> (f64, f64) {
        let mut dots = (0.0, 0.0);
        for &k in self.now.reached() {
            let value = self.now.values[k as usize];
            dots.0 += self.before.values[k as usize] * value;
            dots.1 += value * value;
        }
        dots
    }
}
