//! The layer kernels: one pass over the rows of a CSR matrix, fixed-width inner loops.
//!
//! All three stencils gather `Σ_j w_ij c_j x_j` for a tile of columns and differ in what they make
//! of it. Tiles are 10, 8, 4, 2 or 1 columns wide (10 because the paper's runs draw ten samples), so
//! that the compiler keeps the sums of a tile in registers: it gives up on 16, which takes more than
//! twice as long as 8 and 8. [`pulp`] compiles the same loops for the vector units found at run time.

use super::scalar::Scalar;
use crate::field::LayerSums;
use crate::partition::Part;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// The owned rows of the adjacency matrix, columns in local rows.
pub(super) struct Csr<T> {
    indptr: Vec<u32>,
    indices: Vec<u32>,
    /// Empty when all weights are one.
    weights: Vec<T>,
    /// Their squares, once they are asked for.
    squared: Vec<T>,
    /// Rows up to here name owned rows only.
    interior: usize,
    owned: usize,
    rows: usize,
    /// How far ahead of a row most of its neighbours lie. The order of rows makes the input stream
    /// by, but its new rows do not come in sequence, so the processor's own prefetching misses
    /// them: the row this far ahead is asked for.
    reach: usize,
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
            indices: part.indices.clone(),
            weights: part.weights.iter().flatten().map(|&w| T::from_f64(w)).collect(),
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

/// What one output row is made of, given the gathered neighbours.
pub(super) trait Stencil<T: Scalar>: Sync + Copy {
    /// Whether the stencil also returns sums.
    const SUMS: bool = false;
    /// Whether each gathered neighbour is scaled by [`Stencil::neighbour`].
    const SCALED: bool;
    /// Whether edges count with the squares of their weights.
    fn squared(&self) -> bool;
    /// Rows for which there are coefficients.
    fn rows(&self) -> usize;
    /// `c_j`, for `j` below [`Stencil::rows`].
    fn neighbour(&self, j: usize) -> T;
    /// Row `i`, columns `at..at + W` of a block with `at` counted over the whole block: `own` is
    /// the input there, `gathered` the neighbour sum.
    fn row<const W: usize>(
        &self,
        i: usize,
        at: usize,
        own: &[T; W],
        gathered: &[T; W],
        sums: &mut Lanes<W>,
    ) -> [T; W];
}

/// `b + s_i h_i + ρ (s_i/d_i) Σ_j w_ij h_j`.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a, T> {
    pub scale: &'a [T],
    pub ratio: &'a [T],
    pub rho: T,
    pub bias: T,
    pub squared: bool,
}

impl<T: Scalar> Stencil<T> for Forward<'_, T> {
    const SCALED: bool = false;
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.scale.len().min(self.ratio.len())
    }
    #[inline(always)]
    fn neighbour(&self, _: usize) -> T {
        T::ONE
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        _at: usize,
        own: &[T; W],
        gathered: &[T; W],
        _sums: &mut Lanes<W>,
    ) -> [T; W] {
        let (s, r) = (coefficient(self.scale, i), self.rho * coefficient(self.ratio, i));
        std::array::from_fn(|c| self.bias + s * own[c] + r * gathered[c])
    }
}

/// `s_i g_i + ρ Σ_j w_ij (s_j/d_j) g_j`.
#[derive(Clone, Copy)]
pub(super) struct Adjoint<'a, T> {
    scale: &'a [T],
    ratio: &'a [T],
    rho: T,
    squared: bool,
}

impl<'a, T: Scalar> Adjoint<'a, T> {
    pub fn new(l: &'a super::Layer<T>) -> Self {
        let rho = T::from_f64(l.rho);
        Adjoint { scale: &l.scale, ratio: &l.ratio, rho, squared: l.squared }
    }
}

impl<T: Scalar> Stencil<T> for Adjoint<'_, T> {
    const SCALED: bool = true;
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.scale.len().min(self.ratio.len())
    }
    #[inline(always)]
    fn neighbour(&self, j: usize) -> T {
        coefficient(self.ratio, j)
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        _at: usize,
        own: &[T; W],
        gathered: &[T; W],
        _sums: &mut Lanes<W>,
    ) -> [T; W] {
        let s = coefficient(self.scale, i);
        std::array::from_fn(|c| s * own[c] + self.rho * gathered[c])
    }
}

/// [`Adjoint`] with the sums of [`LayerSums`] in the same pass. The forward output is the cotangent
/// itself where `SAME`.
#[derive(Clone, Copy)]
pub(super) struct AdjointWithSums<'a, T, const SAME: bool> {
    pub adjoint: Adjoint<'a, T>,
    pub bias: T,
    pub log_degree: &'a [f64],
    pub input: &'a [T],
    /// Not read where `SAME`.
    pub output: &'a [T],
}

impl<T: Scalar, const SAME: bool> Stencil<T> for AdjointWithSums<'_, T, SAME> {
    const SUMS: bool = true;
    const SCALED: bool = true;
    fn squared(&self) -> bool {
        self.adjoint.squared
    }
    fn rows(&self) -> usize {
        self.adjoint.rows().min(self.log_degree.len())
    }
    #[inline(always)]
    fn neighbour(&self, j: usize) -> T {
        self.adjoint.neighbour(j)
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        at: usize,
        own: &[T; W],
        gathered: &[T; W],
        sums: &mut Lanes<W>,
    ) -> [T; W] {
        let input: &[T; W] = tile(self.input, at);
        let output: &[T; W] = if SAME { own } else { tile(self.output, at) };
        let log_degree = coefficient(self.log_degree, i);
        for c in 0..W {
            let gu = (own[c] * (output[c] - self.bias)).to_f64();
            sums.alpha[c] += gu;
            sums.gamma[c] += gu * log_degree;
            sums.rho[c] += (gathered[c] * input[c]).to_f64();
            sums.bias[c] += own[c].to_f64();
        }
        self.adjoint.row(i, at, own, gathered, sums)
    }
}

/// [`LayerSums`] of each column of a tile: adding across a row for every row would cost more than
/// the row itself. Products are added up in double precision.
pub(super) struct Lanes<const W: usize> {
    alpha: [f64; W],
    rho: [f64; W],
    gamma: [f64; W],
    bias: [f64; W],
}

impl<const W: usize> Lanes<W> {
    const ZERO: Self = Lanes { alpha: [0.0; W], rho: [0.0; W], gamma: [0.0; W], bias: [0.0; W] };

    fn total(&self) -> LayerSums {
        LayerSums {
            alpha: self.alpha.iter().sum(),
            rho: self.rho.iter().sum(),
            gamma: self.gamma.iter().sum(),
            bias: self.bias.iter().sum(),
        }
    }
}

/// Applies the stencil to `rows`; `out` holds just these rows.
pub(super) fn run<T: Scalar, S: Stencil<T>>(
    stencil: &S,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: Range<usize>,
    out: &mut [T],
) -> LayerSums {
    let reachable = if rows.end <= csr.interior { csr.owned } else { csr.rows };
    assert!(input.len() >= reachable * columns, "input rows");
    assert!(stencil.rows() >= reachable && rows.end <= csr.owned, "coefficient rows");
    Arch::new().dispatch(Sweep { stencil: *stencil, csr, input, columns, rows, out })
}

struct Sweep<'a, T, S> {
    stencil: S,
    csr: &'a Csr<T>,
    input: &'a [T],
    columns: usize,
    rows: Range<usize>,
    out: &'a mut [T],
}

impl<T: Scalar, S: Stencil<T>> WithSimd for Sweep<'_, T, S> {
    type Output = LayerSums;

    #[inline(always)]
    fn with_simd<V: Simd>(self, _: V) -> LayerSums {
        if self.csr.weights.is_empty() { self.tiles::<false>() } else { self.tiles::<true>() }
    }
}

impl<T: Scalar, S: Stencil<T>> Sweep<'_, T, S> {
    /// One or more tiles per row; widths that occur in practice are one tile.
    #[inline(always)]
    fn tiles<const WEIGHTED: bool>(mut self) -> LayerSums {
        let mut sums = LayerSums::default();
        match self.columns {
            1 => self.pass::<1, WEIGHTED>(1, 0, &mut sums),
            8 => self.pass::<8, WEIGHTED>(8, 0, &mut sums),
            10 => self.pass::<10, WEIGHTED>(10, 0, &mut sums),
            columns => {
                let mut first = 0;
                while first < columns {
                    first += match columns - first {
                        8.. => {
                            self.pass::<8, WEIGHTED>(columns, first, &mut sums);
                            8
                        }
                        4.. => {
                            self.pass::<4, WEIGHTED>(columns, first, &mut sums);
                            4
                        }
                        2.. => {
                            self.pass::<2, WEIGHTED>(columns, first, &mut sums);
                            2
                        }
                        _ => {
                            self.pass::<1, WEIGHTED>(columns, first, &mut sums);
                            1
                        }
                    };
                }
            }
        }
        sums
    }

    /// All rows, columns `first..first + W` of `stride`. A chunk of rows stays in cache between
    /// tiles.
    #[inline(always)]
    fn pass<const W: usize, const WEIGHTED: bool>(
        &mut self,
        stride: usize,
        first: usize,
        sums: &mut LayerSums,
    ) {
        let mut total = Lanes::<W>::ZERO;
        let rows_per_line = (LINE / (stride * T::BYTES)).max(1);
        let (stencil, csr, input) = (self.stencil, self.csr, self.input);
        let all_weights = if stencil.squared() { &csr.squared } else { &csr.weights };
        let ends = csr.indptr[self.rows.start..=self.rows.end].windows(2);
        let rows = self.rows.clone().zip(ends).zip(self.out.chunks_exact_mut(stride));
        for ((i, ends), out) in rows {
            // Main memory is far: ask early for the next new row of the input, and carry the
            // streams over the page ends at which the processor's own prefetching stops.
            if i.is_multiple_of(rows_per_line) {
                prefetch(input, (i + csr.reach) * stride + first);
                prefetch(out, 128 * stride);
                prefetch(&csr.indices, ends[0] as usize + 1024);
            }
            let mut gathered = [T::ZERO; W];
            let row = ends[0] as usize..ends[1] as usize;
            // SAFETY: row pointers are ascending and end at the number of entries (`Csr::new`).
            let indices = unsafe { csr.indices.get_unchecked(row.clone()) };
            let weights: &[T] = if WEIGHTED { &all_weights[row] } else { &[] };
            let mut add = |k: usize, j: u32| {
                let j = j as usize;
                // SAFETY: `Csr::new` has verified every index against the rows it may name, and
                // `run` that the input has these rows; `first + W <= stride`. Checking every
                // row again costs a sixth of a layer that is in cache.
                let x: &[T; W] = unsafe { &*input.as_ptr().add(j * stride + first).cast() };
                let mut factor = T::ONE;
                if S::SCALED {
                    factor = stencil.neighbour(j);
                }
                if WEIGHTED {
                    factor = if S::SCALED { weights[k] * factor } else { weights[k] };
                }
                for c in 0..W {
                    gathered[c] += if WEIGHTED || S::SCALED { factor * x[c] } else { x[c] };
                }
            };
            let (pairs, last) = indices.as_chunks::<2>();
            for (k, pair) in pairs.iter().enumerate() {
                add(2 * k, pair[0]);
                add(2 * k + 1, pair[1]);
            }
            if let &[j] = last {
                add(2 * pairs.len(), j);
            }
            let at = i * stride + first;
            let made = stencil.row(i, at, tile(input, at), &gathered, &mut total);
            out[first..first + W].copy_from_slice(&made);
        }
        if S::SUMS {
            sums.add(&total.total());
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the value at `at` ahead of its use, into the second-level cache: rows are asked for so
/// early that the first level would have dropped them again.
#[inline(always)]
fn prefetch<T>(input: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing; any address is allowed.
        unsafe { _mm_prefetch(input.as_ptr().wrapping_add(at).cast(), _MM_HINT_T1) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (input, at);
}

/// A coefficient of a row that [`run`] has verified to be there.
#[inline(always)]
fn coefficient<T: Copy>(values: &[T], row: usize) -> T {
    debug_assert!(row < values.len());
    // SAFETY: `run` asserts that coefficients cover all rows a sweep may name, and `Csr::new`
    // that no index names another.
    unsafe { *values.get_unchecked(row) }
}

/// `W` neighbouring values.
#[inline(always)]
fn tile<T, const W: usize>(values: &[T], at: usize) -> &[T; W] {
    values[at..at + W].first_chunk().expect("a slice of W values")
}
