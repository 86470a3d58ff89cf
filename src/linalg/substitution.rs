//! Forward and backward substitution with the panels of a Cholesky factor.
//!
//! A few rows of a panel at a time are widened to double precision and applied to one or two
//! vectors of right-hand sides: as much as registers hold, so that a pass reads the factor once
//! forward and once backward for as many columns as it can. What happens to a column depends
//! neither on those beside it nor on the width of the vectors.
//!
//! By hand, because faer's solver wants the whole factor in double precision; it took 1.5 times as
//! long for 3 columns of a block of 7744 nodes, 2.1 times for 8 and 2.5 times for 16.

use super::panels::{Panels, Shape, Stored, TILE};
use pulp::{Arch, Simd, WithSimd};

/// Room to solve in; grows as needed.
#[derive(Default)]
pub struct Scratch {
    x: Vec<f64>,
    tile: Vec<f64>,
}

/// `v` becomes `M⁻¹ v = S L⁻ᵀ L⁻¹ S v`; `[n, columns]`, row-major. `values` are those of the
/// panels.
pub(super) fn solve<T: Stored>(
    panels: &Panels,
    values: &[T],
    v: &mut [f64],
    columns: usize,
    scratch: &mut Scratch,
) {
    Arch::new().dispatch(Solve { panels, values, v, columns, scratch });
}

/// A solution, compiled for the vector units found at run time.
struct Solve<'a, T> {
    panels: &'a Panels,
    values: &'a [T],
    v: &'a mut [f64],
    columns: usize,
    scratch: &'a mut Scratch,
}

impl<T: Stored> WithSimd for Solve<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<V: Simd>(mut self, simd: V) {
        let mut first = 0;
        while first < self.columns {
            // Each pass reads the factor: as many columns as there is room for in registers.
            first += match self.columns - first {
                left if left <= V::F64_LANES => self.pass::<V, 1>(simd, first, left),
                left => self.pass::<V, 2>(simd, first, left.min(2 * V::F64_LANES)),
            };
        }
    }
}

impl<T: Stored> Solve<'_, T> {
    /// Columns `first..first + count` in `G` vectors a row; says how many columns these are.
    #[inline(always)]
    fn pass<V: Simd, const G: usize>(&mut self, simd: V, first: usize, count: usize) -> usize {
        let Panels { order, scale, shapes, rows, .. } = self.panels;
        let Scratch { x, tile } = &mut *self.scratch;
        let (n, lanes) = (order.len(), G * V::F64_LANES);
        x.resize(x.len().max(n * lanes + 8), 0.0);
        // Rows begin where lines of the cache do.
        let start = x.as_ptr().align_offset(64).min(8);
        let x = &mut x[start..start + n * lanes];
        for ((x, &row), &s) in x.chunks_exact_mut(lanes).zip(order).zip(scale) {
            let v = &self.v[row as usize * self.columns + first..][..count];
            x.iter_mut().zip(v).for_each(|(x, v)| *x = s * v);
            x[count..].fill(0.0);
        }
        let widest = shapes.iter().map(|shape| shape.width).max().unwrap_or(0);
        tile.resize(tile.len().max(TILE * widest), 0.0);
        let vectors = V::as_mut_simd_f64s(x).0.as_chunks_mut::<G>().0;
        forward(simd, shapes, rows, self.values, vectors, tile);
        backward(simd, shapes, rows, self.values, vectors, tile);
        for ((x, &row), &s) in x.chunks_exact(lanes).zip(order).zip(scale) {
            let v = &mut self.v[row as usize * self.columns + first..][..count];
            v.iter_mut().zip(x).for_each(|(v, x)| *v = s * x);
        }
        count
    }
}

/// A row of right-hand sides or solutions.
type Row<V, const G: usize> = [<V as Simd>::f64s; G];

/// `x` becomes `L⁻¹ x`.
#[inline(always)]
fn forward<V: Simd, T: Stored, const G: usize>(
    simd: V,
    shapes: &[Shape],
    mut rows: &[u32],
    mut values: &[T],
    mut x: &mut [Row<V, G>],
    tile: &mut [f64],
) {
    // `x` begins with the panel at hand; what is before is done.
    let mut start = 0;
    for &shape in shapes {
        for first in (0..shape.width).step_by(TILE) {
            let height = shape.tile(first);
            let l = negate(take(&mut values, height * (first + height)), tile);
            let (done, rest) = x.split_at_mut(first);
            match height {
                TILE => forward_corner::<V, TILE, G>(simd, l, done, rest),
                3 => forward_corner::<V, 3, G>(simd, l, done, rest),
                2 => forward_corner::<V, 2, G>(simd, l, done, rest),
                _ => forward_corner::<V, 1, G>(simd, l, done, rest),
            }
        }
        let (solved, rest) = x.split_at_mut(shape.width);
        start += shape.width;
        let (tiles, left) = take(&mut rows, shape.below).as_chunks::<TILE>();
        for places in tiles {
            let l = negate(take(&mut values, TILE * shape.width), tile);
            forward_below(simd, l, solved, places, start, rest);
        }
        for &place in left {
            let l = negate(take(&mut values, shape.width), tile);
            forward_below(simd, l, solved, &[place], start, rest);
        }
        x = rest;
    }
}

/// Solves for a few rows of a triangle: `done` are the rows before them, `rest` begins with the
/// rows themselves.
#[inline(always)]
fn forward_corner<V: Simd, const R: usize, const G: usize>(
    simd: V,
    l: &[f64],
    done: &[Row<V, G>],
    rest: &mut [Row<V, G>],
) {
    let own = rest.first_chunk_mut::<R>().expect("rows of the tile");
    let mut sums = *own;
    add(simd, l, done, &mut sums);
    let stride = done.len() + R;
    for r in 0..R {
        let row = &l[r * stride + done.len()..][..R];
        let mut sum = sums[r];
        for q in 0..r {
            sum = add_scaled(simd, row[q], sums[q], sum);
        }
        sums[r] = scaled(simd, -1.0 / row[r], sum);
    }
    *own = sums;
}

#[inline(always)]
fn forward_below<V: Simd, const R: usize, const G: usize>(
    simd: V,
    l: &[f64],
    solved: &[Row<V, G>],
    places: &[u32; R],
    start: usize,
    x: &mut [Row<V, G>],
) {
    let mut sums = [[simd.splat_f64s(0.0); G]; R];
    for r in 0..R {
        sums[r] = x[places[r] as usize - start];
    }
    add(simd, l, solved, &mut sums);
    for r in 0..R {
        x[places[r] as usize - start] = sums[r];
    }
}

/// `sums_r += Σ_j l_rj x_j` over the first columns of `R` rows.
#[inline(always)]
fn add<V: Simd, const R: usize, const G: usize>(
    simd: V,
    l: &[f64],
    x: &[Row<V, G>],
    sums: &mut [Row<V, G>; R],
) {
    let stride = l.len() / R;
    let rows: [&[f64]; R] = std::array::from_fn(|r| &l[r * stride..][..x.len()]);
    let mut held = *sums;
    for (j, &x) in x.iter().enumerate() {
        for r in 0..R {
            held[r] = add_scaled(simd, rows[r][j], x, held[r]);
        }
    }
    *sums = held;
}

/// `x` becomes `L⁻ᵀ x`.
#[inline(always)]
fn backward<V: Simd, T: Stored, const G: usize>(
    simd: V,
    shapes: &[Shape],
    mut rows: &[u32],
    mut values: &[T],
    x: &mut [Row<V, G>],
    tile: &mut [f64],
) {
    let mut end = x.len();
    for &shape in shapes.iter().rev() {
        let start = end - shape.width;
        let (before, known) = x.split_at_mut(end);
        let own = &mut before[start..];
        let entries = take_last(&mut values, shape.entries());
        let (triangle, mut rectangle) = entries.split_at(shape.triangle());
        let (tiles, left) = take_last(&mut rows, shape.below).as_chunks::<TILE>();
        for places in tiles {
            let l = negate(take(&mut rectangle, TILE * shape.width), tile);
            let mut below = [[simd.splat_f64s(0.0); G]; TILE];
            for r in 0..TILE {
                below[r] = known[places[r] as usize - end];
            }
            add_transposed(simd, l, &below, own);
        }
        for &place in left {
            let l = negate(take(&mut rectangle, shape.width), tile);
            add_transposed(simd, l, &[known[place as usize - end]], own);
        }
        for first in (0..shape.width).step_by(TILE).rev() {
            let height = shape.tile(first);
            let entries = &triangle[Shape::before(first)..][..height * (first + height)];
            let l = negate(entries, tile);
            let (above, rest) = own.split_at_mut(first);
            match height {
                TILE => backward_corner::<V, TILE, G>(simd, l, above, rest),
                3 => backward_corner::<V, 3, G>(simd, l, above, rest),
                2 => backward_corner::<V, 2, G>(simd, l, above, rest),
                _ => backward_corner::<V, 1, G>(simd, l, above, rest),
            }
        }
        end = start;
    }
}

#[inline(always)]
fn backward_corner<V: Simd, const R: usize, const G: usize>(
    simd: V,
    l: &[f64],
    above: &mut [Row<V, G>],
    rest: &mut [Row<V, G>],
) {
    let own = rest.first_chunk_mut::<R>().expect("rows of the tile");
    let mut sums = *own;
    let stride = above.len() + R;
    for r in (0..R).rev() {
        let row = &l[r * stride + above.len()..][..R];
        sums[r] = scaled(simd, -1.0 / row[r], sums[r]);
        for q in 0..r {
            sums[q] = add_scaled(simd, row[q], sums[r], sums[q]);
        }
    }
    *own = sums;
    add_transposed(simd, l, &sums, above);
}

/// `x_j += Σ_r l_rj known_r` over the first columns of `R` rows.
#[inline(always)]
fn add_transposed<V: Simd, const R: usize, const G: usize>(
    simd: V,
    l: &[f64],
    known: &[Row<V, G>; R],
    x: &mut [Row<V, G>],
) {
    let stride = l.len() / R;
    let rows: [&[f64]; R] = std::array::from_fn(|r| &l[r * stride..][..x.len()]);
    let known = *known;
    for (j, x) in x.iter_mut().enumerate() {
        let mut sum = *x;
        for r in 0..R {
            sum = add_scaled(simd, rows[r][j], known[r], sum);
        }
        *x = sum;
    }
}

/// `l x + sum`, rounded once.
#[inline(always)]
fn add_scaled<V: Simd, const G: usize>(
    simd: V,
    l: f64,
    x: Row<V, G>,
    mut sum: Row<V, G>,
) -> Row<V, G> {
    let l = simd.splat_f64s(l);
    for g in 0..G {
        sum[g] = simd.mul_add_f64s(l, x[g], sum[g]);
    }
    sum
}

#[inline(always)]
fn scaled<V: Simd, const G: usize>(simd: V, s: f64, mut x: Row<V, G>) -> Row<V, G> {
    let s = simd.splat_f64s(s);
    for x in &mut x {
        *x = simd.mul_f64s(s, *x);
    }
    x
}

/// Entries in double precision, with the sign that they are added with.
#[inline(always)]
fn negate<'a, T: Stored>(entries: &[T], tile: &'a mut [f64]) -> &'a [f64] {
    let tile = &mut tile[..entries.len()];
    tile.iter_mut().zip(entries).for_each(|(wide, entry)| *wide = -entry.load());
    tile
}

#[inline(always)]
fn take<'a, T>(list: &mut &'a [T], count: usize) -> &'a [T] {
    let (head, rest) = list.split_at(count);
    *list = rest;
    head
}

#[inline(always)]
fn take_last<'a, T>(list: &mut &'a [T], count: usize) -> &'a [T] {
    let (rest, tail) = list.split_at(list.len() - count);
    *list = rest;
    tail
}
