//! Passes over whole blocks: dots, column and row scalings, random fills.

use super::{CHUNK, Scalar, inline};
use crate::random::Stream;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Column dots. Chunks of rows are summed by themselves and added in order.
pub(super) fn dots<T: Scalar>(x: &[T], y: &[T], columns: usize, dots: &mut [f64]) {
    assert_eq!(dots.len(), columns, "one dot per column");
    assert_eq!(x.len(), y.len(), "blocks of one width");
    dots.fill(0.0);
    let chunk = |x: &[T], y: &[T], sums: &mut [f64]| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact(columns)) {
                    for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
                        *sum += x.to_f64() * y.to_f64();
                    }
                }
            },
        );
    };
    let size = CHUNK * columns;
    if inline(x.len() / columns) {
        // The same chunks as below: the result must not depend on the threads.
        let mut sums = [0.0; 64];
        let mut many = Vec::new();
        let sums = if columns <= sums.len() {
            &mut sums[..columns]
        } else {
            many.resize(columns, 0.0);
            &mut many[..]
        };
        for (x, y) in x.chunks(size).zip(y.chunks(size)) {
            sums.fill(0.0);
            chunk(x, y, sums);
            dots.iter_mut().zip(&*sums).for_each(|(d, s)| *d += s);
        }
        return;
    }
    let partial: Vec<Vec<f64>> = x
        .par_chunks(size)
        .zip(y.par_chunks(size))
        .map(|(x, y)| {
            let mut sums = vec![0.0; columns];
            chunk(x, y, &mut sums);
            sums
        })
        .collect();
    for sums in partial {
        dots.iter_mut().zip(sums).for_each(|(d, s)| *d += s);
    }
}

/// `y = f(a_c, x, y)` with one `a` per column.
pub(super) fn zip_columns<T: Scalar>(
    a: &[f64],
    x: &[T],
    y: &mut [T],
    f: impl Fn(T, T, T) -> T + Sync,
) {
    assert_eq!(x.len(), y.len(), "blocks of one width");
    let columns = a.len();
    let chunk = |x: &[T], y: &mut [T]| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
                    for ((&a, &x), y) in a.iter().zip(x).zip(y) {
                        *y = f(T::from_f64(a), x, *y);
                    }
                }
            },
        );
    };
    let size = CHUNK * columns;
    if inline(x.len() / columns) {
        chunk(x, y);
    } else {
        x.par_chunks(size).zip(y.par_chunks_mut(size)).for_each(|(x, y)| chunk(x, y));
    }
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
        Arch::new().dispatch(
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
        for (&id, row) in ids.iter().zip(values.chunks_exact_mut(columns)) {
            normals(stream, u64::from(id), first, row);
        }
    });
}

/// Normal numbers of columns `first..first + row.len()` of a node, two per pair.
fn normals<T: Scalar>(stream: Stream, node: u64, first: u64, row: &mut [T]) {
    let mut c = 0;
    while c < row.len() {
        let column = first + c as u64;
        let pair = stream.normal_pair(node, column / 2);
        let from = (column % 2) as usize;
        for &value in &pair[from..] {
            if c < row.len() {
                row[c] = T::from_f64(value);
                c += 1;
            }
        }
    }
}
