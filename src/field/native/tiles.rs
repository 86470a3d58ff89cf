//! Passes over whole blocks, some columns at a time, so that the compiler keeps the numbers of a
//! column (coefficients, sums) in registers.

use super::cover::Columns;
use super::{CHUNK, inline};
use crate::field::Scalar;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// A pass over all columns, compiled for the vector units found at run time.
struct AllColumns<P> {
    columns: usize,
    pass: P,
}

impl<P: Columns> WithSimd for AllColumns<P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<V: Simd>(mut self, _: V) {
        self.pass.passes(self.columns, self.columns);
    }
}

fn run<P: Columns>(columns: usize, pass: P) {
    Arch::new().dispatch(AllColumns { columns, pass });
}

/// Columns `first..first + W` of each row.
#[inline(always)]
fn rows<T, const W: usize>(
    values: &[T],
    stride: usize,
    first: usize,
) -> impl Iterator<Item = &[T; W]> {
    values.chunks_exact(stride).map(move |row| row[first..].first_chunk().expect("W columns"))
}

/// [`rows`] to be written.
#[inline(always)]
fn rows_mut<T, const W: usize>(
    values: &mut [T],
    stride: usize,
    first: usize,
) -> impl Iterator<Item = &mut [T; W]> {
    let rows = values.chunks_exact_mut(stride);
    rows.map(move |row| row[first..].first_chunk_mut().expect("W columns"))
}

/// One number per column, of a tile.
#[inline(always)]
fn numbers<T: Scalar, const W: usize>(values: &[f64], first: usize) -> [T; W] {
    std::array::from_fn(|c| T::from_f64(values[first + c]))
}

/// Adds up sums of chunks of rows, in the order of the rows: the result does not depend on the
/// threads. `chunk(k, sums)` adds the sums of chunk `k` to zeros.
fn sum_chunks(rows: usize, sums: &mut [f64], chunk: impl Fn(usize, &mut [f64]) + Sync) {
    sums.fill(0.0);
    let chunks = rows.div_ceil(CHUNK);
    if inline(rows) {
        let (mut few, mut many) = ([0.0; 64], Vec::new());
        let partial = match few.get_mut(..sums.len()) {
            Some(partial) => partial,
            None => {
                many.resize(sums.len(), 0.0);
                &mut many[..]
            }
        };
        for k in 0..chunks {
            partial.fill(0.0);
            chunk(k, partial);
            sums.iter_mut().zip(&*partial).for_each(|(sum, p)| *sum += p);
        }
        return;
    }
    let mut partial = vec![0.0; chunks * sums.len()];
    partial.par_chunks_mut(sums.len()).enumerate().for_each(|(k, partial)| chunk(k, partial));
    for partial in partial.chunks_exact(sums.len()) {
        sums.iter_mut().zip(partial).for_each(|(sum, p)| *sum += p);
    }
}

/// Rows of chunk `k`, `width` values each.
fn part_of<T>(values: &[T], k: usize, width: usize) -> &[T] {
    &values[k * CHUNK * width..values.len().min((k + 1) * CHUNK * width)]
}

// ---- column dots ----------------------------------------------------------------------------

/// `dots[c] = Σ_i x_ic y_ic`.
pub(super) fn dots<T: Scalar>(x: &[T], y: &[T], columns: usize, dots: &mut [f64]) {
    assert_eq!(dots.len(), columns, "one dot per column");
    assert_eq!(x.len(), y.len(), "blocks of one width");
    sum_chunks(x.len() / columns, dots, |k, sums| {
        run(columns, Dots { x: part_of(x, k, columns), y: part_of(y, k, columns), sums });
    });
}

struct Dots<'a, T> {
    x: &'a [T],
    y: &'a [T],
    sums: &'a mut [f64],
}

impl<T: Scalar> Columns for Dots<'_, T> {
    const WIDEST: usize = 16;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        let mut sums = [0.0; W];
        for (x, y) in rows::<T, W>(self.x, stride, first).zip(rows::<T, W>(self.y, stride, first)) {
            for c in 0..W {
                sums[c] += x[c].to_f64() * y[c].to_f64();
            }
        }
        self.sums[first..first + W].copy_from_slice(&sums);
    }
}

/// The three dots of a step of conjugate gradients: `Σ p s`, `Σ w s²`, `Σ w r²`, `columns` of
/// each, with one `w` per row.
pub(super) fn step_dots<T: Scalar>(
    w: &[T],
    [p, s, r]: [&[T]; 3],
    columns: usize,
    dots: &mut [f64],
) {
    assert_eq!(dots.len(), 3 * columns, "three dots per column");
    assert!(p.len() == s.len() && s.len() == r.len(), "blocks of one width");
    sum_chunks(p.len() / columns, dots, |k, sums| {
        let blocks = [p, s, r].map(|values| part_of(values, k, columns));
        run(columns, StepDots { w: part_of(w, k, 1), blocks, columns, sums });
    });
}

struct StepDots<'a, T> {
    w: &'a [T],
    blocks: [&'a [T]; 3],
    columns: usize,
    sums: &'a mut [f64],
}

impl<T: Scalar> Columns for StepDots<'_, T> {
    const WIDEST: usize = 16;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        let mut sums = [[0.0; W]; 3];
        let [p, s, r] = self.blocks.map(|values| rows::<T, W>(values, stride, first));
        for (((p, s), r), w) in p.zip(s).zip(r).zip(self.w) {
            let w = w.to_f64();
            for c in 0..W {
                let (p, s, r) = (p[c].to_f64(), s[c].to_f64(), r[c].to_f64());
                sums[0][c] += p * s;
                sums[1][c] += w * s * s;
                sums[2][c] += w * r * r;
            }
        }
        for (k, sums) in sums.iter().enumerate() {
            self.sums[k * self.columns + first..][..W].copy_from_slice(sums);
        }
    }
}

// ---- updates --------------------------------------------------------------------------------

/// `y = f(a_c, x, y)` with one `a` per column.
pub(super) fn zip_columns<T: Scalar>(
    a: &[f64],
    x: &[T],
    y: &mut [T],
    f: impl Fn(T, T, T) -> T + Sync,
) {
    assert_eq!(x.len(), y.len(), "blocks of one width");
    let (columns, f) = (a.len(), &f);
    let chunk = |x: &[T], y: &mut [T]| run(columns, Zip { a, x, y, f });
    let size = CHUNK * columns;
    if inline(x.len() / columns) {
        chunk(x, y);
    } else {
        x.par_chunks(size).zip(y.par_chunks_mut(size)).for_each(|(x, y)| chunk(x, y));
    }
}

struct Zip<'a, T, F> {
    a: &'a [f64],
    x: &'a [T],
    y: &'a mut [T],
    f: &'a F,
}

impl<T: Scalar, F: Fn(T, T, T) -> T> Columns for Zip<'_, T, F> {
    const WIDEST: usize = 16;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        let a: [T; W] = numbers(self.a, first);
        for (x, y) in rows::<T, W>(self.x, stride, first).zip(rows_mut(self.y, stride, first)) {
            let made: [T; W] = std::array::from_fn(|c| (self.f)(a[c], x[c], y[c]));
            *y = made;
        }
    }
}

/// A step of conjugate gradients: `x += α p`, `r −= α s`, `p = w ∘ r + β p`.
pub(super) fn step<T: Scalar>(
    alpha: &[f64],
    beta: &[f64],
    w: &[T],
    s: &[T],
    [p, x, r]: [&mut [T]; 3],
) {
    assert_eq!(alpha.len(), beta.len(), "two numbers per column");
    assert!(s.len() == p.len() && s.len() == x.len() && s.len() == r.len(), "blocks of one width");
    let columns = alpha.len();
    let chunk = |w: &[T], s: &[T], p: &mut [T], x: &mut [T], r: &mut [T]| {
        run(columns, Step { alpha, beta, w, s, p, x, r });
    };
    if inline(s.len() / columns) {
        return chunk(w, s, p, x, r);
    }
    let size = CHUNK * columns;
    let inputs = w.par_chunks(CHUNK).zip(s.par_chunks(size));
    let outputs = p.par_chunks_mut(size).zip(x.par_chunks_mut(size)).zip(r.par_chunks_mut(size));
    inputs.zip(outputs).for_each(|((w, s), ((p, x), r))| chunk(w, s, p, x, r));
}

struct Step<'a, T> {
    alpha: &'a [f64],
    beta: &'a [f64],
    w: &'a [T],
    s: &'a [T],
    p: &'a mut [T],
    x: &'a mut [T],
    r: &'a mut [T],
}

impl<T: Scalar> Columns for Step<'_, T> {
    const WIDEST: usize = 16;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        let alpha: [T; W] = numbers(self.alpha, first);
        let beta: [T; W] = numbers(self.beta, first);
        let changed = rows_mut::<T, W>(self.p, stride, first)
            .zip(rows_mut::<T, W>(self.x, stride, first))
            .zip(rows_mut::<T, W>(self.r, stride, first));
        for ((((p, x), r), s), &w) in changed.zip(rows::<T, W>(self.s, stride, first)).zip(self.w) {
            for c in 0..W {
                x[c] += alpha[c] * p[c];
                r[c] = r[c] - alpha[c] * s[c];
                p[c] = w * r[c] + beta[c] * p[c];
            }
        }
    }
}

/// `z = a x + b y + c z` with factors `[a, b, c]` per column.
pub(super) fn combine<T: Scalar>(factors: [&[f64]; 3], x: &[T], y: &[T], z: &mut [T]) {
    assert!(x.len() == z.len() && y.len() == z.len(), "blocks of one width");
    let columns = factors[0].len();
    let size = CHUNK * columns;
    let chunk = |x: &[T], y: &[T], z: &mut [T]| run(columns, Combine { factors, x, y, z });
    if inline(z.len() / columns) {
        let chunks = x.chunks(size).zip(y.chunks(size)).zip(z.chunks_mut(size));
        chunks.for_each(|((x, y), z)| chunk(x, y, z));
    } else {
        let chunks = x.par_chunks(size).zip(y.par_chunks(size)).zip(z.par_chunks_mut(size));
        chunks.for_each(|((x, y), z)| chunk(x, y, z));
    }
}

struct Combine<'a, T> {
    factors: [&'a [f64]; 3],
    x: &'a [T],
    y: &'a [T],
    z: &'a mut [T],
}

impl<T: Scalar> Columns for Combine<'_, T> {
    /// Three factors per column take many registers.
    const WIDEST: usize = 8;

    #[inline(always)]
    fn pass<const W: usize>(&mut self, stride: usize, first: usize) {
        let [a, b, c] = self.factors.map(|factors| numbers::<T, W>(factors, first));
        let given = rows::<T, W>(self.x, stride, first).zip(rows::<T, W>(self.y, stride, first));
        for ((x, y), z) in given.zip(rows_mut::<T, W>(self.z, stride, first)) {
            for k in 0..W {
                z[k] = a[k] * x[k] + b[k] * y[k] + c[k] * z[k];
            }
        }
    }
}
