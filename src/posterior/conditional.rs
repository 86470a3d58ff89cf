//! Each node given all nodes but those around it: what Rao–Blackwellised variances are made of.

use crate::linalg::SparseColumns;
use crate::partition::Overlap;
use rayon::prelude::*;

/// For every owned node `i` and a set `A` of nodes around it, `x_A | x_rest` is Gaussian with
/// precision `Q̃_AA`. For a zero-mean sample with `Q̃ x = b`:
///
/// ```text
/// Var[x_i | rest] = (Q̃_AA⁻¹)_ii,      E[x_i | rest] = x_i − (Q̃_AA⁻¹ b_A)_i
/// ```
///
/// (Sidén, Lindgren, Bolin and Villani 2018, with a set of its own for each node.) `A` is the node
/// with those nearest to it, so it does not depend on how the graph is divided.
pub struct Conditionals {
    /// `(Q̃_AA⁻¹)_ii` of every owned row.
    pub variance: Vec<f64>,
    indptr: Vec<usize>,
    /// Members of `A` as rows of the overlap, and row `i` of `Q̃_AA⁻¹`.
    members: Vec<u32>,
    weights: Vec<f64>,
}

/// Hops that a set reaches at most.
pub const RADIUS: usize = 3;
/// Nodes of a set at most.
const SIZE: usize = 24;
/// Nodes with more neighbours than this are not passed through on the way to further ones.
const HUB: usize = 256;

impl Conditionals {
    /// `columns` must cover [`RADIUS`] rings, `weight` is `W` of the same rows.
    pub fn new(overlap: &Overlap, columns: &SparseColumns, weight: &[f64]) -> Self {
        let tasks: Vec<Task> = (0..overlap.owned.div_ceil(TASK))
            .into_par_iter()
            .map(|task| {
                let range = task * TASK..overlap.owned.min((task + 1) * TASK);
                Task::run(overlap, columns, weight, range)
            })
            .collect();
        let mut all = Conditionals {
            variance: Vec::with_capacity(overlap.owned),
            indptr: vec![0],
            members: Vec::new(),
            weights: Vec::new(),
        };
        for task in tasks {
            all.variance.extend(task.variance);
            let before = all.members.len();
            all.indptr.extend(task.ends.iter().map(|end| before + end));
            all.members.extend(task.members);
            all.weights.extend(task.weights);
        }
        all
    }

    /// Adds the squares of the conditional means of all columns to `sums`, one per owned row.
    /// `u` are samples of what is wanted, the field itself or the field with something added that
    /// the conditioning holds fixed; `b` the right-hand sides, those of the rings in `ghosts`.
    pub fn add_squares(
        &self,
        u: &[f64],
        b: &[f64],
        ghosts: &[f64],
        columns: usize,
        sums: &mut [f64],
    ) {
        let owned = sums.len();
        let right = |j: usize| match j.checked_sub(owned) {
            None => &b[j * columns..][..columns],
            Some(ghost) => &ghosts[ghost * columns..][..columns],
        };
        sums.par_iter_mut().with_min_len(TASK).enumerate().for_each_init(
            || vec![0.0; columns],
            |mean, (i, sum)| {
                mean.copy_from_slice(&u[i * columns..][..columns]);
                let range = self.indptr[i]..self.indptr[i + 1];
                for (&j, w) in self.members[range.clone()].iter().zip(&self.weights[range]) {
                    mean.iter_mut().zip(right(j as usize)).for_each(|(m, b)| *m -= w * b);
                }
                *sum += mean.iter().map(|m| m * m).sum::<f64>();
            },
        );
    }
}

/// Owned rows that one task works on.
const TASK: usize = 512;

#[derive(Default)]
struct Task {
    variance: Vec<f64>,
    ends: Vec<usize>,
    members: Vec<u32>,
    weights: Vec<f64>,
}

impl Task {
    fn run(
        overlap: &Overlap,
        columns: &SparseColumns,
        weight: &[f64],
        range: std::ops::Range<usize>,
    ) -> Self {
        let mut task = Task::default();
        let mut set = Set::new(overlap);
        let mut dense = vec![0.0; overlap.ids.len()];
        let mut q = [0.0; SIZE * SIZE];
        for i in range {
            set.around(overlap, i);
            // The node last: then the last row of the inverse needs one substitution only.
            set.members.reverse();
            let members = &set.members[..];
            fill(members, columns, weight, &mut dense, &mut q);
            let mut row = [0.0; SIZE];
            let n = members.len();
            last_row_of_inverse(&mut q, n, &mut row);
            task.variance.push(row[n - 1]);
            task.members.extend_from_slice(members);
            task.weights.extend_from_slice(&row[..n]);
            task.ends.push(task.members.len());
        }
        task
    }
}

/// `Q̃_AA`, lower half: `⟨G e_a, G e_b⟩ + W_a δ_ab`.
fn fill(
    members: &[u32],
    columns: &SparseColumns,
    weight: &[f64],
    dense: &mut [f64],
    q: &mut [f64; SIZE * SIZE],
) {
    for (a, &i) in members.iter().enumerate() {
        let (rows, values) = columns.column(i as usize);
        rows.iter().zip(values).for_each(|(&k, v)| dense[k as usize] = *v);
        for (b, &j) in members[..=a].iter().enumerate() {
            let (rows, values) = columns.column(j as usize);
            q[a * SIZE + b] = rows.iter().zip(values).map(|(&k, v)| dense[k as usize] * v).sum();
        }
        rows.iter().for_each(|&k| dense[k as usize] = 0.0);
        q[a * SIZE + a] += weight[i as usize];
    }
}

/// Last row of the inverse of a symmetric positive definite matrix of size `n`, whose lower half is
/// overwritten by its Cholesky factor: `Q⁻¹ e_n = L⁻ᵀ e_n / L_nn`. By hand: a library call costs
/// more than these few hundred operations.
fn last_row_of_inverse(q: &mut [f64; SIZE * SIZE], n: usize, row: &mut [f64; SIZE]) {
    for j in 0..n {
        for k in 0..j {
            let factor = q[j * SIZE + k];
            for i in j..n {
                q[i * SIZE + j] -= factor * q[i * SIZE + k];
            }
        }
        let pivot = q[j * SIZE + j].sqrt();
        (j..n).for_each(|i| q[i * SIZE + j] /= pivot);
    }
    row[..n].fill(0.0);
    row[n - 1] = 1.0 / q[(n - 1) * SIZE + n - 1];
    for j in (0..n).rev() {
        row[j] /= q[j * SIZE + j];
        for k in 0..j {
            row[k] -= q[j * SIZE + k] * row[j];
        }
    }
}

/// The nearest nodes, by hops and then by original id.
struct Set {
    members: Vec<u32>,
    marked: Vec<bool>,
    ring: Vec<u32>,
}

impl Set {
    fn new(overlap: &Overlap) -> Self {
        Set { members: Vec::new(), marked: vec![false; overlap.ids.len()], ring: Vec::new() }
    }

    fn around(&mut self, overlap: &Overlap, i: usize) {
        self.members.clear();
        self.members.push(i as u32);
        self.marked[i] = true;
        let mut ring = 0..1;
        for hop in 0..RADIUS {
            self.ring.clear();
            for &j in &self.members[ring.clone()] {
                if hop > 0 && overlap.neighbours(j as usize).count() > HUB {
                    continue;
                }
                for (k, _) in overlap.neighbours(j as usize) {
                    if !std::mem::replace(&mut self.marked[k], true) {
                        self.ring.push(k as u32);
                    }
                }
            }
            self.ring.sort_unstable_by_key(|&k| overlap.ids[k as usize]);
            let room = (SIZE - self.members.len()).min(self.ring.len());
            for &k in &self.ring[room..] {
                self.marked[k as usize] = false;
            }
            ring = self.members.len()..self.members.len() + room;
            self.members.extend_from_slice(&self.ring[..room]);
        }
        self.members.iter().for_each(|&k| self.marked[k as usize] = false);
    }
}
