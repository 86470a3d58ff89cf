//! From an edge list in any order to a clean symmetric [`Graph`].

use super::Graph;
use crate::error::{Error, Result};
use rayon::prelude::*;

/// Edges as they come: any order, both directions, duplicates and self-loops allowed.
#[derive(Debug, Clone, Default)]
pub struct EdgeList {
    ends: Vec<(u32, u32)>,
    weights: Option<Vec<f64>>,
}

/// What [`EdgeList::into_graph`] had to drop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaning {
    /// Repetitions of an edge, in either direction.
    pub duplicates: u64,
    /// Edges from a node to itself.
    pub self_loops: u64,
    /// Repetitions that came with another weight than the edge that was kept (the first).
    pub conflicting_weights: u64,
}

impl EdgeList {
    /// An empty list of edges of weight one.
    pub fn unweighted() -> Self {
        EdgeList::default()
    }

    /// An empty list of edges with weights.
    pub fn weighted() -> Self {
        EdgeList { ends: Vec::new(), weights: Some(Vec::new()) }
    }

    /// Adds an edge; the weight is ignored by an unweighted list.
    pub fn push(&mut self, a: u32, b: u32, weight: f64) {
        self.ends.push((a, b));
        if let Some(w) = &mut self.weights {
            w.push(weight);
        }
    }

    /// Number of edges so far, as given.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no edge yet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Makes the graph on nodes `0..nodes`: self-loops and repetitions are dropped and counted,
    /// the first weight of an edge wins.
    pub fn into_graph(self, nodes: usize) -> Result<(Graph, Cleaning)> {
        let EdgeList { ends, weights } = self;
        let mut cleaning = Cleaning::default();

        // Two bucket passes instead of one big sort: O(E), and each row stays in file order.
        let mut indptr = vec![0u64; nodes + 1];
        for &(a, b) in &ends {
            if a as usize >= nodes || b as usize >= nodes {
                return Err(Error::Graph(format!("edge {a}-{b} names a node outside 0..{nodes}")));
            }
            if a == b {
                cleaning.self_loops += 1;
            } else {
                indptr[a as usize + 1] += 1;
                indptr[b as usize + 1] += 1;
            }
        }
        for i in 0..nodes {
            indptr[i + 1] += indptr[i];
        }
        let stored = indptr[nodes] as usize;
        let mut cursor = indptr.clone();
        // (neighbour, position in the list): sorting by both keeps the first of equal edges first.
        let mut entries = vec![(0u32, 0u32); stored];
        if ends.len() > u32::MAX as usize {
            return Err(Error::Graph(format!("{} edges are more than 2^32", ends.len())));
        }
        for (k, &(a, b)) in ends.iter().enumerate() {
            if a != b {
                for (from, to) in [(a, b), (b, a)] {
                    entries[cursor[from as usize] as usize] = (to, k as u32);
                    cursor[from as usize] += 1;
                }
            }
        }
        drop(ends);
        sort_rows(&indptr, &mut entries);

        let mut kept = vec![0u64; nodes + 1];
        let mut indices = Vec::with_capacity(stored);
        let mut row_weights = weights.as_ref().map(|_| Vec::with_capacity(stored));
        let mut repeats = 0u64;
        let mut conflicts = 0u64;
        for i in 0..nodes {
            let mut first: Option<(u32, u32)> = None;
            for &(j, k) in &entries[indptr[i] as usize..indptr[i + 1] as usize] {
                if let Some((_, kept_at)) = first.filter(|f| f.0 == j) {
                    repeats += 1;
                    if let Some(w) = &weights {
                        conflicts += u64::from(w[k as usize] != w[kept_at as usize]);
                    }
                    continue;
                }
                first = Some((j, k));
                indices.push(j);
                if let (Some(out), Some(w)) = (&mut row_weights, &weights) {
                    out.push(w[k as usize]);
                }
            }
            kept[i + 1] = indices.len() as u64;
        }
        // Every repetition was met from both of its ends.
        cleaning.duplicates = repeats / 2;
        cleaning.conflicting_weights = conflicts / 2;
        if let Some(bad) = row_weights.iter().flatten().find(|w| !(w.is_finite() && **w > 0.0)) {
            return Err(Error::Graph(format!("edge weight {bad} is not a positive number")));
        }
        indices.shrink_to_fit();
        Ok((Graph::from_csr_trusted(kept, indices, row_weights), cleaning))
    }
}

/// Sorts every row by itself, rows in parallel (the result does not depend on the threads).
fn sort_rows(indptr: &[u64], entries: &mut [(u32, u32)]) {
    const ROWS: usize = 4096;
    let mut pieces = Vec::with_capacity(indptr.len() / ROWS + 1);
    let mut rest = entries;
    for rows in indptr[..indptr.len() - 1].chunks(ROWS) {
        let first = pieces.len() * ROWS;
        let end = indptr[first + rows.len()];
        let (piece, tail) = rest.split_at_mut((end - rows[0]) as usize);
        pieces.push((first, rows.len(), piece));
        rest = tail;
    }
    pieces.into_par_iter().for_each(|(first, rows, piece)| {
        let base = indptr[first];
        for i in first..first + rows {
            piece[(indptr[i] - base) as usize..(indptr[i + 1] - base) as usize].sort_unstable();
        }
    });
}
