//! A step of a Krylov recurrence in one pass through memory.
//!
//! Three things happen to every row: the next direction is made there, its product with the matrix,
//! and their share of the sums. As passes of their own they would bring in both blocks again and
//! again, and a block of twenty thousand nodes is already more than the second-level cache holds.
//! But rows lie near their neighbours: directions need only be ahead of products by as far as the
//! matrix reaches. So directions and products take turns, some rows at a time, and the one finds in
//! the cache what the other has left there. Sums are made of rows that are in registers anyway.

#![allow(
    unsafe_code,
    reason = "vectors and entries of checked rows, read without checking each again"
)]

use super::cover::Vectors;
use super::kernel::{AHEAD, Csr, load, prefetch, prefetch_row, store};
use super::lanes;
use super::sweep::pack;
use super::{Block, CHUNK, Native, inline};
use crate::field::{Recurrence, Scalar};
use crate::profile::{self, Phase};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// How far directions must be ahead of products.
pub(super) struct Ahead {
    /// What the interior rows of the first chunks name, chunk by chunk: interior rows before this
    /// one.
    needed: Vec<u32>,
}

impl Ahead {
    pub fn new<T>(csr: &Csr<T>, interior: usize) -> Self {
        let mut most = 0;
        let needed = |first: usize| {
            let rows = first..interior.min(first + CHUNK);
            let entries = csr.indptr[rows.start] as usize..csr.indptr[rows.end] as usize;
            let named = csr.indices[entries].iter().copied().filter(|&j| (j as usize) < interior);
            most = named.map(|j| j + 1).fold(most.max(rows.end as u32), u32::max);
            most
        };
        Ahead { needed: (0..interior).step_by(CHUNK).map(needed).collect() }
    }

    /// What the interior rows before `end` name: interior rows before this one.
    fn of(&self, end: usize) -> usize {
        self.needed[end.div_ceil(CHUNK) - 1] as usize
    }
}

/// [`Engine::krylov`](crate::field::Engine::krylov).
pub(super) fn step<T: Scalar>(
    engine: &mut Native<T>,
    recurrence: Option<Recurrence<'_>>,
    x: &mut Block<T>,
    z: &mut Block<T>,
    sums: &mut [f64],
) {
    let columns = x.columns;
    assert!(z.columns == columns && sums.len() == SUMS * columns, "blocks of one width");
    let (owned, interior) = (engine.part.owned, engine.part.interior);
    if recurrence.is_some() {
        std::mem::swap(x, z);
    }
    // From here on `x` becomes the next direction, and `z` its product.
    let advance = |x: &mut [T], z: &[T]| {
        if let Some(Recurrence { a, b, .. }) = recurrence {
            let timer = profile::start();
            make_directions([a, b], z, x);
            profile::stop(Phase::Vector, timer, 3 * size_of_val(z) as u64, 0);
        }
    };
    let (mut inner, edge) = z.values[..owned * columns].split_at_mut(interior * columns);
    // First at the boundary, for which other ranks wait.
    advance(&mut x.values[interior * columns..owned * columns], edge);
    let timer = profile::start();
    pack(&x.values, columns, &engine.send_rows, &mut engine.send);
    profile::stop(Phase::HaloPack, timer, 2 * size_of_val(&engine.send[..]) as u64, 0);

    let of_chunk = SUMS * columns;
    let all = (interior.div_ceil(CHUNK) + (owned - interior).div_ceil(CHUNK)) * of_chunk;
    engine.sums_of_chunks.clear();
    engine.sums_of_chunks.resize(all, 0.0);
    let (sums_inner, sums_edge) =
        engine.sums_of_chunks.split_at_mut(interior.div_ceil(CHUNK) * of_chunk);
    let products = Products {
        csr: &engine.csr,
        degree: &engine.part.degree,
        kept: recurrence.map(|recurrence| recurrence.c),
        columns,
    };
    let (mine, halo) = x.values.split_at_mut(owned * columns);
    let ahead = &engine.ahead;
    engine.exchange.run(columns, &engine.send, halo, |flight| {
        // All threads should have work; one alone has the more in its cache the less it takes.
        let piece = match rayon::current_num_threads() {
            1 => CHUNK,
            threads => 4 * CHUNK * threads,
        };
        let (mut first, mut made) = (0, 0);
        while first < interior {
            let rows = first..interior.min(first + piece);
            let needed = ahead.of(rows.end);
            let (from, to) = ((made - first) * columns, (needed - first) * columns);
            advance(&mut mine[made * columns..needed * columns], &inner[from..to]);
            let out;
            (out, inner) = std::mem::take(&mut inner).split_at_mut(rows.len() * columns);
            let chunks = first / CHUNK * of_chunk..rows.end.div_ceil(CHUNK) * of_chunk;
            (first, made) = (rows.end, needed);
            products.timed(mine, rows, out, &mut sums_inner[chunks]);
            flight.progress();
        }
    });
    products.timed(&x.values, interior..owned, edge, sums_edge);
    sums.fill(0.0);
    for chunk in engine.sums_of_chunks.chunks_exact(of_chunk) {
        sums.iter_mut().zip(chunk).for_each(|(sum, part)| *sum += part);
    }
}

/// `x = a x + b z` for factors `[a, b]` of every column.
fn make_directions<T: Scalar>(factors: [&[f64]; 2], z: &[T], x: &mut [T]) {
    assert_eq!(x.len(), z.len(), "blocks of one width");
    let columns = factors[0].len();
    let size = CHUNK * columns;
    let chunk = |z, x| lanes::dispatch::<T, _>(columns, Directions { factors, z, x });
    if inline(x.len() / columns) {
        chunk(z, x);
    } else {
        z.par_chunks(size).zip(x.par_chunks_mut(size)).for_each(|(z, x)| chunk(z, x));
    }
}

/// The directions of some rows.
struct Directions<'a, T> {
    factors: [&'a [f64]; 2],
    z: &'a [T],
    x: &'a mut [T],
}

impl<T: Scalar> WithSimd for Directions<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.factors[0].len();
        self.passes(simd, columns);
    }
}

impl<T: Scalar> Vectors<T> for Directions<'_, T> {
    #[inline(always)]
    fn pass<S: Simd, const N: usize>(&mut self, simd: S, first: usize) {
        let (full, columns) = (lanes::lanes::<T, S>(), self.factors[0].len());
        let [a, b] = self.factors.map(|factors| numbers::<T, S, N>(&factors[first..]));
        for (z, x) in self.z.chunks_exact(columns).zip(self.x.chunks_exact_mut(columns)) {
            let (z, x) =
                (z[first..first + N * full].as_ptr(), x[first..first + N * full].as_mut_ptr());
            for v in 0..N {
                // SAFETY: both rows have `N` vectors from here on.
                unsafe {
                    let [own, z] = [x.cast_const(), z].map(|row| load::<T, S>(row.add(v * full)));
                    let made = T::fused(simd, b[v], z, T::times(simd, a[v], own));
                    store::<T, S>(x.add(v * full), made);
                }
            }
        }
    }
}

/// `N` vectors of numbers.
#[inline(always)]
fn numbers<T: Scalar, S: Simd, const N: usize>(values: &[f64]) -> [T::Vector<S>; N] {
    let full = lanes::lanes::<T, S>();
    assert!(full <= lanes::MOST, "vectors longer than those in use");
    std::array::from_fn(|v| {
        let mut numbers = [T::ZERO; lanes::MOST];
        let values = &values[v * full..][..full];
        numbers.iter_mut().zip(values).for_each(|(number, &value)| *number = T::from_f64(value));
        // SAFETY: no vector has more lanes than these.
        unsafe { load::<T, S>(numbers.as_ptr()) }
    })
}

/// Sums of every column: `‖x‖²`, `x·z` and `‖z‖²`.
const SUMS: usize = 3;

/// The products of all rows: `z = D⁻¹A x + c z`.
struct Products<'a, T> {
    csr: &'a Csr<T>,
    degree: &'a [f64],
    /// `c`; zero where absent, and then `z` is not read.
    kept: Option<&'a [f64]>,
    columns: usize,
}

impl<T: Scalar> Products<'_, T> {
    fn timed(&self, x: &[T], rows: Range<usize>, z: &mut [T], sums: &mut [f64]) {
        let (timer, bytes) = (profile::start(), self.csr.bytes_of(rows.clone(), self.columns));
        self.run(x, rows, z, sums);
        profile::stop(Phase::Layer, timer, bytes, 0);
    }

    /// All chunks of `rows`, half of them on another thread, with the sums of each.
    fn run(&self, x: &[T], rows: Range<usize>, z: &mut [T], sums: &mut [f64]) {
        let chunks = rows.len().div_ceil(CHUNK);
        match chunks {
            0 => return,
            1 => return self.chunk(x, rows, z, sums),
            _ => {}
        }
        let middle = rows.start + chunks / 2 * CHUNK;
        let (left, right) = sums.split_at_mut(chunks / 2 * SUMS * self.columns);
        let (out, rest) = z.split_at_mut((middle - rows.start) * self.columns);
        let alone = inline(rows.len());
        let mut first = || self.run(x, rows.start..middle, out, left);
        let mut second = || self.run(x, middle..rows.end, rest, right);
        if alone {
            first();
            second();
        } else {
            rayon::join(first, second);
        }
    }

    fn chunk(&self, x: &[T], rows: Range<usize>, z: &mut [T], sums: &mut [f64]) {
        match (self.csr.weights.is_empty(), self.kept.is_some()) {
            (false, false) => self.chunk_of::<true, false>(x, rows, z, sums),
            (false, true) => self.chunk_of::<true, true>(x, rows, z, sums),
            (true, false) => self.chunk_of::<false, false>(x, rows, z, sums),
            (true, true) => self.chunk_of::<false, true>(x, rows, z, sums),
        }
    }

    fn chunk_of<const WEIGHTED: bool, const KEPT: bool>(
        &self,
        x: &[T],
        rows: Range<usize>,
        z: &mut [T],
        sums: &mut [f64],
    ) {
        let Products { csr, degree, kept, columns } = *self;
        csr.check(x, columns, &rows);
        assert!(degree.len() >= rows.end && z.len() == rows.len() * columns, "rows");
        assert_eq!(sums.len(), SUMS * columns, "sums of every column");
        let chunk = Chunk::<T, WEIGHTED, KEPT> { csr, degree, kept, columns, x, rows, z, sums };
        lanes::dispatch::<T, _>(columns, chunk);
    }
}

/// The products of some rows; `z` holds just these.
struct Chunk<'a, T, const WEIGHTED: bool, const KEPT: bool> {
    csr: &'a Csr<T>,
    degree: &'a [f64],
    kept: Option<&'a [f64]>,
    columns: usize,
    x: &'a [T],
    rows: Range<usize>,
    z: &'a mut [T],
    sums: &'a mut [f64],
}

impl<T: Scalar, const WEIGHTED: bool, const KEPT: bool> WithSimd for Chunk<'_, T, WEIGHTED, KEPT> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.columns;
        self.passes(simd, columns);
    }
}

impl<T: Scalar, const WEIGHTED: bool, const KEPT: bool> Vectors<T>
    for Chunk<'_, T, WEIGHTED, KEPT>
{
    #[inline(always)]
    fn pass<S: Simd, const N: usize>(&mut self, simd: S, first: usize) {
        let (csr, stride, full) = (self.csr, self.columns, lanes::lanes::<T, S>());
        let (indices, weights) = (csr.indices.as_ptr(), csr.weights.as_ptr());
        let (x, z) = (self.x[first..].as_ptr(), self.z[first..].as_mut_ptr());
        let zero = [T::splat(simd, T::ZERO); N];
        let kept = self.kept.map_or(zero, |c| numbers::<T, S, N>(&c[first..]));
        let (mut xx, mut xz, mut zz) = (zero, zero, zero);
        // With a recurrence the rows of this piece are in the cache already: those of the next one
        // are asked for.
        let (ahead_of_x, ahead_of_z) =
            if KEPT { (csr.reach + CHUNK, csr.reach + CHUNK) } else { (csr.reach, AHEAD) };
        let ends = csr.indptr[self.rows.start..=self.rows.end].windows(2);
        let rows = self.rows.clone().zip(ends).zip(&self.degree[self.rows.clone()]);
        // SAFETY (of all reads and writes through pointers): row pointers are ascending and end at
        // the number of entries, each of which has its weight and names a row of `x` (`Csr::new`,
        // `Csr::check`); `z` has a row for every one that is swept; and vectors lie within rows.
        for (at, ((i, ends), &degree)) in rows.enumerate() {
            let (mut e, end) = (ends[0] as usize, ends[1] as usize);
            prefetch_row(x, i + ahead_of_x, stride);
            prefetch_row(z.cast_const(), at + ahead_of_z, stride);
            prefetch(indices, e + 1024);
            let mut sum = zero;
            let mut add = |e: usize| {
                let row = unsafe { x.add(*indices.add(e) as usize * stride) };
                let weight =
                    if WEIGHTED { T::splat(simd, unsafe { *weights.add(e) }) } else { zero[0] };
                for (v, sum) in sum.iter_mut().enumerate() {
                    let x = unsafe { load::<T, S>(row.add(v * full)) };
                    *sum = if WEIGHTED {
                        T::fused(simd, weight, x, *sum)
                    } else {
                        T::plus(simd, *sum, x)
                    };
                }
            };
            while e + 1 < end {
                add(e);
                add(e + 1);
                e += 2;
            }
            if e < end {
                add(e);
            }
            // A quotient costs less than bringing in one more number per row (measured: 3 %).
            let [d, inverse] = [degree, 1.0 / degree].map(|v| T::splat(simd, T::from_f64(v)));
            for v in 0..N {
                let own = unsafe { load::<T, S>(x.add(i * stride + v * full)) };
                let z = unsafe { z.add(at * stride + v * full) };
                let mut made = T::times(simd, inverse, sum[v]);
                if KEPT {
                    made = T::fused(simd, kept[v], unsafe { load::<T, S>(z) }, made);
                }
                unsafe { store::<T, S>(z, made) };
                let weighted = T::times(simd, d, made);
                xx[v] = T::fused(simd, T::times(simd, d, own), own, xx[v]);
                xz[v] = T::fused(simd, weighted, own, xz[v]);
                zz[v] = T::fused(simd, weighted, made, zz[v]);
            }
        }
        for (k, vectors) in [xx, xz, zz].iter().enumerate() {
            for (v, vector) in vectors.iter().enumerate() {
                let mut numbers = [T::ZERO; lanes::MOST];
                // SAFETY: no vector has more lanes than these.
                unsafe { store::<T, S>(numbers.as_mut_ptr(), *vector) };
                let sums = &mut self.sums[k * stride + first + v * full..][..full];
                sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number.to_f64());
            }
        }
    }
}
