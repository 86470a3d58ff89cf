//! The entries of `G = G_L ... G_1`, column by column: `G e_i` reaches `L` hops around node `i`.

use super::layer::LayerEntries;
use crate::error::{Error, Result};
use crate::field::Coefficients;
use crate::linalg::SparseColumns;
use crate::partition::Overlap;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Columns of `G` that one task computes; each task has a dense vector of its own.
const TASK: usize = 4096;

/// Columns of rows `0..count` of an overlap. More than `limit` entries are an error: on graphs with
/// hubs, `L` hops may be the whole graph.
pub fn columns_of(
    overlap: &Overlap,
    layers: &[Coefficients],
    count: usize,
    limit: usize,
) -> Result<SparseColumns> {
    let layers = Layers::new(overlap, layers);
    let mut columns = SparseColumns::new(overlap.ids.len());
    // A few tasks at a time, so that the limit is met before memory is.
    let starts: Vec<usize> = (0..count).step_by(TASK).collect();
    for starts in starts.chunks(rayon::current_num_threads().max(1)) {
        let made: Vec<SparseColumns> = starts
            .par_iter()
            .map(|&start| {
                let mut task = SparseColumns::new(overlap.ids.len());
                let mut walk = Walk::new(&layers);
                (start..count.min(start + TASK)).for_each(|i| task.push(walk.column(i)));
                task
            })
            .collect();
        made.into_iter().for_each(|task| columns.append(task));
        if columns.entries() > limit {
            return Err(Error::Numeric(format!(
                "the entries of G do not fit: more than {limit} after {} of {count} nodes",
                columns.count()
            )));
        }
    }
    Ok(columns)
}

/// `(GᵀG)_ii` of the owned rows without keeping any column; nothing if that would mean to visit
/// more than `limit` entries.
pub fn squares(overlap: &Overlap, layers: &[Coefficients], limit: usize) -> Option<Vec<f64>> {
    let layers = Layers::new(overlap, layers);
    let visited = AtomicUsize::new(0);
    let tasks: Option<Vec<Vec<f64>>> = (0..overlap.owned.div_ceil(TASK))
        .into_par_iter()
        .map(|task| {
            let mut walk = Walk::new(&layers);
            (task * TASK..overlap.owned.min((task + 1) * TASK))
                .map(|i| {
                    walk.go(i);
                    let count = walk.reached.len();
                    let within = visited.fetch_add(count, Relaxed) + count <= limit;
                    let square = || walk.reached.iter().map(|&k| walk.values[k as usize].powi(2));
                    within.then(|| square().sum())
                })
                .collect()
        })
        .collect();
    tasks.map(|tasks| tasks.concat())
}

/// The layers on an overlap, entry by entry.
pub struct Layers<'a> {
    overlap: &'a Overlap,
    entries: Vec<LayerEntries>,
}

impl<'a> Layers<'a> {
    /// Takes over the coefficients.
    pub fn new(overlap: &'a Overlap, layers: &[Coefficients]) -> Self {
        let entries = layers.iter().map(|c| LayerEntries::new(c, &overlap.degree)).collect();
        Layers { overlap, entries }
    }
}

/// A sparse vector that walks through the layers: dense values, and which of them are reached.
pub struct Walk<'a> {
    layers: &'a Layers<'a>,
    values: Vec<f64>,
    reached: Vec<u32>,
    next: Vec<f64>,
    next_reached: Vec<u32>,
    marked: Vec<bool>,
    /// New numbers of rows, while there are any.
    numbers: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// At rest.
    pub fn new(layers: &'a Layers) -> Self {
        let n = layers.overlap.ids.len();
        Walk {
            layers,
            values: vec![0.0; n],
            reached: Vec::new(),
            next: vec![0.0; n],
            next_reached: Vec::new(),
            marked: vec![false; n],
            numbers: Vec::new(),
        }
    }

    /// Columns of some rows; nothing if these have more than `limit` entries. Their rows have
    /// numbers of their own, in the order in which they are met.
    pub fn columns(&mut self, members: &[u32], limit: usize) -> Option<SparseColumns> {
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.resize(self.marked.len(), u32::MAX);
        let mut columns = SparseColumns::new(0);
        let mut met: Vec<u32> = Vec::new();
        for &i in members {
            columns.push(self.column(i as usize).map(|(k, value)| {
                let number = &mut numbers[k as usize];
                if *number == u32::MAX {
                    *number = met.len() as u32;
                    met.push(k);
                }
                (*number, value)
            }));
            if columns.entries() > limit {
                break;
            }
        }
        columns.set_height(met.len());
        met.iter().for_each(|&k| numbers[k as usize] = u32::MAX);
        self.numbers = numbers;
        Some(columns).filter(|columns| columns.entries() <= limit)
    }

    /// Rows (ascending) and values of `G e_i`.
    fn column(&mut self, i: usize) -> impl Iterator<Item = (u32, f64)> {
        self.go(i);
        self.reached.sort_unstable();
        self.reached.iter().map(|&k| (k, self.values[k as usize]))
    }

    /// `G e_i`: `(G_l v)_k = s_k v_k + ρ (s_k/d_k) Σ_j w_kj v_j`, spread from each `j` reached.
    fn go(&mut self, i: usize) {
        let Layers { overlap, entries } = self.layers;
        self.reached.drain(..).for_each(|k| self.values[k as usize] = 0.0);
        self.values[i] = 1.0;
        self.reached.push(i as u32);
        for layer in entries {
            for &j in &self.reached {
                let j = j as usize;
                let v = std::mem::take(&mut self.values[j]);
                let mut add = |k: usize, term: f64| {
                    if !std::mem::replace(&mut self.marked[k], true) {
                        self.next_reached.push(k as u32);
                    }
                    self.next[k] += term;
                };
                add(j, layer.own[j] * v);
                overlap.neighbours(j).for_each(|(k, w)| add(k, layer.neighbour[k] * w * v));
            }
            self.reached.clear();
            std::mem::swap(&mut self.reached, &mut self.next_reached);
            std::mem::swap(&mut self.values, &mut self.next);
            self.reached.iter().for_each(|&k| self.marked[k as usize] = false);
        }
    }
}
