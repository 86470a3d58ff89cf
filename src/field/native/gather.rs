//! Neighbour sums `Σ_j w_ij c_j x_j`, for some columns of some rows.

use super::kernel::{AHEAD, Csr, LINE, prefetch, prefetch_row};
use super::scalar::Scalar;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// What is made of the sums of a row on the spot.
pub(super) trait End<T>: Copy {
    /// Row `i`: `own` is the input there, `sum` what was gathered.
    fn row<const W: usize>(&self, i: usize, own: &[T; W], sum: [T; W]) -> [T; W];
}

/// Nothing: the sums themselves.
#[derive(Clone, Copy)]
pub(super) struct Bare;

impl<T> End<T> for Bare {
    #[inline(always)]
    fn row<const W: usize>(&self, _: usize, _: &[T; W], sum: [T; W]) -> [T; W] {
        sum
    }
}

/// Gathers columns `tile` of `rows`.
///
/// Rows are taken 10, 8, 6, 4, 2 or 1 columns at a time (10 because the paper's runs draw ten
/// samples): widths for which the compiler keeps the sums in registers.
pub(super) struct Gather<'a, T, E> {
    pub csr: &'a Csr<T>,
    /// `c` of all rows that may be neighbours; one where absent.
    pub factors: Option<&'a [T]>,
    /// Whether edges count with the squares of their weights.
    pub squared: bool,
    /// A block, and its number of columns.
    pub input: (&'a [T], usize),
    pub rows: Range<usize>,
    pub tile: Range<usize>,
    pub end: E,
    /// Where the rows go, `out.1` values apart, from column `out.2` on.
    pub out: (&'a mut [T], usize, usize),
}

impl<T: Scalar, E: End<T>> WithSimd for Gather<'_, T, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.factors.is_some(), !self.csr.weights.is_empty()) {
            (false, false) => self.tiles::<S, false, false>(),
            (false, true) => self.tiles::<S, false, true>(),
            (true, false) => self.tiles::<S, true, false>(),
            (true, true) => self.tiles::<S, true, true>(),
        }
    }
}

impl<T: Scalar, E: End<T>> Gather<'_, T, E> {
    #[inline(always)]
    fn tiles<S: Simd, const SCALED: bool, const WEIGHTED: bool>(mut self) {
        match self.input.1 {
            // A distance of rows that is known makes addresses cheap.
            1 => self.pass::<S, 1, SCALED, WEIGHTED>(1, 0),
            8 => self.pass::<S, 8, SCALED, WEIGHTED>(8, 0),
            10 => self.pass::<S, 10, SCALED, WEIGHTED>(10, 0),
            stride => {
                let width = self.tile.len();
                let mut first = 0;
                while first < width {
                    first += match width - first {
                        8.. => {
                            self.pass::<S, 8, SCALED, WEIGHTED>(stride, first);
                            8
                        }
                        6.. => {
                            self.pass::<S, 6, SCALED, WEIGHTED>(stride, first);
                            6
                        }
                        4.. => {
                            self.pass::<S, 4, SCALED, WEIGHTED>(stride, first);
                            4
                        }
                        2.. => {
                            self.pass::<S, 2, SCALED, WEIGHTED>(stride, first);
                            2
                        }
                        _ => {
                            self.pass::<S, 1, SCALED, WEIGHTED>(stride, first);
                            1
                        }
                    };
                }
            }
        }
    }

    /// Columns `first..first + W` of the tile.
    #[inline(always)]
    fn pass<S: Simd, const W: usize, const SCALED: bool, const WEIGHTED: bool>(
        &mut self,
        stride: usize,
        first: usize,
    ) {
        let csr = self.csr;
        let weights = if self.squared { &csr.squared[..] } else { &csr.weights[..] };
        let factors = self.factors.unwrap_or(&[]);
        let (out, out_stride, out_first) = (&mut *self.out.0, self.out.1, self.out.2);
        // The one tile of a narrow block is all of it; said so that the compiler knows, too.
        let out_stride = if stride == W { W } else { out_stride };
        let (input, end) = (self.input.0[self.tile.start + first..].as_ptr(), self.end);
        // Rows that share a line need not all ask for it.
        let sharing = if stride == W { (LINE / (W * T::BYTES)).max(1) } else { 1 };
        let ahead = AHEAD * out_stride;
        let ends = csr.indptr[self.rows.start..=self.rows.end].windows(2);
        let rows = self.rows.clone().zip(ends).zip(out.chunks_exact_mut(out_stride));
        for ((i, ends), out) in rows {
            let row = ends[0] as usize..ends[1] as usize;
            // Main memory is far: ask early for the next new row of the input, and carry the streams
            // of output and indices over page ends, where the processor's own prefetching stops.
            if i.is_multiple_of(sharing) {
                prefetch_row(input, i + csr.reach, stride);
                prefetch(out.as_ptr(), ahead);
                prefetch(csr.indices.as_ptr(), row.start + 1024);
            }
            let mut sum = [T::ZERO; W];
            let mut add = |e: usize| {
                // SAFETY: row pointers are ascending and end at the number of entries, of which each
                // has its weight; every index names a row of the input that `kernel::check` has verified
                // to be there, with its factor (`Csr::new`). Checking every row again costs a
                // sixth of a layer that is in cache.
                let (j, mut factor) = unsafe {
                    let j = *csr.indices.get_unchecked(e) as usize;
                    (j, if SCALED { *factors.get_unchecked(j) } else { T::ONE })
                };
                if WEIGHTED {
                    // SAFETY: as above.
                    let weight = unsafe { *weights.get_unchecked(e) };
                    factor = if SCALED { weight * factor } else { weight };
                }
                // SAFETY: as above, and `first + W` lies within the tile.
                let x: &[T; W] = unsafe { &*input.add(j * stride).cast() };
                for c in 0..W {
                    sum[c] = match WEIGHTED || SCALED {
                        // In one instruction, on machines that have it.
                        true if !S::IS_SCALAR => factor.mul_add(x[c], sum[c]),
                        true => sum[c] + factor * x[c],
                        false => sum[c] + x[c],
                    };
                }
            };
            let (mut e, last) = (row.start, row.end);
            while e + 1 < last {
                add(e);
                add(e + 1);
                e += 2;
            }
            if e < last {
                add(e);
            }
            // SAFETY: the input has all rows that are swept.
            let own: &[T; W] = unsafe { &*input.add(i * stride).cast() };
            let at = out_first + first;
            out[at..at + W].copy_from_slice(&end.row(i, own, sum));
        }
    }
}
