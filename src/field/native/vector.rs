//! Passes over whole blocks, row by row: scalings, random fills, columns copied.

use super::{CHUNK, inline};
use crate::field::Scalar;
use crate::random::Stream;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Runs a loop in code for the vector units of this machine.
///
/// [`Arch::dispatch`] on a closure reaches its body through `FnOnce`, which for a closure that
/// could run more than once is a function of its own: not inlined, so not compiled for the vector
/// units, and several times slower. Through `FnMut` the body itself is called, and marked
/// `#[inline(always)]` it lands where it should.
#[inline(always)]
pub(super) fn on_vectors<R>(f: impl FnMut() -> R) -> R {
    struct Body<F>(F);
    impl<R, F: FnMut() -> R> WithSimd for Body<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<V: Simd>(mut self, _: V) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Body(f))
}

/// `y = f(w_i, x, y)` with one `w` per row.
pub(super) fn zip_rows<T: Scalar>(
    w: &[T],
    x: &[T],
    y: &mut [T],
    columns: usize,
    f: impl Fn(T, T, T) -> T + Sync,
) {
    assert_eq!(x.len(), y.len(), "blocks of one width");
    let chunk = |w: &[T], x: &[T], y: &mut [T]| {
        on_vectors(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(columns).zip(y.chunks_exact_mut(columns));
                for (&w, (x, y)) in w.iter().zip(rows) {
                    for (&x, y) in x.iter().zip(y) {
                        *y = f(w, x, *y);
                    }
                }
            },
        );
    };
    let size = CHUNK * columns;
    if inline(x.len() / columns) {
        chunk(w, x, y);
    } else {
        let blocks = x.par_chunks(size).zip(y.par_chunks_mut(size));
        w.par_chunks(CHUNK).zip(blocks).for_each(|(w, (x, y))| chunk(w, x, y));
    }
}

/// `sums_i = Σ_c x_ic`.
pub(super) fn row_sums<T: Scalar>(x: &[T], columns: usize, sums: &mut [T]) {
    assert_eq!(x.len(), sums.len() * columns, "one sum per row");
    let least = if inline(sums.len()) { usize::MAX } else { 1 };
    let rows = x.par_chunks(CHUNK * columns).zip(sums.par_chunks_mut(CHUNK));
    rows.with_min_len(least).for_each(|(x, sums)| {
        for (x, sum) in x.chunks_exact(columns).zip(sums) {
            *sum = x.iter().fold(T::ZERO, |sum, &x| sum + x);
        }
    });
}

/// `y[., to] = x[., from]` for every pair of columns.
pub(super) fn copy_columns<T: Scalar>(
    x: &[T],
    y: &mut [T],
    (from, to): (usize, usize),
    pairs: &[(usize, usize)],
) {
    assert_eq!(x.len() / from, y.len() / to, "blocks of one height");
    let whole = from == to
        && pairs.len() == from
        && pairs.iter().enumerate().all(|(c, &pair)| pair == (c, c));
    let chunk = |x: &[T], y: &mut [T]| {
        if whole {
            return y.copy_from_slice(x);
        }
        for (x, y) in x.chunks_exact(from).zip(y.chunks_exact_mut(to)) {
            pairs.iter().for_each(|&(a, b)| y[b] = x[a]);
        }
    };
    if inline(x.len() / from) {
        chunk(x, y);
    } else {
        let rows = x.par_chunks(CHUNK * from).zip(y.par_chunks_mut(CHUNK * to));
        rows.for_each(|(x, y)| chunk(x, y));
    }
}

/// Calls `f(ids, rows)` for every chunk of rows.
fn each_chunk<T: Scalar>(
    ids: &[u32],
    values: &mut [T],
    columns: usize,
    f: impl Fn(&[u32], &mut [T]) + Sync,
) {
    if inline(ids.len()) {
        let rows = values.chunks_mut(CHUNK * columns);
        ids.chunks(CHUNK).zip(rows).for_each(|(ids, values)| f(ids, values));
    } else {
        let rows = values.par_chunks_mut(CHUNK * columns);
        ids.par_chunks(CHUNK).zip(rows).for_each(|(ids, values)| f(ids, values));
    }
}

/// Signs of columns `first..first + columns` of all nodes, 64 per hash.
pub(super) fn fill_signs<T: Scalar>(
    stream: Stream,
    first: u64,
    ids: &[u32],
    values: &mut [T],
    columns: usize,
) {
    each_chunk(ids, values, columns, |ids, values| {
        Arch::new().dispatch(Signs { stream, first, ids, values, columns });
    });
}

/// A chunk of rows to fill with signs. (A type of its own and not a closure: only what is inlined
/// into `with_simd` is compiled for the vector units.)
struct Signs<'a, T> {
    stream: Stream,
    first: u64,
    ids: &'a [u32],
    values: &'a mut [T],
    columns: usize,
}

impl<T: Scalar> WithSimd for Signs<'_, T> {
    type Output = ();

    /// Columns of one word of bits at a time. Hashing the whole chunk before the signs are laid
    /// out lets both loops run on vectors.
    #[inline(always)]
    fn with_simd<V: Simd>(self, _: V) {
        let Signs { stream, first, ids, values, columns } = self;
        let mut bits = [0u64; CHUNK];
        let mut done = 0;
        while done < columns {
            let column = first + done as u64;
            let here = (columns - done).min(64 - (column % 64) as usize);
            for (bits, &id) in bits.iter_mut().zip(ids) {
                *bits = stream.bits(u64::from(id), column / 64) >> (column % 64);
            }
            match (columns, here) {
                (8, 8) => lay_out::<T, 8>(&bits, values),
                (10, 10) => lay_out::<T, 10>(&bits, values),
                (16, 16) => lay_out::<T, 16>(&bits, values),
                _ => {
                    for (bits, row) in bits.iter().zip(values.chunks_exact_mut(columns)) {
                        for (c, value) in row[done..done + here].iter_mut().enumerate() {
                            *value = T::sign(bits >> c);
                        }
                    }
                }
            }
            done += here;
        }
    }
}

/// Rows of `W` signs from the lowest bits.
#[inline(always)]
fn lay_out<T: Scalar, const W: usize>(bits: &[u64; CHUNK], values: &mut [T]) {
    for (bits, row) in bits.iter().zip(values.as_chunks_mut::<W>().0) {
        *row = std::array::from_fn(|c| T::sign_of_low(*bits as u32, c as u32));
    }
}

/// Normal numbers of columns `first..first + columns` of all nodes.
pub(super) fn fill_normals<T: Scalar>(
    stream: Stream,
    first: u64,
    ids: &[u32],
    values: &mut [T],
    columns: usize,
) {
    each_chunk(ids, values, columns, |ids, values| {
        // Short pieces: the rows stay in the nearest cache from pair to pair.
        for (ids, values) in ids.chunks(PIECE).zip(values.chunks_mut(PIECE * columns)) {
            Arch::new().dispatch(Normals { stream, first, ids, values, columns });
        }
    });
}

/// Nodes whose normal numbers are computed at once.
const PIECE: usize = 128;

/// At most [`PIECE`] rows to fill with normal numbers.
struct Normals<'a, T> {
    stream: Stream,
    first: u64,
    ids: &'a [u32],
    values: &'a mut [T],
    columns: usize,
}

impl<T: Scalar> WithSimd for Normals<'_, T> {
    type Output = ();

    /// [`Stream::normal_pair`] for all nodes, pair after pair, by functions that run on vectors.
    #[inline(always)]
    fn with_simd<V: Simd>(self, _: V) {
        let Normals { stream, first, ids, values, columns } = self;
        let mut pairs = [[0.0f64; PIECE]; 2];
        let [cosines, sines] = &mut pairs;
        let last = first + columns as u64;
        for pair in first / 2..last.div_ceil(2) {
            for ((cosine, sine), &id) in cosines.iter_mut().zip(sines.iter_mut()).zip(ids) {
                [*cosine, *sine] = stream.normal_pair_inline(u64::from(id), pair);
            }
            let rows = values.chunks_exact_mut(columns);
            let pairs = rows.zip(cosines.iter().zip(&*sines));
            match (2 * pair).checked_sub(first) {
                Some(at) if 2 * pair + 1 < last => {
                    let at = at as usize;
                    for (row, (cosine, sine)) in pairs {
                        row[at..at + 2]
                            .copy_from_slice(&[T::from_f64(*cosine), T::from_f64(*sine)]);
                    }
                }
                Some(at) => pairs.for_each(|(row, (c, _))| row[at as usize] = T::from_f64(*c)),
                None => pairs.for_each(|(row, (_, s))| row[0] = T::from_f64(*s)),
            }
        }
    }
}
