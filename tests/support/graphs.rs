//! Small graphs for tests.

use dgmrf::graph::{EdgeList, Graph};
use dgmrf::random::{Purpose, Stream};

/// A connected random graph: a random tree plus `extra` edges, weights in `[0.5, 2)` if wanted.
pub fn random(nodes: usize, extra: usize, weighted: bool, seed: u64) -> Graph {
    let stream = Stream::new(seed, Purpose::Test, 1);
    let mut edges = if weighted { EdgeList::weighted() } else { EdgeList::unweighted() };
    let weight = |k: u64| 0.5 + 1.5 * stream.uniform(k, 7);
    for i in 1..nodes as u64 {
        let parent = (stream.uniform(i, 0) * i as f64) as u32;
        edges.push(i as u32, parent, weight(i));
    }
    for k in 0..extra as u64 {
        let pick = |c: u64| (stream.uniform(nodes as u64 + k, c) * nodes as f64) as u32;
        edges.push(pick(1), pick(2), weight(nodes as u64 + k));
    }
    edges.into_graph(nodes).expect("a graph").0
}

/// Unweighted, from pairs.
pub fn from_pairs(nodes: usize, pairs: impl IntoIterator<Item = (u32, u32)>) -> Graph {
    let mut edges = EdgeList::unweighted();
    pairs.into_iter().for_each(|(a, b)| edges.push(a, b, 1.0));
    edges.into_graph(nodes).expect("a graph").0
}

/// One hub, joined to all others.
pub fn star(nodes: usize) -> Graph {
    from_pairs(nodes, (1..nodes as u32).map(|i| (0, i)))
}

/// A ring whose nodes are also all joined to node 0: a hub of degree `N - 1` in a larger graph.
pub fn wheel(nodes: usize) -> Graph {
    let n = nodes as u32;
    from_pairs(nodes, (1..n).flat_map(|i| [(0, i), (i, if i + 1 < n { i + 1 } else { 1 })]))
}
