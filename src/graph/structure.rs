//! What the pattern of a graph tells: components, distances, k-hop neighbourhoods.

use super::{EdgeList, Graph};
use crate::error::Result;
use rayon::prelude::*;

/// The connected components of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    /// Component of every node, numbered by their smallest node.
    pub label: Vec<u32>,
    /// Nodes in each component.
    pub sizes: Vec<usize>,
}

impl Components {
    /// Number of components.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// The sizes, largest first, in words: `"2990, 7 and 3 nodes"` (at most `most` of them).
    pub fn describe(&self, most: usize) -> String {
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let shown: Vec<String> = sizes.iter().take(most).map(usize::to_string).collect();
        let more = sizes.len().saturating_sub(most);
        let tail = if more > 0 { format!(" and {more} smaller") } else { String::new() };
        format!("{} nodes{tail}", shown.join(", "))
    }
}

/// Labels every node with its component.
pub fn components(graph: &Graph) -> Components {
    let mut label = vec![u32::MAX; graph.nodes()];
    let mut sizes = Vec::new();
    let mut queue = Vec::new();
    for start in 0..graph.nodes() {
        if label[start] != u32::MAX {
            continue;
        }
        let id = sizes.len() as u32;
        label[start] = id;
        queue.clear();
        queue.push(start as u32);
        let mut next = 0;
        while next < queue.len() {
            for &j in graph.neighbours(queue[next] as usize) {
                if label[j as usize] == u32::MAX {
                    label[j as usize] = id;
                    queue.push(j);
                }
            }
            next += 1;
        }
        sizes.push(queue.len());
    }
    Components { label, sizes }
}

/// Hops from `start` to the farthest node it reaches, and that node (the smallest such).
fn eccentricity(
    graph: &Graph,
    start: u32,
    seen: &mut [bool],
    queue: &mut Vec<u32>,
) -> (usize, u32) {
    seen.fill(false);
    seen[start as usize] = true;
    queue.clear();
    queue.push(start);
    let (mut from, mut depth) = (0, 0);
    loop {
        let level = from..queue.len();
        from = queue.len();
        for k in level.clone() {
            for &j in graph.neighbours(queue[k] as usize) {
                if !std::mem::replace(&mut seen[j as usize], true) {
                    queue.push(j);
                }
            }
        }
        if queue.len() == from {
            let farthest = queue[level].iter().copied().min().unwrap_or(start);
            return (depth, farthest);
        }
        depth += 1;
    }
}

/// A lower bound of the diameter (in hops) by repeated double sweeps: breadth-first to the
/// farthest node, from there again, until the distance stops growing. Tight on most graphs.
/// On a disconnected graph it speaks of the components met from `starts` spread nodes.
pub fn diameter_estimate(graph: &Graph, starts: usize) -> usize {
    let n = graph.nodes();
    let mut seen = vec![false; n];
    let mut queue = Vec::new();
    let mut best = 0;
    for k in 0..starts.min(n) {
        let mut from = (k * n / starts.min(n)) as u32;
        let mut reached = 0;
        loop {
            let (depth, farthest) = eccentricity(graph, from, &mut seen, &mut queue);
            if depth <= reached {
                break;
            }
            (reached, from) = (depth, farthest);
        }
        best = best.max(reached);
    }
    best
}

/// The k-hop graph: unweighted edges between all nodes at distance `1..=hops`.
pub fn k_hop(graph: &Graph, hops: usize) -> Result<Graph> {
    let n = graph.nodes();
    let rows: Vec<Vec<u32>> = (0..n)
        .into_par_iter()
        .map_init(
            || vec![u32::MAX; n],
            |mark, i| {
                let mut ball = vec![i as u32];
                mark[i] = i as u32;
                let mut from = 0;
                for _ in 0..hops {
                    let level = from..ball.len();
                    from = ball.len();
                    for k in level {
                        for &j in graph.neighbours(ball[k] as usize) {
                            if std::mem::replace(&mut mark[j as usize], i as u32) != i as u32 {
                                ball.push(j);
                            }
                        }
                    }
                }
                ball.retain(|&j| j as usize > i);
                ball
            },
        )
        .collect();
    let mut edges = EdgeList::unweighted();
    for (i, row) in rows.iter().enumerate() {
        for &j in row {
            edges.push(i as u32, j, 1.0);
        }
    }
    Ok(edges.into_graph(n)?.0)
}
