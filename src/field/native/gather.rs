//! Neighbour sums `Σ_j w_ij c_j x_j`, for some columns of some rows.

use super::kernel::{Csr, prefetch};
use super::scalar::Scalar;
use pulp::Simd;
use std::ops::Range;

/// Gathers columns `tile` of `rows` from the block `(input, stride)` into `out`, row after row.
///
/// Rows are taken 10, 8, 4, 2 or 1 columns at a time (10 because the paper's runs draw ten
/// samples): widths for which the compiler keeps the sums in registers.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the inside of a loop
pub(super) fn rows<T: Scalar, S: Simd>(
    csr: &Csr<T>,
    factors: Option<&[T]>,
    squared: bool,
    (input, stride): (&[T], usize),
    rows: Range<usize>,
    tile: Range<usize>,
    out: &mut [T],
) {
    let weights = if squared { &csr.squared[..] } else { &csr.weights[..] };
    let gather = Gather { csr, weights, factors: factors.unwrap_or(&[]), input, rows, tile };
    match (factors.is_some(), !weights.is_empty()) {
        (false, false) => gather.tiles::<S, false, false>(stride, out),
        (false, true) => gather.tiles::<S, false, true>(stride, out),
        (true, false) => gather.tiles::<S, true, false>(stride, out),
        (true, true) => gather.tiles::<S, true, true>(stride, out),
    }
}

struct Gather<'a, T> {
    csr: &'a Csr<T>,
    weights: &'a [T],
    factors: &'a [T],
    input: &'a [T],
    rows: Range<usize>,
    tile: Range<usize>,
}

impl<T: Scalar> Gather<'_, T> {
    #[inline(always)]
    fn tiles<S: Simd, const SCALED: bool, const WEIGHTED: bool>(
        &self,
        stride: usize,
        out: &mut [T],
    ) {
        match stride {
            // A distance of rows that is known makes addresses cheap.
            1 => self.pass::<S, 1, SCALED, WEIGHTED>(1, 0, out),
            8 => self.pass::<S, 8, SCALED, WEIGHTED>(8, 0, out),
            10 => self.pass::<S, 10, SCALED, WEIGHTED>(10, 0, out),
            _ => {
                let width = self.tile.len();
                let mut first = 0;
                while first < width {
                    first += match width - first {
                        8.. => {
                            self.pass::<S, 8, SCALED, WEIGHTED>(stride, first, out);
                            8
                        }
                        4.. => {
                            self.pass::<S, 4, SCALED, WEIGHTED>(stride, first, out);
                            4
                        }
                        2.. => {
                            self.pass::<S, 2, SCALED, WEIGHTED>(stride, first, out);
                            2
                        }
                        _ => {
                            self.pass::<S, 1, SCALED, WEIGHTED>(stride, first, out);
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
        &self,
        stride: usize,
        first: usize,
        out: &mut [T],
    ) {
        let Gather { csr, weights, factors, input, .. } = *self;
        // The one tile of a narrow block is all of it; said so that the compiler knows, too.
        let width = if stride == W { W } else { self.tile.len() };
        let input = input[self.tile.start + first..].as_ptr();
        let ends = csr.indptr[self.rows.start..=self.rows.end].windows(2);
        for ((i, ends), out) in self.rows.clone().zip(ends).zip(out.chunks_exact_mut(width)) {
            let row = ends[0] as usize..ends[1] as usize;
            // Main memory is far: ask early for the next new row of the input, and carry the stream of
            // indices over page ends, where the processor's own prefetching stops.
            prefetch(input, (i + csr.reach) * stride);
            if stride * T::BYTES > LINE {
                prefetch(input, (i + csr.reach) * stride + LINE / T::BYTES);
            }
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

/// Bytes of a cache line.
const LINE: usize = 64;
