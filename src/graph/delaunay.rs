//! Graphs from points in the plane: Delaunay triangulation and inverse-distance weights.

use super::{EdgeList, Graph};
use crate::error::{Error, Result};

/// How the length of an edge becomes its weight (paper, appendix E: `w = 1/(d + ε)`).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Weighting {
    /// All weights one.
    #[default]
    None,
    /// `1 / (d/d_max + ε)` with the longest edge `d_max`: what the paper's code computes.
    InverseRelative {
        /// Keeps coincident points finite; 0.01 in the paper's runs.
        epsilon: f64,
    },
    /// `1 / (d + ε)`: what the paper's text says.
    Inverse {
        /// In the units of the positions.
        epsilon: f64,
    },
}

impl Weighting {
    /// The given edges between points with their weights.
    pub fn edges(
        &self,
        points: &[[f64; 2]],
        ends: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> EdgeList {
        let length =
            |a: usize, b: usize| (points[a][0] - points[b][0]).hypot(points[a][1] - points[b][1]);
        let mut edges = match self {
            Weighting::None => EdgeList::unweighted(),
            _ => EdgeList::weighted(),
        };
        let longest = match self {
            Weighting::InverseRelative { .. } => {
                ends.clone().map(|(a, b)| length(a, b)).fold(0.0, f64::max)
            }
            _ => 1.0,
        };
        for (a, b) in ends {
            let weight = match self {
                Weighting::None => 1.0,
                Weighting::InverseRelative { epsilon } => 1.0 / (length(a, b) / longest + epsilon),
                Weighting::Inverse { epsilon } => 1.0 / (length(a, b) + epsilon),
            };
            edges.push(a as u32, b as u32, weight);
        }
        edges
    }
}

/// Delaunay graph of the points, all of which become nodes, weighted by `weighting`.
///
/// Coincident points would leave all but one of them without a triangle. They are moved apart
/// by a pseudo-random offset of about 1e-9 of the extent (as Qhull's `QJ` joggle does), for the
/// triangulation only: weights are computed from the true positions.
///
/// ```
/// use dgmrf::graph::delaunay::{self, Weighting};
/// let square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
/// let graph = delaunay::graph(&square, Weighting::None)?;
/// assert_eq!(graph.edges(), 5); // four sides and one diagonal
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub fn graph(points: &[[f64; 2]], weighting: Weighting) -> Result<Graph> {
    if points.len() < 3 {
        return Err(Error::Graph(format!(
            "a triangulation needs at least 3 points, there are {}",
            points.len()
        )));
    }
    if let Some(i) = points.iter().position(|p| !(p[0].is_finite() && p[1].is_finite())) {
        return Err(Error::Graph(format!("point {i} has a position that is not finite")));
    }
    let apart: Vec<delaunator::Point> =
        separate(points).into_iter().map(|[x, y]| delaunator::Point { x, y }).collect();
    let triangulation = delaunator::triangulate(&apart);
    if triangulation.triangles.is_empty() {
        return Err(Error::Graph("all points lie on one line: there is no triangulation".into()));
    }
    // Each inner edge belongs to two half-edges; keep the one with the larger id.
    let ends = triangulation.halfedges.iter().enumerate().filter_map(|(e, &twin)| {
        let counted = twin != delaunator::EMPTY && twin > e;
        let ends =
            (triangulation.triangles[e], triangulation.triangles[delaunator::next_halfedge(e)]);
        (!counted).then_some(ends)
    });
    let edges = weighting.edges(points, ends);
    drop(triangulation);
    Ok(edges.into_graph(points.len())?.0)
}

/// Moves every point that coincides with an earlier one by a tiny deterministic offset.
fn separate(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let extent = |axis: usize| {
        let (lo, hi) = points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), p| {
            (lo.min(p[axis]), hi.max(p[axis]))
        });
        hi - lo
    };
    let step = 1e-9 * extent(0).max(extent(1));
    let mut order: Vec<u32> = (0..points.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| {
        // Adding 0.0 turns -0.0 into 0.0, which coincide as points but not for `total_cmp`.
        let key = |k: u32| points[k as usize].map(|c| c + 0.0);
        let (p, q) = (key(a), key(b));
        p[0].total_cmp(&q[0]).then(p[1].total_cmp(&q[1])).then(a.cmp(&b))
    });
    let mut apart = points.to_vec();
    let mut copies = 0u32;
    for pair in order.windows(2) {
        let (p, q) = (points[pair[0] as usize], points[pair[1] as usize]);
        copies = if p == q { copies + 1 } else { 0 };
        if copies > 0 {
            // A sunflower spiral: copies of one point never coincide or line up.
            let angle = 2.399_963_229_728_653 * f64::from(copies);
            let radius = step * f64::from(copies).sqrt();
            apart[pair[1] as usize] = [q[0] + radius * angle.cos(), q[1] + radius * angle.sin()];
        }
    }
    apart
}
