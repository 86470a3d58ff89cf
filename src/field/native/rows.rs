//! Passes over rows that need no neighbours: each chunk by one thread, in vector registers.
//!
//! The loops are written for a width known at compile time where it is a common one (`W`), and for
//! any width otherwise (`W = 0`); [`pulp`] compiles them for the vector units found at run time.

use super::vector::{self, on_vectors};
use super::{Block, CHUNK, Native, inline};
use crate::field::{Draw, Residual, Scalar};
use crate::random::Stream;
use rayon::prelude::*;

/// Calls `$f::<T, W>($columns, ...)` with the width as a constant where it is a common one, in
/// code for the vector units of this machine.
macro_rules! by_width {
    ($columns:expr, $f:ident($($argument:expr),*)) => {
        on_vectors(
            #[inline(always)]
            || match $columns {
                1 => $f::<T, 1>(1, $($argument),*),
                8 => $f::<T, 8>(8, $($argument),*),
                10 => $f::<T, 10>(10, $($argument),*),
                16 => $f::<T, 16>(16, $($argument),*),
                columns => $f::<T, 0>(columns, $($argument),*),
            },
        )
    };
}

/// The width as the compiler should see it.
#[inline(always)]
const fn width<const W: usize>(columns: usize) -> usize {
    if W == 0 { columns } else { W }
}

/// Fewest chunks that one thread takes: all of them where sharing would not pay.
fn least(rows: usize) -> usize {
    if inline(rows) { usize::MAX } else { 1 }
}

impl<T: Scalar> Native<T> {
    /// Chunks of owned rows.
    fn chunks<'b>(&self, block: &'b Block<T>) -> rayon::slice::Chunks<'b, T> {
        self.owned(block).par_chunks(CHUNK * block.columns)
    }

    /// Chunks of owned rows to be written.
    fn chunks_mut<'b>(&self, block: &'b mut Block<T>) -> rayon::slice::ChunksMut<'b, T> {
        let columns = block.columns;
        self.owned_mut(block).par_chunks_mut(CHUNK * columns)
    }

    pub(super) fn product_rows(
        &self,
        beta: f64,
        alpha: f64,
        a: &Block<T>,
        b: Option<&Block<T>>,
        y: &mut Block<T>,
    ) {
        let columns = y.columns;
        let (beta, alpha) = (T::from_f64(beta), T::from_f64(alpha));
        let least = least(self.part.owned);
        match b {
            Some(b) if a.columns == columns && b.columns == columns => {
                let rows = self.chunks_mut(y).zip(self.chunks(a)).zip(self.chunks(b));
                rows.with_min_len(least).for_each(|((y, a), b)| {
                    on_vectors(
                        #[inline(always)]
                        || {
                            if beta == T::ZERO {
                                zip3(y, a, b, |_, a, b| alpha * a * b);
                            } else {
                                zip3(y, a, b, |y, a, b| beta * y + alpha * a * b);
                            }
                        },
                    )
                });
            }
            _ => {
                let widths = (a.columns, b.map_or(0, |b| b.columns));
                let fits = |width: usize| width == 1 || width == columns;
                assert!(fits(widths.0) && (b.is_none() || fits(widths.1)), "widths of a product");
                let rows = self.chunks_mut(y).zip(self.chunks(a)).zip(self.chunks(b.unwrap_or(a)));
                rows.with_min_len(least).for_each(|((y, a), b)| {
                    spread(y, columns, (a, b), widths, |y, product| {
                        let product = alpha * product;
                        if beta == T::ZERO { product } else { beta * y + product }
                    });
                });
            }
        }
    }

    pub(super) fn residual_rows(
        &self,
        residual: &Residual<'_, Block<T>>,
        x: &Block<T>,
        g: &mut Block<T>,
    ) -> f64 {
        assert_eq!(x.columns, g.columns, "blocks of one width");
        let Residual { precision, mask, target } = *residual;
        let (columns, p) = (x.columns, T::from_f64(precision));
        // Without a target the mask stands in for it, times nothing.
        let (target, times) = target.map_or((mask, T::ZERO), |target| (target, T::ONE));
        let mut sums = self.sums.borrow_mut();
        let rows = self.chunks_mut(g).zip(self.chunks(x));
        let rows = rows.zip(self.chunks(mask)).zip(self.chunks(target));
        let rows = rows.zip(sums.par_iter_mut()).with_min_len(least(self.part.owned));
        rows.for_each(|((((g, x), mask), target), sum)| {
            *sum = by_width!(columns, add_residual(p, mask, target, times, x, g));
        });
        sums.iter().sum() // in the order of the chunks
    }

    pub(super) fn draw_rows(
        &self,
        draw: Draw,
        stream: Stream,
        w: Option<&Block<T>>,
        u: &mut Block<T>,
    ) {
        let columns = u.columns;
        let ids = self.part.owned_ids().par_chunks(CHUNK);
        let fill = |ids: &[u32], u: &mut [T]| match draw {
            Draw::Normal => vector::fill_normals(stream, 0, ids, u, columns),
            Draw::Rademacher => vector::fill_signs(stream, 0, ids, u, columns),
        };
        let rows = self.chunks_mut(u).zip(ids);
        match w {
            Some(w) => {
                let rows = rows.zip(self.chunks(w)).with_min_len(least(self.part.owned));
                // The chunk is still in the nearest cache when it is scaled.
                rows.for_each(|((u, ids), w)| {
                    fill(ids, u);
                    by_width!(columns, scale(w, u));
                });
            }
            None => {
                let rows = rows.with_min_len(least(self.part.owned));
                rows.for_each(|(u, ids)| fill(ids, u));
            }
        }
    }

    pub(super) fn affine_rows(
        &self,
        mean: Option<&Block<T>>,
        scale: &Block<T>,
        t: &Block<T>,
        x: &mut Block<T>,
    ) {
        assert_eq!(t.columns, x.columns, "blocks of one width");
        let columns = t.columns;
        let (mean, times) = mean.map_or((scale, T::ZERO), |mean| (mean, T::ONE));
        let rows = self.chunks_mut(x).zip(self.chunks(t));
        let rows = rows.zip(self.chunks(mean)).zip(self.chunks(scale));
        rows.with_min_len(least(self.part.owned)).for_each(|(((x, t), mean), scale)| {
            by_width!(columns, affine(mean, times, scale, t, x));
        });
    }

    pub(super) fn subtract_linear_rows(
        &self,
        f: &Block<T>,
        a: &[f64],
        base: &Block<T>,
        out: &mut Block<T>,
    ) {
        let (columns, features) = (base.columns, f.columns);
        assert_eq!(columns, out.columns, "blocks of one width");
        assert_eq!(features * columns, a.len(), "one coefficient per feature and column");
        let rows = self.chunks_mut(out).zip(self.chunks(f)).zip(self.chunks(base));
        rows.with_min_len(least(self.part.owned)).for_each(|((out, f), base)| {
            let rows = out.chunks_exact_mut(columns).zip(base.chunks_exact(columns));
            for ((out, base), f) in rows.zip(f.chunks_exact(features)) {
                out.copy_from_slice(base);
                for (&f, a) in f.iter().zip(a.chunks_exact(columns)) {
                    out.iter_mut().zip(a).for_each(|(out, &a)| *out = *out - f * T::from_f64(a));
                }
            }
        });
    }

    pub(super) fn project_rows(&self, f: &Block<T>, v: &Block<T>, out: &mut [f64]) {
        let (columns, features) = (v.columns, f.columns);
        assert_eq!(features * columns, out.len(), "one sum per pair of columns");
        let mut sums = self.sums.borrow_mut();
        let chunks = sums.len();
        sums.resize(chunks * out.len(), 0.0);
        let rows = self.chunks(f).zip(self.chunks(v)).zip(sums.par_chunks_mut(out.len()));
        rows.with_min_len(least(self.part.owned)).for_each(|((f, v), sums)| {
            sums.fill(0.0);
            for (f, v) in f.chunks_exact(features).zip(v.chunks_exact(columns)) {
                for (f, sums) in f.iter().zip(sums.chunks_exact_mut(columns)) {
                    sums.iter_mut().zip(v).for_each(|(sum, v)| *sum += f.to_f64() * v.to_f64());
                }
            }
        });
        out.fill(0.0);
        for sums in sums.chunks_exact(out.len()) {
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
        }
        sums.truncate(chunks);
    }
}

/// Sums that run side by side: one sum would make every addition wait for the one before.
pub(super) const LANES: usize = 8;

/// What the lanes add up to.
#[inline(always)]
pub(super) fn total<T: Copy + std::ops::Add<Output = T>>(lanes: [T; LANES]) -> T {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn zip3<T: Scalar>(y: &mut [T], a: &[T], b: &[T], f: impl Fn(T, T, T) -> T) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(*y, a, b);
    }
}

/// `y = f(y, a b)` for rows of `y`; `a` and `b` as wide as these, or one value per row. Without `b`
/// (width 0) the product is `a`.
fn spread<T: Scalar>(
    y: &mut [T],
    columns: usize,
    (a, b): (&[T], &[T]),
    widths: (usize, usize),
    f: impl Fn(T, T) -> T,
) {
    for (i, y) in y.chunks_exact_mut(columns).enumerate() {
        for (c, y) in y.iter_mut().enumerate() {
            let at = |values: &[T], width: usize| match width {
                0 => T::ONE,
                1 => values[i],
                _ => values[i * width + c],
            };
            *y = f(*y, at(a, widths.0) * at(b, widths.1));
        }
    }
}

#[inline(always)]
fn add_residual<T: Scalar, const W: usize>(
    columns: usize,
    p: T,
    mask: &[T],
    target: &[T],
    times: T,
    x: &[T],
    g: &mut [T],
) -> f64 {
    let columns = width::<W>(columns);
    let mut sums = [0.0; LANES];
    let rows = x.chunks_exact(columns).zip(g.chunks_exact_mut(columns)).zip(mask).zip(target);
    for (((x, g), &mask), &target) in rows {
        let (target, pull) = (times * target, p * mask);
        for (x, g) in x.chunks(LANES).zip(g.chunks_mut(LANES)) {
            for ((&x, g), sum) in x.iter().zip(g).zip(&mut sums) {
                let difference = x - target;
                *g += pull * difference;
                *sum += (mask * difference * difference).to_f64();
            }
        }
    }
    total(sums)
}

#[inline(always)]
fn scale<T: Scalar, const W: usize>(columns: usize, w: &[T], u: &mut [T]) {
    for (u, &w) in u.chunks_exact_mut(width::<W>(columns)).zip(w) {
        u.iter_mut().for_each(|u| *u = w * *u);
    }
}

#[inline(always)]
fn affine<T: Scalar, const W: usize>(
    columns: usize,
    mean: &[T],
    times: T,
    scale: &[T],
    t: &[T],
    x: &mut [T],
) {
    let columns = width::<W>(columns);
    let rows = t.chunks_exact(columns).zip(x.chunks_exact_mut(columns)).zip(mean).zip(scale);
    for (((t, x), &mean), &scale) in rows {
        let mean = times * mean;
        t.iter().zip(x).for_each(|(&t, x)| *x = mean + scale * t);
    }
}
