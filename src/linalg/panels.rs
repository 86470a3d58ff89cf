//! A Cholesky factor to solve with, stored in single precision and used in double.
//!
//! Solving reads the factor twice and does little with it, so its bytes are what solving costs, in
//! time as in memory. Here `L` is rounded to half of them, entry by entry, once; all arithmetic
//! stays in double precision. What is solved with is then *exactly* symmetric and positive
//! definite, `M = L̂ L̂ᵀ` with `|L̂ − L| ≤ 2⁻²⁴ |L|`. Conjugate gradients need no more: a
//! preconditioner that differs a little from the matrix is as good as one that does not. (Sums in
//! single precision would make a slightly different `M` of every right-hand side.)
//!
//! Here: how `L` is stored. What is done with it is in [`substitution`].

use super::factor::FactorError;
use super::factor::{Factor, Panel, Pattern};
use super::substitution::{self, Scratch};

/// Rows of a panel that are worked on together: their sums stay in registers.
pub(super) const TILE: usize = 4;

/// How the entries of a factor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Rounded, for a preconditioner.
    Single,
    /// As computed, for a solution.
    Double,
}

/// `S P M Pᵀ S = L Lᵀ` with a permutation `P` that keeps `L` sparse, and a diagonal `S` of powers
/// of two that gives every row of `L` a largest entry between 1 and 2: nothing leaves the range of
/// single precision, whatever the units of `M` are, and nothing is rounded by it.
pub struct Panels {
    /// Row of the matrix that stands at each place of the factor.
    pub(super) order: Vec<u32>,
    /// The diagonal of `S`.
    pub(super) scale: Vec<f64>,
    /// Neighbouring columns with the same rows below them, a panel each.
    pub(super) shapes: Vec<Shape>,
    /// Places of the rows below the triangles, panel by panel.
    pub(super) rows: Vec<u32>,
    values: Values,
}

/// A panel: a triangle of `width` columns, and so many rows `below` it. Entries lie row by row;
/// those of the triangle in tiles of [`TILE`] rows, each a rectangle up to the diagonal of its last
/// row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub width: usize,
    pub below: usize,
}

enum Values {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Shape {
    /// Rows of the tile of the triangle that begins with row `first`.
    pub fn tile(self, first: usize) -> usize {
        TILE.min(self.width - first)
    }

    /// Entries of the triangle before row `first`, which begins a tile.
    pub fn before(first: usize) -> usize {
        (first / TILE) * (first / TILE + 1) / 2 * TILE * TILE
    }

    /// Entries of the triangle.
    pub fn triangle(self) -> usize {
        let last = self.width.saturating_sub(1) / TILE * TILE;
        Self::before(last) + (self.width - last) * self.width
    }

    /// Entries of the panel.
    pub fn entries(self) -> usize {
        self.triangle() + self.below * self.width
    }
}

impl Panels {
    /// Entries that the factor of a pattern will have once it is stored as panels.
    pub fn entries(pattern: &Pattern) -> usize {
        pattern.panels().map(|(width, below)| Shape { width, below }.entries()).sum()
    }

    /// Stores a factor made by [`Pattern::to_solve`].
    pub fn new(factor: &Factor, store: Store) -> Result<Self, FactorError> {
        let order = factor.order().iter().map(|&row| row as u32).collect();
        let (scale, shapes, rows) = layout(factor)?;
        let mut panels = Panels { order, scale, shapes, rows, values: Values::Double(Vec::new()) };
        panels.values = match store {
            Store::Single => Values::Single(panels.pack(factor)?),
            Store::Double => Values::Double(panels.pack(factor)?),
        };
        Ok(panels)
    }

    fn pack<T: Stored>(&self, factor: &Factor) -> Result<Vec<T>, FactorError> {
        let mut values = Vec::with_capacity(self.shapes.iter().map(|s| s.entries()).sum());
        for ((panel, l), &shape) in factor.panels().zip(&self.shapes) {
            let (width, height) = (shape.width, shape.width + shape.below);
            for first in (0..width).step_by(TILE) {
                let end = first + shape.tile(first);
                for i in first..end {
                    let s = self.scale[panel.start + i];
                    values.extend((0..=i).map(|j| T::store(s * l[j * height + i])));
                    values.extend((i + 1..end).map(|_| T::store(0.0)));
                    let pivot = values[values.len() - (end - i)].load();
                    // So small beside the rest of its row: the block is singular as stored.
                    if !(pivot > 0.0 && pivot.is_finite()) {
                        return Err(FactorError::NotDefiniteAsStored);
                    }
                }
            }
            for (i, &row) in (width..).zip(panel.below) {
                let s = self.scale[row];
                values.extend((0..width).map(|j| T::store(s * l[j * height + i])));
            }
        }
        Ok(values)
    }

    /// `v` becomes `M⁻¹ v`; `[n, columns]`, row-major.
    pub fn solve(&self, v: &mut [f64], columns: usize, scratch: &mut Scratch) {
        assert_eq!(v.len(), self.order.len() * columns, "a row for each of the matrix");
        match &self.values {
            Values::Single(values) => substitution::solve(self, values, v, columns, scratch),
            Values::Double(values) => substitution::solve(self, values, v, columns, scratch),
        }
    }
}

/// Scales of all rows, shapes of all panels, and the rows below their triangles.
type Layout = (Vec<f64>, Vec<Shape>, Vec<u32>);

/// How a factor is to be stored.
fn layout(factor: &Factor) -> Result<Layout, FactorError> {
    let mut largest = vec![0.0f64; factor.order().len()];
    let (mut shapes, mut rows) = (Vec::new(), Vec::new());
    for (panel, l) in factor.panels() {
        let Panel { start, width, below, .. } = panel;
        shapes.push(Shape { width, below: below.len() });
        rows.extend(below.iter().map(|&i| i as u32));
        for (j, column) in l.chunks_exact(width + below.len()).enumerate() {
            let (triangle, rest) = column.split_at(width);
            for (most, l) in largest[start + j..].iter_mut().zip(&triangle[j..]) {
                *most = most.max(l.abs());
            }
            for (&i, l) in below.iter().zip(rest) {
                largest[i] = largest[i].max(l.abs());
            }
        }
    }
    if !largest.iter().all(|most| most.is_normal()) {
        return Err(FactorError::NotDefiniteAsStored);
    }
    // 2^−k of a number in [2^k, 2^(k+1)): the exponent alone, mirrored.
    let mirrored = |most: f64| f64::from_bits((2046 << 52) - (most.to_bits() & (2047 << 52)));
    Ok((largest.into_iter().map(mirrored).collect(), shapes, rows))
}

/// What entries of a factor are stored as.
pub(super) trait Stored: Copy {
    fn store(value: f64) -> Self;
    fn load(self) -> f64;
}

impl Stored for f64 {
    fn store(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn load(self) -> f64 {
        self
    }
}

impl Stored for f32 {
    /// Rounds; subnormal numbers become zero: they are slow, and 10³⁸ times smaller than their row.
    fn store(value: f64) -> Self {
        let rounded = value as f32;
        if rounded.is_subnormal() { 0.0 } else { rounded }
    }
    #[inline(always)]
    fn load(self) -> f64 {
        f64::from(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::factor::Lower;
    use super::*;
    use crate::random::{Purpose, Stream};
    use faer::prelude::*;
    use faer::{Mat, Side};

    /// A Laplacian of nodes on a ring, with neighbours at a few distances, and `excess` on the
    /// diagonal: the smallest eigenvalue.
    fn matrix(n: usize, excess: f64) -> Mat<f64> {
        let stream = Stream::new(5, Purpose::Test, n as u64);
        let mut full = Mat::<f64>::zeros(n, n);
        for (i, distance) in (0..n).flat_map(|i| [1, 2, 7, 31].map(|d| (i, d))) {
            let j = (i + distance) % n;
            let value = -stream.uniform(i as u64, distance as u64);
            if i != j {
                full[(i, j)] += value;
                full[(j, i)] += value;
                full[(i, i)] += value.abs();
                full[(j, j)] += value.abs();
            }
        }
        (0..n).for_each(|i| full[(i, i)] += excess);
        full
    }

    fn lower(full: &Mat<f64>) -> Lower {
        let n = full.nrows();
        let mut matrix = Lower::with_capacity(n, 0);
        for j in 0..n {
            for i in (j..n).filter(|&i| full[(i, j)] != 0.0) {
                matrix.rows.push(i);
                matrix.values.push(full[(i, j)]);
            }
            matrix.ends.push(matrix.rows.len());
        }
        matrix
    }

    fn panels(full: &Mat<f64>, store: Store) -> Result<Panels, FactorError> {
        let matrix = lower(full);
        let pattern = Pattern::to_solve(&matrix)?;
        let entries = Panels::entries(&pattern);
        let made = Panels::new(&pattern.factorise(&matrix)?, store)?;
        let stored = match &made.values {
            Values::Single(values) => values.len(),
            Values::Double(values) => values.len(),
        };
        assert_eq!(stored, entries, "entries are counted before they are there");
        Ok(made)
    }

    fn normals(n: usize, columns: usize) -> Vec<f64> {
        let stream = Stream::new(6, Purpose::Test, 0);
        let pairs = (0..n as u64).flat_map(|i| (0..columns as u64).map(move |c| (i, c)));
        pairs.map(|(i, c)| stream.normal(i, c)).collect()
    }

    fn solved(panels: &Panels, b: &[f64], columns: usize) -> Vec<f64> {
        let mut x = b.to_vec();
        panels.solve(&mut x, columns, &mut Scratch::default());
        x
    }

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn solutions_are_those_of_a_dense_factor() {
        // One to many columns in all kinds of tiles; 1 is a diagonal matrix.
        for n in [1, 2, 3, 5, 8, 33, 64, 150, 301] {
            let full = matrix(n, 0.1);
            let dense = full.llt(Side::Lower).expect("positive definite");
            for (store, tolerance) in [(Store::Single, 2e-6), (Store::Double, 1e-13)] {
                let panels = panels(&full, store).expect("a factor");
                for columns in [1, 2, 3, 4, 7, 8, 9, 16, 17, 30] {
                    let b = normals(n, columns);
                    let x = solved(&panels, &b, columns);
                    let right = Mat::from_fn(n, columns, |i, c| b[i * columns + c]);
                    let expected = dense.solve(&right);
                    let got = Mat::from_fn(n, columns, |i, c| x[i * columns + c]);
                    let error = (&got - &expected).norm_l2() / expected.norm_l2();
                    assert!(error < tolerance, "{n} rows, {columns} columns, {store:?}: {error:e}");
                }
            }
        }
    }

    #[test]
    fn columns_do_not_see_each_other() {
        let panels = panels(&matrix(150, 0.1), Store::Single).expect("a factor");
        let b = normals(150, 21);
        let together = solved(&panels, &b, 21);
        for c in 0..21 {
            let alone: Vec<f64> = b.iter().skip(c).step_by(21).copied().collect();
            let among: Vec<f64> = together.iter().skip(c).step_by(21).copied().collect();
            assert_eq!(solved(&panels, &alone, 1), among, "column {c}, bit for bit");
        }
    }

    /// Whatever rounding does to `L`, conjugate gradients are given a symmetric positive definite
    /// operator: also where the matrix is so ill-conditioned (10¹¹) that rounding is felt.
    #[test]
    fn rounded_factors_are_symmetric_and_positive_definite() {
        for excess in [0.1, 1e-10] {
            let panels = panels(&matrix(301, excess), Store::Single).expect("a factor");
            let (x, y) = (normals(301, 1), normals(602, 1)[301..].to_vec());
            let [mx, my] = [&x, &y].map(|v| solved(&panels, v, 1));
            let scale = (dot(&x, &mx) * dot(&y, &my)).sqrt();
            assert!(dot(&x, &mx) > 0.0 && dot(&y, &my) > 0.0);
            let off = (dot(&x, &my) - dot(&mx, &y)).abs() / scale;
            assert!(off < 1e-12, "{excess:e}: {off:e}");
        }
    }

    /// Units do not matter: powers of two leave all digits as they are, also where the entries of
    /// `L` leave single precision.
    #[test]
    fn any_units_give_the_same_digits() {
        let n = 150;
        let full = matrix(n, 0.1);
        let b = normals(n, 3);
        let x = solved(&panels(&full, Store::Single).expect("a factor"), &b, 3);
        // All rows in one unit, large or small, or each in its own.
        for (first, step) in [(400, 0), (-400, 0), (-200, 37)] {
            let unit = |i: usize| 2f64.powi(first + (step * i as i32) % 401);
            let scaled = Mat::from_fn(n, n, |i, j| full[(i, j)] * unit(i) * unit(j));
            let right: Vec<f64> = (0..3 * n).map(|k| b[k] * unit(k / 3)).collect();
            let panels = panels(&scaled, Store::Single).expect("a factor");
            let got = solved(&panels, &right, 3);
            let got: Vec<f64> = (0..3 * n).map(|k| got[k] * unit(k / 3)).collect();
            assert_eq!(got, x, "2^{first} and {step}");
        }
    }

    #[test]
    fn singular_matrices_are_refused() {
        let singular = Mat::from_fn(2, 2, |_, _| 1.0);
        assert!(panels(&singular, Store::Single).is_err());
        let tiny = Mat::from_fn(1, 1, |_, _| 1e-310);
        assert!(panels(&tiny, Store::Single).is_ok(), "its root is a normal number");
        let infinite = Mat::from_fn(1, 1, |_, _| f64::INFINITY);
        assert!(panels(&infinite, Store::Single).is_err());
    }
}
