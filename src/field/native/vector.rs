//! Passes over whole blocks: dots, column and row scalings, random fills.

use super::{CHUNK, Scalar, inline};
use crate::random::Stream;
use pulp::Arch;
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
    a: &[T],
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
                        *y = f(a, x, *y);
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

/// Calls `f(id, row)` for every row.
pub(super) fn each_row<T: Scalar>(
    ids: &[u32],
    values: &mut [T],
    columns: usize,
    f: impl Fn(u32, &mut [T]) + Sync,
) {
    let chunk = |ids: &[u32], values: &mut [T]| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (&id, row) in ids.iter().zip(values.chunks_exact_mut(columns)) {
                    f(id, row);
                }
            },
        );
    };
    if inline(ids.len()) {
        chunk(ids, values);
    } else {
        let rows = values.par_chunks_mut(CHUNK * columns);
        ids.par_chunks(CHUNK).zip(rows).for_each(|(ids, values)| chunk(ids, values));
    }
}

/// Signs of columns `first..first + row.len()` of a node: 64 per hash.
#[inline(always)]
pub(super) fn signs<T: Scalar>(stream: Stream, node: u64, first: u64, row: &mut [T]) {
    let mut column = first;
    let mut rest = row;
    while !rest.is_empty() {
        let bits = stream.bits(node, column / 64) >> (column % 64);
        let here = rest.len().min(64 - (column % 64) as usize);
        let (now, later) = rest.split_at_mut(here);
        for (c, value) in now.iter_mut().enumerate() {
            *value = T::sign(bits >> c & 1);
        }
        column += here as u64;
        rest = later;
    }
}

/// Normal numbers of columns `first..first + row.len()` of a node, two per pair.
#[inline(always)]
pub(super) fn normals<T: Scalar>(stream: Stream, node: u64, first: u64, row: &mut [T]) {
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
