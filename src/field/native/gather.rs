//! Neighbour sums `Σ_j w_ij c_j x_j`, for some columns of some rows.

use super::kernel::{Csr, prefetch, prefetch_row};
use super::scalar::Scalar;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Gathers columns `tile` of `rows`.
///
/// Rows are taken 10, 8, 6, 4, 2 or 1 columns at a time (10 because the paper's runs draw ten
/// samples): widths for which the compiler keeps the sums in registers.
pub(super) struct Gather<'a, T> {
    pub csr: &'a Csr<T>,
    /// `c` of all rows that may be neighbours; one where absent.
    pub factors: Option<&'a [T]>,
    /// Whether edges count with the squares of their weights.
    pub squared: bool,
    /// A block, and its number of columns.
    pub input: (&'a [T], usize),
    pub rows: Range<usize>,
    pub tile: Range<usize>,
    /// Row after row of the tile.
    pub out: &'a mut [T],
}

impl<T: Scalar> WithSimd for Gather<'_, T> {
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

impl<T: Scalar> Gather<'_, T> {
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
        // The one tile of a narrow block is all of it; said so that the compiler knows, too.
        let width = if stride == W { W } else { self.tile.len() };
        let input = self.input.0[self.tile.start + first..].as_ptr();
        let ends = csr.indptr[self.rows.start..=self.rows.end].windows(2);
        for ((i, ends), out) in self.rows.clone().zip(ends).zip(self.out.chunks_exact_mut(width)) {
            let row = ends[0] as usize..ends[1] as usize;
            // Main memory is far: ask early for the next new row of the input, and carry the stream of
            // indices over page ends, where the processor's own prefetching stops.
            prefetch_row(input, i + csr.reach, stride);
            prefetch(csr.indices.as_ptr(), row.start + 1024);
            let mut sum = [T::ZERO; W];
            let mut add = |e: usize| {
                // SAFETY: row pointers are ascending and end at the number of entries, of which each
                // has its weight; every index names a row of the input that `run` has verified
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
            out[first..first + W].copy_from_slice(&sum);
        }
    }
}
