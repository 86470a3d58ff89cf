//! Exact traces of low powers of `Ã`, by walking from every node a few hops.
//!
//! With `v_h = Ãʰ e_i`, a vector that reaches no further than `h` hops, `(Ã^(a+b))_ii = v_a·v_b`:
//! `h` products with sparse vectors give the traces up to `tr Ã^2h`. On meshes that is cheap for
//! several hops; on graphs with hubs the second hop may reach everything, so the work decides.
//!
//! Walks from neighbouring nodes cross the same edges. So a few nodes start together, a lane of a vector
//! each, on a copy of the graph around them that fits into the nearest cache.

use crate::comm::World;
use crate::partition::{Part, Vicinity};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Nodes that tell how much work a hop is.
const SAMPLE: usize = 512;
/// How far the work of a hop may be overestimated from those before, before anything is counted:
/// growth slows down from hop to hop.
const SLACK: f64 = 4.0;
/// Nodes that start together.
const LANES: usize = 8;
/// Groups of them that one thread takes at a time.
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
    let mut around = Around::new(vicinity.ids.len());
    while hop < hops && spent + expected / SLACK <= budget {
        if world.size() > 1 {
            vicinity = Vicinity::collect(world, part, hop, 0);
            around = Around::new(vicinity.ids.len());
        }
        let mut work = [0.0];
        for i in (0..part.owned as u32).filter(|&i| part.ids[i as usize].is_multiple_of(stride)) {
            around.grow(&vicinity, &[i], hop);
            let edges = around.rows.iter().map(|&j| vicinity.neighbours(j as usize).count());
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

/// The traces themselves: walks of `hops` hops from every owned row.
fn sums(world: &World, nodes: usize, vicinity: &Vicinity, hops: usize) -> Vec<f64> {
    let inverse_root_degree: Vec<f64> = vicinity.degree.iter().map(|d| 1.0 / d.sqrt()).collect();
    let groups = groups(vicinity);
    let tasks: Vec<Vec<f64>> = groups
        .par_chunks(TASK)
        .map_init(
            || Walk::new(vicinity, &inverse_root_degree),
            |walk, groups| {
                let mut sums = vec![0.0; 2 * hops + 1];
                for group in groups {
                    walk.start(group, hops);
                    Arch::new().dispatch(Hops { walk, sums: &mut sums });
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

/// All owned rows, neighbours together, at most [`LANES`] in a group.
fn groups(vicinity: &Vicinity) -> Vec<Vec<u32>> {
    let mut taken = vec![false; vicinity.owned];
    let mut groups = Vec::with_capacity(vicinity.owned / LANES + 1);
    for i in 0..vicinity.owned {
        if std::mem::replace(&mut taken[i], true) {
            continue;
        }
        let mut group = Vec::with_capacity(LANES);
        group.push(i as u32);
        let mut next = 0;
        while next < group.len() && group.len() < LANES {
            for (k, _) in vicinity.neighbours(group[next] as usize) {
                if group.len() < LANES
                    && k < vicinity.owned
                    && !std::mem::replace(&mut taken[k], true)
                {
                    group.push(k as u32);
                }
            }
            next += 1;
        }
        groups.push(group);
    }
    groups
}

/// Rows within some hops of others, nearest first.
struct Around {
    rows: Vec<u32>,
    /// Number of rows up to each hop.
    ends: Vec<usize>,
    /// Where each row of the vicinity stands among them.
    place: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Around {
    fn new(rows: usize) -> Self {
        Around { rows: Vec::new(), ends: Vec::new(), place: vec![NOWHERE; rows] }
    }

    fn add(&mut self, row: u32) {
        let place = &mut self.place[row as usize];
        if *place == NOWHERE {
            *place = self.rows.len() as u32;
            self.rows.push(row);
        }
    }

    /// The rows within `hops` hops of `start`.
    fn grow(&mut self, vicinity: &Vicinity, start: &[u32], hops: usize) {
        self.rows.iter().for_each(|&row| self.place[row as usize] = NOWHERE);
        self.rows.clear();
        self.ends.clear();
        start.iter().for_each(|&row| self.add(row));
        self.ends.push(self.rows.len());
        let mut inner = 0;
        for _ in 0..hops {
            for at in inner..self.rows.len() {
                let row = self.rows[at] as usize;
                vicinity.neighbours(row).for_each(|(k, _)| self.add(k as u32));
            }
            inner = self.ends[self.ends.len() - 1];
            self.ends.push(self.rows.len());
        }
    }
}

/// Walks of a group, on the graph around it.
struct Walk<'a> {
    vicinity: &'a Vicinity,
    inverse_root_degree: &'a [f64],
    around: Around,
    /// `Ã` by rows: all entries of the rows that are not of the last hop.
    starts: Vec<u32>,
    entries: Vec<(u32, f64)>,
    now: Vec<[f64; LANES]>,
    before: Vec<[f64; LANES]>,
}

impl<'a> Walk<'a> {
    fn new(vicinity: &'a Vicinity, inverse_root_degree: &'a [f64]) -> Self {
        Walk {
            vicinity,
            inverse_root_degree,
            around: Around::new(vicinity.ids.len()),
            starts: Vec::new(),
            entries: Vec::new(),
            now: Vec::new(),
            before: Vec::new(),
        }
    }

    /// `v = e_i`, one `i` of the group in each lane, and the graph as far as `hops` hops.
    fn start(&mut self, group: &[u32], hops: usize) {
        let Walk { vicinity, inverse_root_degree, around, .. } = self;
        around.grow(vicinity, group, hops);
        self.starts.clear();
        self.starts.push(0);
        self.entries.clear();
        for &row in &around.rows[..around.ends[hops - 1]] {
            let own = inverse_root_degree[row as usize];
            self.entries.extend(
                vicinity
                    .neighbours(row as usize)
                    .map(|(k, w)| (around.place[k], w * own * inverse_root_degree[k])),
            );
            self.starts.push(self.entries.len() as u32);
        }
        for block in [&mut self.now, &mut self.before] {
            block.clear();
            block.resize(around.rows.len(), [0.0; LANES]);
        }
        for lane in 0..group.len() {
            self.now[lane][lane] = 1.0;
        }
    }
}

/// All hops of a walk, in vectors. Adds `v_(h−1)·v_h` and `‖v_h‖²` to the sums of `2h − 1` and `2h`.
struct Hops<'w, 'a> {
    walk: &'w mut Walk<'a>,
    sums: &'w mut [f64],
}

impl WithSimd for Hops<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Walk { around, starts, entries, now, before, .. } = self.walk;
        let last = around.ends.len() - 1;
        for h in 1..=last {
            std::mem::swap(now, before);
            // Rows that are reached have all their entries, but for those of the last hop: there
            // what is known goes out instead of being brought in (`Ã` is symmetric).
            let inner = around.ends[h.min(last - 1)];
            let rows = starts.windows(2).map(|w| &entries[w[0] as usize..w[1] as usize]);
            if h < last {
                for (row, now) in rows.take(inner).zip(now.iter_mut()) {
                    let mut sum = [0.0; LANES];
                    for &(k, a) in row {
                        let v = &before[k as usize];
                        for c in 0..LANES {
                            sum[c] += a * v[c];
                        }
                    }
                    *now = sum;
                }
            } else {
                now.fill([0.0; LANES]);
                for (row, v) in rows.take(inner).zip(before.iter()) {
                    for &(k, a) in row {
                        let now = &mut now[k as usize];
                        for c in 0..LANES {
                            now[c] += a * v[c];
                        }
                    }
                }
            }
            let (mut odd, mut even) = ([0.0; LANES], [0.0; LANES]);
            for (now, before) in now.iter().zip(before.iter()).take(around.ends[h]) {
                for c in 0..LANES {
                    odd[c] += before[c] * now[c];
                    even[c] += now[c] * now[c];
                }
            }
            self.sums[2 * h - 1] += odd.iter().sum::<f64>();
            self.sums[2 * h] += even.iter().sum::<f64>();
        }
    }
}
