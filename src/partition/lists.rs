//! Edges as lists of neighbours: an [`Overlap`](super::Overlap) shares the edges of owned rows with
//! its [`Part`](super::Part) and holds the edges that it has collected from other ranks.

use std::sync::Arc;

/// Edges of some rows.
#[derive(Default)]
pub(super) struct Entries {
    pub indptr: Arc<Vec<u64>>,
    pub indices: Arc<Vec<u32>>,
    /// None where all weights are one.
    pub weights: Option<Arc<Vec<f64>>>,
}

/// Borrowed edges of all complete rows: for loops that ask for many rows.
#[derive(Clone, Copy)]
pub struct Lists<'a> {
    pub(super) owned: usize,
    pub(super) own: List<'a>,
    pub(super) beyond: List<'a>,
}

/// Borrowed edges of some rows.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    indptr: &'a [u64],
    indices: &'a [u32],
    weights: &'a [f64],
}

impl Entries {
    pub fn list(&self) -> List<'_> {
        let weights = self.weights.as_ref().map_or(&[][..], |weights| weights);
        List { indptr: &self.indptr, indices: &self.indices, weights }
    }
}

impl<'a> List<'a> {
    #[inline(always)]
    fn row(&self, row: usize) -> (&'a [u32], &'a [f64]) {
        let range = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        let weights =
            if self.weights.is_empty() { self.weights } else { &self.weights[range.clone()] };
        (&self.indices[range], weights)
    }
}

impl<'a> Lists<'a> {
    /// Neighbours of a complete row and the weights of the edges; no weights where all are one.
    #[inline(always)]
    pub fn row(&self, row: usize) -> (&'a [u32], &'a [f64]) {
        match row.checked_sub(self.owned) {
            None => self.own.row(row),
            Some(row) => self.beyond.row(row),
        }
    }
}

/// Edges that are still being collected.
pub(super) struct Collected {
    indptr: Vec<u64>,
    pub indices: Vec<u32>,
    pub weights: Vec<f64>,
}

impl Default for Collected {
    fn default() -> Self {
        Collected { indptr: vec![0], indices: Vec::new(), weights: Vec::new() }
    }
}

impl Collected {
    /// Ends a row.
    pub fn close(&mut self) {
        self.indptr.push(self.indices.len() as u64);
    }
}

impl From<Collected> for Entries {
    fn from(collected: Collected) -> Self {
        let Collected { indptr, indices, weights } = collected;
        Entries { indptr: indptr.into(), indices: indices.into(), weights: Some(weights.into()) }
    }
}
