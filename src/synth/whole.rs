//! Layers on a whole graph in this process: an engine without neighbours for the generators.

use crate::comm::World;
use crate::error::{Error, Result};
use crate::field::native::Native;
use crate::field::{Coefficients, Engine};
use crate::graph::Graph;
use crate::model::layer::{LayerEntries, LayerSpec};
use crate::partition::{Partition, order::Order};

/// Node values in the order of the graph.
pub(super) type Block = <Native<f64> as Engine>::Block;
/// A layer made ready.
pub(super) type Layer = crate::field::Layer<Block>;

/// An engine for all nodes of a graph, in their order. Engines of graphs with the same nodes can
/// share blocks.
pub(super) fn engine(graph: &Graph) -> Result<Native<f64>> {
    let partition = Partition::new(graph, vec![0; graph.nodes()], 1, Order::Original)?;
    Native::new(World::solo(), partition.part(0))
}

/// A layer on an engine, whatever its parameters.
pub(super) fn layer(engine: &Native<f64>, c: &Coefficients) -> Layer {
    let mut layer = engine.new_layer();
    engine.prepare(c, &mut layer);
    layer
}

/// Refuses graphs and numbers for which no layer is defined.
pub(super) fn check(graph: &Graph, layers: &[LayerSpec]) -> Result<()> {
    for LayerSpec { alpha, beta, gamma, bias, .. } in layers {
        if let Some(bad) = [alpha, beta, gamma, bias].into_iter().find(|v| !v.is_finite()) {
            return Err(Error::Setting(format!("layer parameter {bad} is not a finite number")));
        }
        if *alpha <= 0.0 {
            return Err(Error::Setting(format!("alpha {alpha} must be positive")));
        }
    }
    match graph.first_isolated() {
        Some(i) => Err(Error::Graph(format!("node {i} is isolated: no layer is defined there"))),
        None => Ok(()),
    }
}

/// The entries of `G`, for small graphs.
pub(super) fn matrix(graph: &Graph, c: &Coefficients) -> sprs::CsMat<f64> {
    let n = graph.nodes();
    let entries = LayerEntries::new(c, &graph.degrees());
    let mut matrix = sprs::TriMat::with_capacity((n, n), n + 2 * graph.edges());
    for i in 0..n {
        matrix.add_triplet(i, i, entries.own[i]);
        for (j, w) in graph.weighted_neighbours(i) {
            matrix.add_triplet(i, j as usize, entries.neighbour[i] * w);
        }
    }
    matrix.to_csr()
}
