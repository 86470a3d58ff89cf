//! Graphs from points in the plane: Delaunay triangulation and inverse-distance weights.

use super::{EdgeList, Graph};
use crate::error::{Error, Result};
use rayon::prelude::*;
use std::cmp::Ordering;

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
/// by about 1e-9 of the extent (as Qhull's `QJ` joggle does), for the triangulation only:
/// weights are computed from the true positions. Points on one line are an error.
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
    let Prepared { points: apart, node } = Prepared::new(points)?;
    let triangulation = delaunator::triangulate(&apart);
    drop(apart);
    // Each inner edge belongs to two half-edges; keep the one with the larger id.
    let ends = triangulation.halfedges.iter().enumerate().filter_map(|(e, &twin)| {
        let counted = twin != delaunator::EMPTY && twin > e;
        let end = |e: usize| node[triangulation.triangles[e]] as usize;
        (!counted).then(|| (end(e), end(delaunator::next_halfedge(e))))
    });
    let edges = weighting.edges(points, ends);
    drop(triangulation);
    let (graph, _) = edges.into_graph(points.len())?;
    if let Some(i) = graph.first_isolated() {
        return Err(Error::Graph(format!(
            "point {i} at {:?} is too near to others to be triangulated",
            points[i]
        )));
    }
    Ok(graph)
}

/// The points as the triangulation wants them.
struct Prepared {
    /// Scaled to the unit square, all different, from the centre outwards.
    points: Vec<delaunator::Point>,
    /// The node of every point.
    node: Vec<u32>,
}

/// Points nearer than this, in units of the extent, count as coincident: the triangulation
/// works in absolute rounding errors of the unit square.
const RESOLUTION: f64 = 1.0 / (1u64 << 44) as f64;

impl Prepared {
    /// The triangulation inserts points from the centre outwards. Given in this order, what it
    /// touches at a time lies together in memory.
    fn new(points: &[[f64; 2]]) -> Result<Self> {
        let (lo, hi) = points.iter().fold(([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]), |b, p| {
            ([0, 1].map(|k| b.0[k].min(p[k])), [0, 1].map(|k| b.1[k].max(p[k])))
        });
        let extent = (hi[0] - lo[0]).max(hi[1] - lo[1]);
        if !extent.is_finite() {
            return Err(Error::Graph("the points are too far apart for floating point".into()));
        }
        if is_line(points, lo, extent) {
            return Err(Error::Graph(
                "all points lie on one line: there is no triangulation".into(),
            ));
        }
        // A power of two: scaling must not bend what is straight.
        let scale = extent.log2().ceil().exp2().max(f64::MIN_POSITIVE).recip();
        let snap = |c: f64| (c / RESOLUTION).round() * RESOLUTION;
        let unit = |i: u32| [0, 1].map(|k| snap((points[i as usize][k] - lo[k]) * scale));
        let centre = [0, 1].map(|k| 0.5 * (hi[k] - lo[k]) * scale);
        let distance = |p: [f64; 2]| (p[0] - centre[0]).powi(2) + (p[1] - centre[1]).powi(2);

        let mut order: Vec<(f64, u32)> =
            (0..points.len() as u32).into_par_iter().map(|i| (distance(unit(i)), i)).collect();
        order.par_sort_unstable_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| unit(a.1).partial_cmp(&unit(b.1)).unwrap_or(Ordering::Equal))
                .then(a.1.cmp(&b.1))
        });
        let mut apart = Vec::with_capacity(points.len());
        let mut last = [f64::NAN; 2];
        let mut copies = 0u32;
        for &(_, i) in &order {
            let [x, y] = unit(i);
            copies = if [x, y] == last { copies + 1 } else { 0 };
            last = [x, y];
            // A sunflower spiral: copies of one point never coincide or line up.
            let radius = 1e-9 * f64::from(copies).sqrt();
            let (sin, cos) = (2.399_963_229_728_653 * f64::from(copies)).sin_cos();
            apart.push(delaunator::Point { x: x + radius * cos, y: y + radius * sin });
        }
        Ok(Prepared { points: apart, node: order.into_iter().map(|(_, i)| i).collect() })
    }
}

/// Whether all points lie within 1e-10 of the extent from the line between two far ones.
fn is_line(points: &[[f64; 2]], lo: [f64; 2], extent: f64) -> bool {
    let Some(first) = points.iter().find(|p| p[0] == lo[0]) else { return true };
    let from_first = |p: &[f64; 2]| [0, 1].map(|k| (p[k] - first[k]) / extent);
    let length = |v: [f64; 2]| v[0].hypot(v[1]);
    let far = points
        .iter()
        .map(from_first)
        .fold([0.0; 2], |far, v| if length(v) > length(far) { v } else { far });
    let across = |v: [f64; 2]| (far[0] * v[1] - far[1] * v[0]).abs();
    !points.iter().any(|p| across(from_first(p)) > 1e-10 * length(far))
}
