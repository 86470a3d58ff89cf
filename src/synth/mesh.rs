//! Large meshes with a smooth field, for scaling studies (up to 10⁷ nodes and beyond).
//!
//! Not a sample of any DGMRF: the values only have to be as smooth as real data, and cheap.

use super::{Observation, check_nodes};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::delaunay::{self, Weighting};
use crate::progress::Progress;
use crate::random::{Purpose, Stream};
use rayon::prelude::*;

words! {
    /// How the nodes of a mesh are placed and connected. Nodes are numbered row by row, as mesh
    /// generators do, so neighbours are near in memory too.
    pub enum Kind {
        /// One random point in each cell of a lattice, Delaunay triangulation
        /// (about 3 edges a node)
        #[default]
        Delaunay = "delaunay",
        /// A square lattice with 4 neighbours
        Grid = "grid",
    }
}

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mesh {
    /// Number of nodes; any number from 3 on.
    pub nodes: usize,
    /// Structured or not.
    pub kind: Kind,
    /// Edge weights.
    pub weighting: Weighting,
}

/// Plane waves in the field.
const WAVES: u64 = 32;

/// Makes the mesh and observes a smooth random field on it.
///
/// The field is `x(p) = sqrt(2/K) Σ_k cos(2π f_k·p + φ_k)` with K = 32 random waves of 1 to 8
/// periods over the unit square: mean about 0, variance about 1. `/truth` stays empty.
pub fn generate(mesh: &Mesh, options: &Observation) -> Result<Dataset> {
    check_nodes(mesh.nodes)?;
    options.check()?;
    let mut progress = Progress::new("mesh", 4);
    let lattice = Lattice::new(mesh.nodes);
    let (points, graph) = match mesh.kind {
        Kind::Delaunay => {
            let points = lattice.jittered(options.seed);
            progress.advance(1);
            let graph = delaunay::graph(&points, mesh.weighting)?;
            (points, graph)
        }
        Kind::Grid => {
            let points = lattice.points(|_, _| 0.5);
            progress.advance(1);
            let graph = lattice.graph(&points, mesh.weighting)?;
            (points, graph)
        }
    };
    progress.advance(1);
    let x = plane_waves(&points, options.seed);
    progress.advance(1);
    let mut data = options.data(graph, x)?;
    data.position = Some(points);
    progress.advance(1);
    Ok(data)
}

/// Square cells numbered row by row; the last row may be shorter.
struct Lattice {
    nodes: usize,
    columns: usize,
}

impl Lattice {
    /// `ceil(√N)` columns: the rows fit the unit square, and from 3 nodes on there are two of them.
    fn new(nodes: usize) -> Self {
        Lattice { nodes, columns: (nodes as f64).sqrt().ceil() as usize }
    }

    /// A point in every cell, at the `offset(node, axis)` in `[0, 1)` from its lower corner.
    fn points(&self, offset: impl Fn(u64, u64) -> f64 + Sync) -> Vec<[f64; 2]> {
        let side = 1.0 / self.columns as f64;
        (0..self.nodes)
            .into_par_iter()
            .map(|i| {
                let corner = [i % self.columns, i / self.columns];
                [0, 1].map(|axis| (corner[axis] as f64 + offset(i as u64, axis as u64)) * side)
            })
            .collect()
    }

    fn jittered(&self, seed: u64) -> Vec<[f64; 2]> {
        let stream = Stream::new(seed, Purpose::Position, 0);
        self.points(|node, axis| stream.uniform(node, axis))
    }

    fn graph(&self, points: &[[f64; 2]], weighting: Weighting) -> Result<Graph> {
        let ends = (0..self.nodes).flat_map(|i| {
            let right = (i + 1 < self.nodes && (i + 1) % self.columns != 0).then_some((i, i + 1));
            let above = (i + self.columns < self.nodes).then_some((i, i + self.columns));
            right.into_iter().chain(above)
        });
        let (graph, _) = weighting.edges(points, ends).into_graph(self.nodes)?;
        Ok(graph)
    }
}

fn plane_waves(points: &[[f64; 2]], seed: u64) -> Vec<f64> {
    let stream = Stream::new(seed, Purpose::Field, 0);
    let tau = std::f64::consts::TAU;
    let wave = |k| {
        let periods = 8f64.powf(stream.uniform(k, 0));
        let (sin, cos) = (tau * stream.uniform(k, 1)).sin_cos();
        [tau * periods * cos, tau * periods * sin, tau * stream.uniform(k, 2)]
    };
    let waves: Vec<[f64; 3]> = (0..WAVES).map(wave).collect();
    let amplitude = (2.0 / WAVES as f64).sqrt();
    let value = |p: &[f64; 2]| -> f64 {
        waves.iter().map(|w| (w[0] * p[0] + w[1] * p[1] + w[2]).cos()).sum::<f64>() * amplitude
    };
    points.par_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph;

    fn mesh(nodes: usize, kind: Kind) -> Dataset {
        let weighting = Weighting::None;
        generate(&Mesh { nodes, kind, weighting }, &Observation::default()).unwrap()
    }

    #[test]
    fn any_number_of_nodes_gives_a_connected_mesh() {
        for nodes in (3..60).chain([997, 1000]) {
            for kind in [Kind::Delaunay, Kind::Grid] {
                let data = mesh(nodes, kind);
                assert_eq!((data.nodes(), data.check().unwrap()), (nodes, vec![]), "{kind:?}");
                assert_eq!(graph::components(&data.graph).count(), 1);
            }
        }
    }

    #[test]
    fn full_grid_has_the_edges_of_a_grid() {
        let data = mesh(12 * 12, Kind::Grid);
        assert_eq!(data.graph.edges(), 2 * 12 * 11);
        assert_eq!(data.graph.neighbours(0), [1, 12]);
        assert_eq!(data.graph.neighbours(13), [1, 12, 14, 25]);
    }

    #[test]
    fn the_field_has_unit_scale_and_is_smooth() {
        let data = mesh(10_000, Kind::Grid);
        let n = data.nodes() as f64;
        let mean = data.y.iter().sum::<f64>() / n;
        let variance = data.y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.5 && (0.4..2.0).contains(&variance), "{mean} {variance}");
        let rough =
            data.graph.edge_iter().map(|(i, j, _)| (data.y[i as usize] - data.y[j as usize]).abs());
        assert!(rough.fold(0.0, f64::max) < 1.0);
    }
}
