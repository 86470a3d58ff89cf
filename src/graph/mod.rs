//! Undirected graphs: symmetric CSR with `u32` columns and optional positive weights.
//!
//! Here: the graph itself ([`Graph`]), cleaning of edge lists ([`EdgeList`]), what can be said
//! of a graph ([`components`], [`diameter_estimate`]), graphs made from graphs ([`k_hop`]) and
//! from points ([`delaunay`]). Not here: values at the nodes (see [`crate::dataset`]).

mod build;
pub mod delaunay;
mod structure;

pub use build::{Cleaning, EdgeList};
pub use structure::{Components, components, diameter_estimate, k_hop};

use crate::error::{Error, Result};

/// A symmetric graph without self-loops in compressed sparse rows.
///
/// Row `i` holds the neighbours of node `i` in ascending order; an edge `{i, j}` is stored in
/// both rows with the same weight `w_ij > 0`. Without weights every `w_ij = 1`.
///
/// ```
/// use dgmrf::graph::EdgeList;
/// // A triangle with a tail, given carelessly: one edge twice, one self-loop.
/// let mut edges = EdgeList::unweighted();
/// for (a, b) in [(0, 1), (1, 2), (2, 0), (0, 2), (3, 3), (2, 3)] {
///     edges.push(a, b, 1.0);
/// }
/// let (graph, cleaning) = edges.into_graph(4)?;
/// assert_eq!((graph.nodes(), graph.edges()), (4, 4));
/// assert_eq!((cleaning.duplicates, cleaning.self_loops), (1, 1));
/// assert_eq!(graph.neighbours(2), [0, 1, 3]);
/// # Ok::<(), dgmrf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    weights: Option<Vec<f64>>,
}

impl Graph {
    /// Takes CSR arrays as they are, after checking every promise of the type.
    pub fn from_csr(
        indptr: Vec<u64>,
        indices: Vec<u32>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let graph = Graph { indptr, indices, weights };
        graph.check()?;
        Ok(graph)
    }

    /// Arrays whose promises the caller has just established (sorted, symmetric, positive).
    pub(crate) fn from_csr_trusted(
        indptr: Vec<u64>,
        indices: Vec<u32>,
        weights: Option<Vec<f64>>,
    ) -> Self {
        let graph = Graph { indptr, indices, weights };
        debug_assert!(graph.check().is_ok());
        graph
    }

    /// Number of nodes `N`.
    pub fn nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of undirected edges.
    pub fn edges(&self) -> usize {
        self.indices.len() / 2
    }

    /// Whether edges carry weights.
    pub fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// Row pointers, `N + 1` of them.
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Column of every stored entry, two per edge.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Weight of every stored entry, if the graph has weights.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Forgets the weights (`model.weighted = false`).
    pub fn without_weights(mut self) -> Self {
        self.weights = None;
        self
    }

    fn row(&self, i: usize) -> std::ops::Range<usize> {
        self.indptr[i] as usize..self.indptr[i + 1] as usize
    }

    /// The neighbours of node `i`, ascending.
    pub fn neighbours(&self, i: usize) -> &[u32] {
        &self.indices[self.row(i)]
    }

    /// Neighbours of `i` with the weights of their edges.
    pub fn weighted_neighbours(&self, i: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let row = self.row(i);
        row.map(move |k| (self.indices[k], self.weights.as_ref().map_or(1.0, |w| w[k])))
    }

    /// Number of neighbours of node `i`.
    pub fn neighbour_count(&self, i: usize) -> usize {
        self.row(i).len()
    }

    /// Weighted degrees `d_i = Σ_j w_ij` (the number of neighbours without weights).
    pub fn degrees(&self) -> Vec<f64> {
        (0..self.nodes())
            .map(|i| match &self.weights {
                Some(w) => w[self.row(i)].iter().sum(),
                None => self.neighbour_count(i) as f64,
            })
            .collect()
    }

    /// The first node without any edge; no layer is defined on it because `d_i = 0`.
    pub fn first_isolated(&self) -> Option<usize> {
        (0..self.nodes()).find(|&i| self.neighbour_count(i) == 0)
    }

    /// Each undirected edge once, `(i, j, w)` with `i < j`.
    pub fn edge_iter(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        (0..self.nodes()).flat_map(move |i| {
            self.weighted_neighbours(i)
                .filter(move |&(j, _)| (i as u32) < j)
                .map(move |(j, w)| (i as u32, j, w))
        })
    }

    /// Bytes held by the arrays.
    pub fn bytes(&self) -> usize {
        self.indptr.len() * 8
            + self.indices.len() * 4
            + self.weights.as_ref().map_or(0, |w| w.len() * 8)
    }

    /// A [`sprs`] view of the pattern with the given entries, one per stored index.
    pub fn pattern<'a, T>(&'a self, entries: &'a [T]) -> sprs::CsMatViewI<'a, T, u32, u64> {
        let n = self.nodes();
        sprs::CsMatViewI::new((n, n), &self.indptr[..], &self.indices[..], entries)
    }

    /// Files may lie: sizes, order, range, positivity and symmetry are all verified.
    fn check(&self) -> Result<()> {
        let fail = |message: String| Err(Error::Graph(message));
        let (Some(&first), Some(&last)) = (self.indptr.first(), self.indptr.last()) else {
            return fail("the graph has no row pointers".into());
        };
        let n = self.nodes();
        if n > u32::MAX as usize {
            return fail(format!("{n} nodes do not fit 32-bit node ids"));
        }
        if first != 0 || last as usize != self.indices.len() {
            return fail(format!(
                "row pointers run from {first} to {last}, but there are {} entries",
                self.indices.len()
            ));
        }
        if self.indptr.windows(2).any(|w| w[0] > w[1]) {
            return fail("row pointers are not ascending".into());
        }
        if let Some(w) = &self.weights {
            if w.len() != self.indices.len() {
                return fail(format!("{} weights for {} entries", w.len(), self.indices.len()));
            }
            if let Some(bad) = w.iter().find(|w| !(w.is_finite() && **w > 0.0)) {
                return fail(format!("edge weight {bad} is not a positive number"));
            }
        }
        for i in 0..n {
            let row = self.neighbours(i);
            if row.windows(2).any(|w| w[0] >= w[1]) {
                return fail(format!("the neighbours of node {i} are not ascending"));
            }
            if row.last().is_some_and(|&j| j as usize >= n) {
                return fail(format!("node {i} has a neighbour outside 0..{n}"));
            }
            if row.binary_search(&(i as u32)).is_ok() {
                return fail(format!("node {i} has an edge to itself"));
            }
        }
        self.check_symmetry()
    }

    /// Rows are sorted, so walking the rows in order meets each row's mirror entries in order:
    /// one cursor per row proves symmetry in a single pass.
    fn check_symmetry(&self) -> Result<()> {
        let mut cursor: Vec<u64> = self.indptr[..self.nodes()].to_vec();
        for i in 0..self.nodes() {
            for k in self.row(i) {
                let j = self.indices[k] as usize;
                let mirror = cursor[j] as usize;
                let matches = mirror < self.indptr[j + 1] as usize
                    && self.indices[mirror] as usize == i
                    && self.weights.as_ref().is_none_or(|w| w[mirror] == w[k]);
                if !matches {
                    return Err(Error::Graph(format!(
                        "edge {i}-{j} has no equal counterpart {j}-{i}: the graph must be symmetric"
                    )));
                }
                cursor[j] += 1;
            }
        }
        Ok(())
    }
}
