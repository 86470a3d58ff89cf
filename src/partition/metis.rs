//! Which rank owns which node: METIS k-way partitioning.

use super::order::Order;
use crate::error::{Error, Result};
use crate::graph::{self, Graph};

words! {
    /// What is shared out equally.
    pub enum Balance {
        /// Entries of the adjacency matrix plus one per row: the work of a layer.
        #[default]
        Edges = "edges",
        /// Nodes.
        Nodes = "nodes",
    }
}

/// How a graph is divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What is balanced.
    pub balance: Balance,
    /// Largest part over the mean minus one, that METIS may allow itself.
    pub tolerance: f64,
    /// Order of the rows inside a part.
    pub order: Order,
    /// Seed of METIS' own random choices.
    pub seed: i32,
}

impl Default for Options {
    fn default() -> Self {
        Options { balance: Balance::Edges, tolerance: 0.03, order: Order::Locality, seed: 1 }
    }
}

/// Gives every node an owner among `parts` parts, with few edges between them.
pub fn divide(graph: &Graph, parts: usize, options: &Options) -> Result<Vec<u32>> {
    let n = graph.nodes();
    if parts == 0 {
        return Err(Error::Setting("a partition needs at least 1 part".into()));
    }
    if parts > n {
        return Err(Error::Setting(format!(
            "{parts} parts of a graph of {n} nodes: some would be empty; use at most {n}, \
             and rather parts of thousands of nodes"
        )));
    }
    if !(options.tolerance.is_finite() && options.tolerance >= 0.0) {
        return Err(Error::Setting(format!("tolerance {} must be 0 or more", options.tolerance)));
    }
    if parts == 1 {
        return Ok(vec![0; n]);
    }
    let narrow = |v: u64| metis::Idx::try_from(v).ok();
    let indptr: Option<Vec<metis::Idx>> = graph.indptr().iter().map(|&v| narrow(v)).collect();
    let Some(indptr) = indptr else {
        return Err(Error::Graph(format!("{} edges are too many for 32-bit METIS", graph.edges())));
    };
    let indices: Vec<metis::Idx> = graph.indices().iter().map(|&j| j as metis::Idx).collect();
    let weight: Vec<metis::Idx> = (0..n)
        .map(|i| match options.balance {
            Balance::Edges => 1 + graph.neighbour_count(i) as metis::Idx,
            Balance::Nodes => 1,
        })
        .collect();
    let contiguous = contiguous(graph);
    // k-way can leave parts empty on tiny or star-like graphs; recursive bisection rarely does.
    let mut owner = vec![0; n];
    for recursive in [false, true] {
        let fail = |e| Error::Graph(format!("METIS could not divide the graph: {e}"));
        let problem = metis::Graph::new(1, parts as metis::Idx, &indptr, &indices)
            .map_err(|e| Error::Graph(format!("METIS did not take the graph: {e}")))?
            .set_vwgt(&weight)
            .set_option(metis::option::Seed(options.seed))
            .set_option(
                metis::option::UFactor((options.tolerance * 1000.0).max(1.0) as metis::Idx),
            );
        if recursive {
            problem.part_recursive(&mut owner).map_err(fail)?;
        } else {
            let problem = problem.set_option(metis::option::Contig(contiguous));
            problem.part_kway(&mut owner).map_err(fail)?;
        }
        let mut sizes = vec![0usize; parts];
        owner.iter().for_each(|&p| sizes[p as usize] += 1);
        if sizes.iter().all(|&s| s > 0) {
            return Ok(owner.into_iter().map(|p| p as u32).collect());
        }
    }
    Err(Error::Setting(format!(
        "METIS finds no {parts} non-empty parts of this graph of {n} nodes; use fewer parts"
    )))
}

/// Nodes up to which METIS keeps parts contiguous at no cost that anybody notices.
const SMALL: usize = 20_000;

/// Whether METIS is asked for contiguous parts: where it can (it demands a connected graph), and
/// where that is cheap. For every node that it would like to move it looks whether the rest of the
/// part hangs together without it, and on graphs with hubs, where nearly all nodes are at borders,
/// that takes minutes. There the part of a node says little about where it is, too.
///
/// Hubs show in the mean degree of a neighbour, `Σ d² / Σ d`: on meshes and nearest-neighbour graphs it
/// is the mean degree and a little more.
fn contiguous(graph: &Graph) -> bool {
    let n = graph.nodes();
    let squares: f64 = (0..n).map(|i| (graph.neighbour_count(i) as f64).powi(2)).sum();
    let entries = 2.0 * graph.edges() as f64;
    let hubs = squares * n as f64 > 2.0 * entries * entries;
    (n <= SMALL || !hubs) && graph::components(graph).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::EdgeList;

    /// A ring of `n` nodes, of which every hundredth is joined to `spokes` others.
    fn ring(n: u32, spokes: u32) -> Graph {
        let mut edges = EdgeList::unweighted();
        for i in 0..n {
            edges.push(i, (i + 1) % n, 1.0);
            if i % 100 == 0 {
                (0..spokes).for_each(|k| edges.push(i, (i + 7 + 31 * k) % n, 1.0));
            }
        }
        edges.into_graph(n as usize).expect("a graph").0
    }

    #[test]
    fn parts_are_contiguous_where_that_is_cheap() {
        assert!(contiguous(&ring(50_000, 0)));
        assert!(contiguous(&ring(10_000, 100)));
        assert!(!contiguous(&ring(50_000, 100)));
        let mut edges = EdgeList::unweighted();
        edges.push(0, 1, 1.0);
        edges.push(2, 3, 1.0);
        assert!(!contiguous(&edges.into_graph(4).expect("a graph").0));
        for parts in [2, 8] {
            let graph = ring(50_000, 100);
            let options = Options { balance: Balance::Nodes, ..Options::default() };
            let owner = divide(&graph, parts, &options).expect("parts");
            let mut sizes = vec![0; parts];
            owner.iter().for_each(|&p| sizes[p as usize] += 1);
            assert!(sizes.iter().all(|s| *s as f64 <= 1.05 * 50_000.0 / parts as f64), "{sizes:?}");
        }
    }
}
