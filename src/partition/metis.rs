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
    // METIS demands a connected graph when asked for contiguous parts.
    let connected = graph::components(graph).count() == 1;
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
            let problem = problem.set_option(metis::option::Contig(connected));
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
