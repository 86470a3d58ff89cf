//! Exact traces of low powers of `Ã`, by walking from every node a few hops.
//!
//! `h` hops from every node give the traces up to `tr Ã^2h` ([`Walks`]). On meshes that is cheap
//! for several hops; on graphs with hubs the second hop may reach everything, so the work decides.

use super::walks::{Groups, Walks};
use crate::comm::World;
use crate::partition::{Lists, Overlap, Part};
use rayon::prelude::*;

/// Nodes that tell how much work a hop is.
const SAMPLE: usize = 128;
/// How far the work of a hop may be overestimated from those before, before anything is counted:
/// growth slows down from hop to hop.
const SLACK: f64 = 4.0;
/// Groups of nodes that one thread takes at a time.
const TASK: usize = 64;

/// `tr Ãᵏ` for `k = 0..=2h` with `1 <= h <= hops`: as many hops as cross no more than `budget`
/// edges for every entry of the matrix, counted as if each node walked by itself through the whole
/// graph. To be called by all ranks.
pub(super) fn traces(world: &World, part: &Part, hops: usize, budget: f64) -> Vec<f64> {
    let (mut hop, mut spent, mut before) = (1, 1.0, 1.0);
    // Hops of growing depth from a few nodes, the same ones on any number of ranks.
    let stride = part.nodes.div_ceil(SAMPLE) as u32;
    let squares = part.indptr.windows(2).map(|w| ((w[1] - w[0]) as f64).powi(2));
    let mut sums = [part.entries() as f64, squares.sum()];
    world.sum(&mut sums);
    let [entries, second] = sums;
    let (per_entry, mut expected) = (f64::from(stride) / entries, second / entries);
    let mut collected = None;
    while hop < hops && spent + expected / SLACK <= budget {
        let overlap = match collected.take() {
            Some(whole) if world.size() == 1 => whole,
            _ => Overlap::collect(world, part, hop, 0),
        };
        let mut ball = HopBall::new(&overlap);
        let starts =
            (0..part.owned as u32).filter(|&i| part.ids[i as usize].is_multiple_of(stride));
        let mut work = [starts.map(|i| ball.edges(i, hop) as f64).sum::<f64>()];
        world.sum(&mut work);
        collected = Some(overlap);
        let found = work[0] * per_entry;
        if spent + found > budget {
            break;
        }
        hop += 1;
        spent += found;
        expected = found * found / before;
        before = found;
    }
    let mut traces = match &collected {
        Some(overlap) if hop > 1 => sums_of_walks(overlap, hop),
        _ => vec![0.0, 0.0, sum_of_squares(part)],
    };
    world.sum(&mut traces);
    traces[0] = part.nodes as f64;
    traces[1] = 0.0; // no node is its own neighbour
    traces
}

/// The share of the owned rows in `tr Ã²`: the squares of their entries.
fn sum_of_squares(part: &Part) -> f64 {
    let root: Vec<f64> = part.degree.iter().map(|d| 1.0 / d.sqrt()).collect();
    let row = |i: usize| {
        let entries = part.indptr[i] as usize..part.indptr[i + 1] as usize;
        let weight = |e: usize| part.weights.as_ref().map_or(1.0, |weights| weights[e]);
        let entry = |e: usize| weight(e) * root[i] * root[part.indices[e] as usize];
        entries.map(|e| entry(e).powi(2)).sum::<f64>()
    };
    (0..part.owned).map(row).sum()
}

/// Walks of `hops` hops from every owned row.
fn sums_of_walks(overlap: &Overlap, hops: usize) -> Vec<f64> {
    let groups = Groups::new(overlap);
    let all: Vec<usize> = (0..groups.count()).collect();
    let tasks: Vec<Vec<f64>> = all
        .par_chunks(TASK)
        .map_init(
            || Walks::new(overlap, &groups, hops),
            |walks, task| {
                let mut sums = vec![0.0; 2 * hops + 1];
                task.iter().for_each(|&group| walks.walk(group, &mut sums));
                sums
            },
        )
        .collect();
    let mut traces = vec![0.0; 2 * hops + 1];
    for sums in tasks {
        traces.iter_mut().zip(sums).for_each(|(trace, sum)| *trace += sum);
    }
    traces
}

/// The rows within some hops of a row.
struct HopBall<'a> {
    graph: Lists<'a>,
    rows: Vec<u32>,
    inside: Vec<bool>,
}

impl<'a> HopBall<'a> {
    fn new(overlap: &'a Overlap) -> Self {
        let inside = vec![false; overlap.ids.len()];
        HopBall { graph: overlap.lists(), rows: Vec::new(), inside }
    }

    /// Edges of the rows within `radius` hops, which must be complete.
    fn edges(&mut self, center: u32, radius: usize) -> usize {
        let HopBall { graph, rows, inside } = self;
        rows.clear();
        rows.push(center);
        inside[center as usize] = true;
        let (mut edges, mut shell) = (0, 0..1);
        for distance in 0..=radius {
            for at in shell.clone() {
                let (neighbours, _) = graph.row(rows[at] as usize);
                edges += neighbours.len();
                if distance < radius {
                    let new = neighbours
                        .iter()
                        .filter(|&&k| !std::mem::replace(&mut inside[k as usize], true));
                    rows.extend(new);
                }
            }
            shell = shell.end..rows.len();
        }
        rows.iter().for_each(|&i| inside[i as usize] = false);
        edges
    }
}
