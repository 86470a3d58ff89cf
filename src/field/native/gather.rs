//! Neighbour sums `Σ_j w_ij c_j x_j`, for some columns of some rows.

#![allow(
    unsafe_code,
    reason = "entries and neighbours of checked rows, read without checking each again"
)]

use super::cover::Columns;
use super::kernel::{AHEAD, Csr, LINE, prefetch, prefetch_row};
use crate::field::Scalar;
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;
use std::ops::Range;

/// What is made of the sums of a row on the spot.
pub(super) trait RowEpilogue<T>: Copy {
    /// Row `i`: `own` is the input there, `sum` what was gathered.
    ///
    /// # Safety
    /// The row must be one of those that [`super::kernel::check`] has verified.
    unsafe fn apply<const W: usize>(&self, i: usize, own: &[T; W], sum: [T; W]) -> [T; W];
}

/// The sums themselves.
#[derive(Clone, Copy)]
pub(super) struct RawSum;

impl<T> RowEpilogue<T> for RawSum {
    #[inline(always)]
    unsafe fn apply<const W: usize>(&self, _: usize, _: &[T; W], sum: [T; W]) -> [T; W] {
        sum
    }
}

/// Gathers columns `tile` of `rows`, in widths for which the compiler keeps the sums in registers.
///
/// All that it reads without checking again must have been verified by [`super::kernel::check`].
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
    pub epilogue: E,
    /// Where the rows go, and how many values they are apart there.
    pub out: (&'a mut [T], usize),
}

impl<T: Scalar, E: RowEpilogue<T>> WithSimd for Gather<'_, T, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.factors.is_some(), !self.csr.weights.is_empty()) {
            (false, false) => self.all::<S, false, false>(),
            (false, true) => self.all::<S, false, true>(),
            (true, false) => self.all::<S, true, false>(),
            (true, true) => self.all::<S, true, true>(),
        }
    }
}

impl<T: Scalar, E: RowEpilogue<T>> Gather<'_, T, E> {
    /// All columns of the tile.
    #[inline(always)]
    fn all<S: Simd, const SCALED: bool, const WEIGHTED: bool>(self) {
        let (stride, width) = (self.input.1, self.tile.len());
        Known::<S, _, SCALED, WEIGHTED>(self, PhantomData).passes(stride, width);
    }
}

/// A gather of which the compiler knows the units, and whether there are factors and weights.
struct Known<S, G, const SCALED: bool, const WEIGHTED: bool>(G, PhantomData<S>);

impl<T: Scalar, E: RowEpilogue<T>, S: Simd, const SCALED: bool, const WEIGHTED: bool> Columns
    for Known<S, Gather<'_, T, E>, SCALED, WEIGHTED>
{
    const WIDEST: usize = 8;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        // In variables of their own, so that the loop has them in registers.
        let Gather { csr, input: (input, _), epilogue, .. } = self.0;
        let (indices, reach, rows) = (&csr.indices[..], csr.reach, self.0.rows.clone());
        let weights = if self.0.squared { &csr.squared[..] } else { &csr.weights[..] };
        let factors = self.0.factors.unwrap_or(&[]);
        let (out, out_stride) = (&mut *self.0.out.0, self.0.out.1);
        // The one tile of a narrow block is all of it; said so that the compiler knows, too.
        let out_stride = if stride == W { W } else { out_stride };
        let input = input[self.0.tile.start + first..].as_ptr();
        // Rows that share a line need not all ask for it.
        let sharing = if stride == W { (LINE / (W * T::BYTES)).max(1) } else { 1 };
        let ahead = AHEAD * out_stride;
        let ends = csr.indptr[rows.start..=rows.end].windows(2);
        let rows = rows.clone().zip(ends).zip(out.chunks_exact_mut(out_stride));
        for ((i, ends), out) in rows {
            let row = ends[0] as usize..ends[1] as usize;
            // Main memory is far: ask early for the next new row of the input, and carry the
            // streams of output and indices over page ends, where the processor's own prefetching
            // stops.
            if i.is_multiple_of(sharing) {
                prefetch_row(input, i + reach, stride);
                prefetch(out.as_ptr(), ahead);
                prefetch(indices.as_ptr(), row.start + 1024);
            }
            let mut sum = [T::ZERO; W];
            let mut add = |e: usize| {
                // SAFETY: row pointers are ascending and end at the number of entries, of which
                // each has its weight; every index names a row of the input that `kernel::check`
                // has verified to be there, with its factor (`Csr::new`). Checking every row again
                // costs a sixth of a layer that is in cache.
                let (j, mut factor) = unsafe {
                    let j = *indices.get_unchecked(e) as usize;
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
                    sum[c] = if !(WEIGHTED || SCALED) {
                        sum[c] + x[c]
                    } else if S::IS_SCALAR {
                        sum[c] + factor * x[c]
                    } else {
                        factor.mul_add(x[c], sum[c]) // one instruction
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
            // SAFETY: `kernel::check` has verified the rows.
            let made = unsafe { epilogue.apply(i, own, sum) };
            out[first..first + W].copy_from_slice(&made);
        }
    }
}
