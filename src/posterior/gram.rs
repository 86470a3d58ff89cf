//! Entries of `Q̃ = GᵀG + σ⁻² I_m` from the columns of `G`.

use super::columns::Columns;
use super::factor::Lower;
use rayon::prelude::*;

/// The columns of `G`, and the same by rows, to find the columns that meet in one.
pub struct Gram {
    columns: Columns,
    /// Where rows of `G` begin, and which column and value each entry has.
    starts: Vec<usize>,
    by_row: Vec<(u32, f64)>,
}

/// Columns of the matrix that one task computes.
const TASK: usize = 512;

impl Gram {
    /// From columns whose rows are all below `rows`.
    pub fn new(columns: Columns, rows: usize) -> Self {
        let n = columns.count();
        let mut starts = vec![0usize; rows + 1];
        (0..n).for_each(|j| columns.column(j).0.iter().for_each(|&k| starts[k as usize + 1] += 1));
        (0..rows).for_each(|k| starts[k + 1] += starts[k]);
        let mut next = starts.clone();
        let mut by_row = vec![(0u32, 0.0); starts[rows]];
        for j in 0..n {
            let (rows, values) = columns.column(j);
            for (&k, &v) in rows.iter().zip(values) {
                by_row[next[k as usize]] = (j as u32, v);
                next[k as usize] += 1;
            }
        }
        Gram { columns, starts, by_row }
    }

    /// Products of two entries that all of `GᵀG` is made of.
    pub fn work(&self) -> usize {
        self.starts.windows(2).map(|w| (w[1] - w[0]).pow(2)).sum()
    }

    /// The lower half of `Q̃_AA` for the columns `A` in `members`, in their order, with `weight`
    /// `σ⁻² m` of all columns: column `j` holds `⟨G e_i, G e_j⟩` for all `i` after `j` whose columns
    /// share a row with that of `j`.
    pub fn lower(&self, members: &[u32], weight: &[f64]) -> Lower {
        let m = members.len();
        let mut place = vec![u32::MAX; self.columns.count()];
        members.iter().enumerate().for_each(|(a, &j)| place[j as usize] = a as u32);
        let tasks: Vec<Vec<(Vec<usize>, Vec<f64>)>> = (0..m.div_ceil(TASK))
            .into_par_iter()
            .map(|task| {
                let (mut sums, mut marked) = (vec![0.0; m], vec![false; m]);
                let mut met: Vec<usize> = Vec::new();
                (task * TASK..m.min((task + 1) * TASK))
                    .map(|a| {
                        let (rows, values) = self.columns.column(members[a] as usize);
                        for (&k, &v) in rows.iter().zip(values) {
                            let row = self.starts[k as usize]..self.starts[k as usize + 1];
                            for &(i, u) in &self.by_row[row] {
                                let b = place[i as usize];
                                if b != u32::MAX && b as usize >= a {
                                    let b = b as usize;
                                    if !std::mem::replace(&mut marked[b], true) {
                                        met.push(b);
                                    }
                                    sums[b] += u * v;
                                }
                            }
                        }
                        met.sort_unstable();
                        sums[a] += weight[members[a] as usize];
                        let rows = std::mem::take(&mut met);
                        let values = rows
                            .iter()
                            .map(|&b| {
                                marked[b] = false;
                                std::mem::take(&mut sums[b])
                            })
                            .collect();
                        (rows, values)
                    })
                    .collect()
            })
            .collect();
        let mut matrix = Lower { ends: vec![0], ..Lower::default() };
        for (rows, values) in tasks.into_iter().flatten() {
            matrix.rows.extend(rows);
            matrix.values.extend(values);
            matrix.ends.push(matrix.rows.len());
        }
        matrix
    }
}
