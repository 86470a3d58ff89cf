//! The layer kernels: sweeps over the rows of a CSR matrix.
//!
//! Layers and their transposes are linear: a row of the result is made as soon as its neighbours
//! are gathered ([`linear`]). Gradients make sums and more of each row ([`gradient`]). There the
//! neighbours of some rows are gathered first and wait in the nearest cache, so that either loop
//! has the registers to itself: in one, the pointers of the second crowd out those of the first,
//! and both take twice as long.

#![allow(
    unsafe_code,
    reason = "vectors of checked rows, read and written without checking each again"
)]

use super::gather::{Gather, RawSum, RowEpilogue};
use super::gradient::{Epilogue, Forward, Gradient, Position, Row, Sums};
use super::lanes::{self, Cover};
use super::stencil::{Linear, Totals};
use crate::field::Scalar;
use crate::partition::Part;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// The owned rows of the adjacency matrix, columns in local rows.
pub(super) struct Csr<T> {
    pub(super) indptr: Vec<u32>,
    pub(super) indices: Vec<u32>,
    /// Empty when all weights are one.
    pub(super) weights: Vec<T>,
    /// Their squares, once they are asked for.
    pub(super) squared: Vec<T>,
    /// Rows up to here name owned rows only.
    interior: usize,
    owned: usize,
    rows: usize,
    /// How far ahead of a row most of its neighbours lie. The order of rows makes the input stream
    /// by, but its new rows do not come in sequence, so the processor's own prefetching misses
    /// them: the row this far ahead is asked for.
    pub(super) reach: usize,
}

impl<T: Scalar> Csr<T> {
    /// # Panics
    /// If a column lies outside the rows that the kernels may read (a bug of the caller: parts
    /// are verified when they are read).
    pub fn new(part: &Part) -> Self {
        let end_of_interior = part.indptr[part.interior] as usize;
        let (inner, outer) = part.indices.split_at(end_of_interior);
        let within = |indices: &[u32], rows: usize| indices.iter().all(|&j| (j as usize) < rows);
        assert!(within(inner, part.owned) && within(outer, part.ids.len()), "columns of the part");
        let ascending = part.indptr.windows(2).all(|w| w[0] <= w[1]);
        let last = part.indptr[part.owned] as usize;
        assert!(ascending && last == part.indices.len(), "row pointers of the part");
        Csr {
            indptr: part.indptr.iter().map(|&p| p as u32).collect(),
            indices: part.indices.to_vec(),
            weights: part.weights.iter().flat_map(|w| w.iter()).map(|&w| T::from_f64(w)).collect(),
            squared: Vec::new(),
            interior: part.interior,
            owned: part.owned,
            rows: part.ids.len(),
            reach: reach(part),
        }
    }

    /// Makes the squares of the weights ready.
    pub fn square_weights(&mut self) {
        if self.squared.len() != self.weights.len() {
            self.squared = self.weights.iter().map(|&w| w * w).collect();
        }
    }

    /// Verifies that `rows` are there, and all that they name in a block of `columns` columns.
    pub fn check(&self, input: &[T], columns: usize, rows: &Range<usize>) {
        let reachable = self.reachable(rows);
        assert!(rows.end <= self.owned && input.len() >= reachable * columns, "input rows");
    }

    /// Rows that `rows` may name.
    fn reachable(&self, rows: &Range<usize>) -> usize {
        if rows.end <= self.interior { self.owned } else { self.rows }
    }

    /// Bytes that a sweep over the rows must move: each input and output row once, the matrix
    /// once, two coefficients per row.
    pub fn bytes_of(&self, rows: Range<usize>, columns: usize) -> u64 {
        let entries = (self.indptr[rows.end] - self.indptr[rows.start]) as usize;
        let entry = 4 + if self.weights.is_empty() { 0 } else { T::BYTES };
        (rows.len() * (2 * columns * T::BYTES + 4 + 2 * T::BYTES) + entries * entry) as u64
    }
}

/// The distance ahead that 95 % of the owned rows stay below, and a little more.
fn reach(part: &Part) -> usize {
    let farthest = |i: usize| {
        let row = part.indptr[i] as usize..part.indptr[i + 1] as usize;
        let last = part.indices[row].iter().copied().filter(|&j| (j as usize) < part.owned).max();
        last.map_or(0, |j| (j as usize).saturating_sub(i))
    };
    let mut ahead: Vec<usize> = (0..part.owned).map(farthest).collect();
    ahead.sort_unstable();
    ahead.get(ahead.len() * 95 / 100).map_or(0, |&far| far + 64)
}

/// Rows that a sweep writes: those of a block, and of two node fields. Empty where nobody wants
/// them.
pub(super) struct Output<'a, T> {
    pub block: &'a mut [T],
    pub fields: [&'a mut [T]; 2],
}

impl<'a, T> Output<'a, T> {
    /// A block alone.
    pub fn block(block: &'a mut [T]) -> Self {
        Output { block, fields: [&mut [], &mut []] }
    }

    /// The first `rows` rows, and the rest.
    pub fn split(self, rows: usize, columns: usize) -> (Self, Self) {
        let split = |values: &'a mut [T], at: usize| values.split_at_mut(at.min(values.len()));
        let (block, rest) = split(self.block, rows * columns);
        let [(a, rest_a), (b, rest_b)] = self.fields.map(|field| split(field, rows));
        (Output { block, fields: [a, b] }, Output { block: rest, fields: [rest_a, rest_b] })
    }

    /// Takes the first `rows` rows away.
    pub fn take(&mut self, rows: usize, columns: usize) -> Self {
        let all = std::mem::replace(self, Output::block(&mut []));
        let (taken, rest) = all.split(rows, columns);
        *self = rest;
        taken
    }
}

/// A linear stencil on `rows`; `out` holds just these rows.
pub(super) fn linear<T: Scalar, L: Linear<T>>(
    stencil: &L,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: Range<usize>,
    out: &mut [T],
) {
    check(stencil, csr, input, columns, &rows);
    assert_eq!(out.len(), rows.len() * columns, "output rows");
    Arch::new().dispatch(Gather {
        csr,
        factors: stencil.factors(),
        squared: stencil.squared(),
        input: (input, columns),
        rows,
        tile: 0..columns,
        epilogue: InPlace(stencil),
        out: (out, columns),
    });
}

/// Verifies all that the loops rely on.
pub(super) fn check<T: Scalar, L: Linear<T>>(
    stencil: &L,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: &Range<usize>,
) {
    csr.check(input, columns, rows);
    let weights = !stencil.squared() || csr.squared.len() == csr.weights.len();
    assert!(weights, "squares of the weights");
    let factors = stencil.factors().is_none_or(|f| f.len() >= csr.reachable(rows));
    assert!(factors && stencil.rows() >= rows.end, "coefficient rows");
}

/// A linear stencil, row by row as its sums come in.
struct InPlace<'a, L>(&'a L);

impl<L> Clone for InPlace<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<L> Copy for InPlace<'_, L> {}

impl<T: Scalar, L: Linear<T>> RowEpilogue<T> for InPlace<'_, L> {
    #[inline(always)]
    unsafe fn apply<const W: usize>(&self, i: usize, own: &[T; W], sum: [T; W]) -> [T; W] {
        // SAFETY: the caller has verified the row.
        let [s, r, b] = unsafe { self.0.coefficients(i) };
        std::array::from_fn(|c| b + s * own[c] + r * sum[c])
    }
}

/// A gradient on `rows`; `out` holds just these rows.
pub(super) fn gradient<T: Scalar, K: Forward<T>, F: Epilogue<T>>(
    stencil: &Gradient<T, K, F>,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: Range<usize>,
    out: Output<T>,
) -> Totals {
    check(&stencil.adjoint, csr, input, columns, &rows);
    assert!(stencil.log_degree.len() >= rows.end, "coefficient rows");
    let whole =
        |values: &[T], width: usize| values.is_empty() || values.len() == rows.len() * width;
    assert!(whole(out.block, columns) && out.fields.iter().all(|f| whole(f, 1)), "output rows");
    let narrowest = columns / columns.div_ceil(TILE);
    lanes::dispatch::<T, _>(narrowest, GradientPass { stencil, csr, input, columns, rows, out })
}

/// Columns that are worked on together at most; wider blocks take several equal tiles.
const TILE: usize = 16;
/// Rows that are gathered before the stencil has its turn.
const GATHERED: usize = 64;

struct GradientPass<'a, T, K, F> {
    stencil: &'a Gradient<'a, T, K, F>,
    csr: &'a Csr<T>,
    input: &'a [T],
    columns: usize,
    rows: Range<usize>,
    out: Output<'a, T>,
}

impl<T: Scalar, K: Forward<T>, F: Epilogue<T>> WithSimd for GradientPass<'_, T, K, F> {
    type Output = Totals;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> Totals {
        let tiles = self.columns.div_ceil(TILE);
        let mut scratch = [T::ZERO; GATHERED * TILE];
        let mut total = Totals::default();
        let mut first = self.rows.start;
        while first < self.rows.end {
            let rows = first..self.rows.end.min(first + GATHERED);
            for t in 0..tiles {
                let tile = t * self.columns / tiles..(t + 1) * self.columns / tiles;
                let gathered = &mut scratch[..rows.len() * tile.len()];
                // A function of its own, the same for all stencils.
                simd.vectorize(Gather {
                    csr: self.csr,
                    factors: self.stencil.adjoint.factors(),
                    squared: self.stencil.adjoint.squared(),
                    input: (self.input, self.columns),
                    rows: rows.clone(),
                    tile: tile.clone(),
                    epilogue: RawSum,
                    out: (gathered, tile.len()),
                });
                self.finish(simd, rows.clone(), tile, gathered, &mut total);
            }
            first = rows.end;
        }
        total
    }
}

impl<T: Scalar, K: Forward<T>, F: Epilogue<T>> GradientPass<'_, T, K, F> {
    /// The stencil on a tile of some rows.
    #[inline(always)]
    fn finish<S: Simd>(
        &mut self,
        simd: S,
        rows: Range<usize>,
        tile: Range<usize>,
        gathered: &[T],
        total: &mut Totals,
    ) {
        let cover = Cover::new::<T, S>(tile.len());
        let mut k = 0;
        while k < cover.vectors() {
            let (rows, tile) = (rows.clone(), tile.clone());
            k += if cover.vectors() - k >= 2 {
                self.vectors::<S, 2>(simd, cover, k, rows, tile, gathered, total)
            } else {
                self.vectors::<S, 1>(simd, cover, k, rows, tile, gathered, total)
            };
        }
    }

    /// `N` vectors of each row, from the `k`th on.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the inside of a loop
    fn vectors<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        cover: Cover,
        k: usize,
        rows: Range<usize>,
        tile: Range<usize>,
        gathered: &[T],
        total: &mut Totals,
    ) -> usize {
        let (stencil, stride) = (self.stencil, self.columns);
        let columns: [usize; N] = std::array::from_fn(|v| cover.first(k + v));
        let overlap: [usize; N] = std::array::from_fn(|v| cover.overlap(k + v));
        assert!(lanes::lanes::<T, S>() <= lanes::MOST, "vectors longer than those in use");
        let fresh = |v: usize| {
            let mut lanes = [T::ONE; lanes::MOST];
            lanes[..overlap[v]].fill(T::ZERO);
            // SAFETY: no vector has more lanes than these.
            unsafe { load::<T, S>(lanes.as_ptr()) }
        };
        let leading = tile.start == 0 && k == 0;
        let fresh = std::array::from_fn(fresh);
        let mut place = Position { i: 0, at: [0; N], leading, fresh };
        let mut sums = Sums::new(simd);
        // SAFETY (of all below): `gradient` has verified that coefficients, input and output have
        // the rows, `gathered` holds the tile of every row, and vectors lie within the tile.
        for (r, i) in rows.enumerate() {
            let row: Row<T, S, N> = columns.map(|column| unsafe {
                load::<T, S>(gathered.as_ptr().add(r * tile.len() + column))
            });
            (place.i, place.at) = (i, columns.map(|column| i * stride + tile.start + column));
            let own = place.at.map(|at| unsafe { load::<T, S>(self.input.as_ptr().add(at)) });
            let made = unsafe { stencil.row(simd, &place, &own, &row, &mut sums) };
            let out = i - self.rows.start;
            if !self.out.block.is_empty() {
                let block = self.out.block.as_mut_ptr();
                // The stream of rows is carried over page ends, where the processor's own
                // prefetching stops.
                prefetch_row(block, out + AHEAD, stride);
                for (column, values) in columns.iter().zip(made.row) {
                    let at = out * stride + tile.start + column;
                    unsafe { store::<T, S>(block.add(at), values) };
                }
            }
            stencil.blocks().iter().for_each(|b| prefetch_row(b.as_ptr(), i + AHEAD, stride));
            for (field, value) in self.out.fields.iter_mut().zip(made.fields) {
                if let Some(field) = field.get_mut(out) {
                    *field = if leading { value } else { *field + value };
                }
            }
        }
        sums.add_to(overlap, total);
        N
    }
}

/// Rows of a stream to ask for ahead of their use.
pub(super) const AHEAD: usize = 128;

/// # Safety
/// There must be a vector's worth of values.
#[inline(always)]
pub(super) unsafe fn load<T: Scalar, S: Simd>(from: *const T) -> T::Vector<S> {
    // SAFETY: as above; vectors are plain values.
    unsafe { from.cast::<T::Vector<S>>().read_unaligned() }
}

/// # Safety
/// There must be room for a vector.
#[inline(always)]
pub(super) unsafe fn store<T: Scalar, S: Simd>(to: *mut T, values: T::Vector<S>) {
    // SAFETY: as above.
    unsafe { to.cast::<T::Vector<S>>().write_unaligned(values) };
}

/// Asks for all of a row of `stride` values.
#[inline(always)]
pub(super) fn prefetch_row<T>(values: *const T, row: usize, stride: usize) {
    let mut at = row * stride;
    loop {
        prefetch(values, at);
        at += LINE / size_of::<T>();
        if at >= (row + 1) * stride {
            break;
        }
    }
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Asks for the value at `at` ahead of its use, into the second-level cache: rows are asked for so
/// early that the first level would have dropped them again.
#[inline(always)]
pub(super) fn prefetch<T>(values: *const T, at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing; any address is allowed.
        unsafe { _mm_prefetch(values.wrapping_add(at).cast(), _MM_HINT_T1) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, at);
}
