//! Entries of `GᵀG + diag(w)` from the columns of a sparse `G`.

use super::SparseColumns;
use super::factor::Lower;
use rayon::prelude::*;

/// Columns of `G`, and its entries by rows: columns that share a row are found there.
pub struct Gram {
    columns: SparseColumns,
    /// Where rows of `G` begin, and which column and value each entry has.
    starts: Vec<usize>,
    by_row: Vec<u32>,
    values: Vec<f64>,
}

/// Columns of the matrix that one task computes.
const TASK: usize = 512;

impl Gram {
    /// Sorts the entries of the columns by rows.
    pub fn new(columns: SparseColumns) -> Self {
        let (n, rows) = (columns.count(), columns.height());
        let mut starts = vec![0usize; rows + 1];
        (0..n).for_each(|j| columns.column(j).0.iter().for_each(|&k| starts[k as usize + 1] += 1));
        (0..rows).for_each(|k| starts[k + 1] += starts[k]);
        let mut next = starts.clone();
        let mut by_row = vec![0; starts[rows]];
        let mut by_row_values = vec![0.0; starts[rows]];
        for j in 0..n {
            let (rows, values) = columns.column(j);
            for (&k, &v) in rows.iter().zip(values) {
                let at = &mut next[k as usize];
                (by_row[*at], by_row_values[*at]) = (j as u32, v);
                *at += 1;
            }
        }
        Gram { columns, starts, by_row, values: by_row_values }
    }

    /// Products of two entries that all of `GᵀG` is made of.
    pub fn work(&self) -> usize {
        self.starts.windows(2).map(|w| (w[1] - w[0]).pow(2)).sum()
    }

    /// The lower half of `GᵀG + diag(weight)`, column by column: column `j` holds `⟨G e_i, G e_j⟩`
    /// for all `i >= j` whose columns share a row with that of `j`.
    pub fn lower(&self, weight: &[f64]) -> Lower {
        let n = self.columns.count();
        let tasks: Vec<Lower> = (0..n.div_ceil(TASK))
            .into_par_iter()
            .map(|task| self.some(task * TASK..n.min((task + 1) * TASK), weight))
            .collect();
        let entries = tasks.iter().map(|task| task.rows.len()).sum();
        let mut matrix = Lower::with_capacity(n, entries);
        for task in tasks {
            let before = matrix.rows.len();
            matrix.ends.extend(task.ends[1..].iter().map(|end| before + end));
            matrix.rows.extend(task.rows);
            matrix.values.extend(task.values);
        }
        matrix
    }

    /// Some columns of the lower half.
    fn some(&self, range: std::ops::Range<usize>, weight: &[f64]) -> Lower {
        let n = self.columns.count();
        let mut matrix = Lower::with_capacity(range.len(), 0);
        let (mut sums, mut marked) = (vec![0.0; n], vec![false; n]);
        let mut met: Vec<usize> = Vec::new();
        for a in range {
            let (rows, values) = self.columns.column(a);
            for (&k, &v) in rows.iter().zip(values) {
                let row = self.starts[k as usize]..self.starts[k as usize + 1];
                // Columns of a row ascend: those before `a` are in its upper half.
                let first = self.by_row[row.clone()].partition_point(|&b| (b as usize) < a);
                let row = row.start + first..row.end;
                for (&b, &u) in self.by_row[row.clone()].iter().zip(&self.values[row]) {
                    let b = b as usize;
                    if !std::mem::replace(&mut marked[b], true) {
                        met.push(b);
                    }
                    sums[b] += u * v;
                }
            }
            met.sort_unstable();
            sums[a] += weight[a];
            for b in met.drain(..) {
                marked[b] = false;
                matrix.rows.push(b);
                matrix.values.push(std::mem::take(&mut sums[b]));
            }
            matrix.ends.push(matrix.rows.len());
        }
        matrix
    }
}
