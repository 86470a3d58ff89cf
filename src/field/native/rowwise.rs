//! Row passes of training: each chunk of rows by one thread, in vector registers.
//!
//! The loops are written for a width known at compile time where it is a common one (`W`), and for
//! any width otherwise (`W = 0`); [`pulp`] compiles them for the vector units found at run time.

use super::vector::{self, on_vectors};
use super::{Block, CHUNK, Layer, Native, Scalar, gradient, inline, kernel, stencil};
use crate::field::rowwise::{AdamStep, Draw, Moving, Pull, Residual, Rowwise};
use crate::field::{LayerSums, Output};
use crate::profile::{self, Phase};
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

/// Chunks of owned rows.
trait Chunks<T: Scalar> {
    fn chunks<'b>(&self, block: &'b Block<T>) -> rayon::slice::Chunks<'b, T>;
    fn chunks_mut<'b>(&self, block: &'b mut Block<T>) -> rayon::slice::ChunksMut<'b, T>;
}

impl<T: Scalar> Chunks<T> for Native<T> {
    fn chunks<'b>(&self, block: &'b Block<T>) -> rayon::slice::Chunks<'b, T> {
        self.owned(block).par_chunks(CHUNK * block.columns)
    }

    fn chunks_mut<'b>(&self, block: &'b mut Block<T>) -> rayon::slice::ChunksMut<'b, T> {
        let columns = block.columns;
        self.owned_mut(block).par_chunks_mut(CHUNK * columns)
    }
}

impl<T: Scalar> Rowwise for Native<T> {
    fn product(&self, beta: f64, alpha: f64, a: &Block<T>, b: &Block<T>, y: &mut Block<T>) {
        assert!(a.columns == b.columns && a.columns == y.columns, "blocks of one width");
        let (beta, alpha) = (T::from_f64(beta), T::from_f64(alpha));
        let rows = self.chunks_mut(y).zip(self.chunks(a)).zip(self.chunks(b));
        rows.with_min_len(least(self.part.owned)).for_each(|((y, a), b)| {
            on_vectors(
                #[inline(always)]
                || match beta == T::ZERO {
                    true => zip3(y, a, b, |_, a, b| alpha * a * b),
                    false => zip3(y, a, b, |y, a, b| beta * y + alpha * a * b),
                },
            )
        });
    }

    fn residual(
        &self,
        p: f64,
        mask: &Block<T>,
        target: Option<&Block<T>>,
        x: &Block<T>,
        g: &mut Block<T>,
    ) -> f64 {
        assert_eq!(x.columns, g.columns, "blocks of one width");
        let (timer, columns, p) = (profile::start(), x.columns, T::from_f64(p));
        // Without a target the mask stands in for it, times nothing.
        let (target, times) = target.map_or((mask, T::ZERO), |target| (target, T::ONE));
        let mut sums = self.sums.borrow_mut();
        let rows = self.chunks_mut(g).zip(self.chunks(x));
        let rows = rows.zip(self.chunks(mask)).zip(self.chunks(target));
        let rows = rows.zip(sums.par_iter_mut()).with_min_len(least(self.part.owned));
        rows.for_each(|((((g, x), mask), target), sum)| {
            *sum = by_width!(columns, residual(p, mask, target, times, x, g));
        });
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
        sums.iter().sum() // in the order of the chunks
    }

    fn draw(&self, draw: Draw, stream: Stream, w: Option<&Block<T>>, u: &mut Block<T>) {
        let (timer, columns) = (profile::start(), u.columns);
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
        profile::stop(Phase::Random, timer, self.bytes(columns, 1), 0);
    }

    fn layer_located(
        &mut self,
        l: &Layer<T>,
        h: &mut Block<T>,
        mean: Option<&Block<T>>,
        scale: &Block<T>,
        x: &mut Block<T>,
    ) {
        assert_eq!(h.columns, x.columns, "blocks of one width");
        let mut stencil = stencil::Forward::new(l, 0.0);
        stencil.located = Some((mean.map(|mean| &mean.values[..]), &scale.values[..]));
        let out = kernel::Output::block(self.owned_mut(x));
        self.sweep(&stencil, h, out, Phase::Layer);
    }

    fn adjoint_pulled(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        x: &Block<T>,
        output: Output<'_, Block<T>>,
        residual: Option<Residual<'_, Block<T>>>,
        pull: Option<Pull<'_, Block<T>>>,
        gx: &mut Block<T>,
    ) -> (LayerSums, f64) {
        assert_eq!(g.columns, gx.columns, "blocks of one width");
        let residual = residual.map(|r| gradient::Residual {
            precision: T::from_f64(r.precision),
            mask: &r.mask.values[..],
            target: r.target.map(|target| &target.values[..]),
        });
        let mut out = kernel::Output::block(self.owned_mut(gx));
        let mut fate = gradient::Pulled { residual, through: None };
        if let Some(Pull { mean, scale, of_mean, of_scale }) = pull {
            fate.through = Some((mean.map(|mean| &mean.values[..]), &scale.values));
            out.fields = [self.owned_mut(of_mean), self.owned_mut(of_scale)];
        }
        let total = self.gradient(l, with_bias, g, x, output, fate, out);
        (total.layer, total.misfit)
    }

    fn adjoint_dotted(
        &mut self,
        l: &Layer<T>,
        g: &mut Block<T>,
        u: &Block<T>,
        output: Output<'_, Block<T>>,
        w: &Block<T>,
        of_w: &mut Block<T>,
    ) -> LayerSums {
        let fate = gradient::Dotted(&w.values);
        let fields = [self.owned_mut(of_w), &mut []];
        let out = kernel::Output { block: &mut [], fields };
        self.gradient(l, false, g, u, output, fate, out).layer
    }

    fn locate(&self, mean: Option<&Block<T>>, scale: &Block<T>, t: &Block<T>, x: &mut Block<T>) {
        assert_eq!(t.columns, x.columns, "blocks of one width");
        let (timer, columns) = (profile::start(), t.columns);
        let (mean, times) = mean.map_or((scale, T::ZERO), |mean| (mean, T::ONE));
        let rows = self.chunks_mut(x).zip(self.chunks(t));
        let rows = rows.zip(self.chunks(mean)).zip(self.chunks(scale));
        rows.with_min_len(least(self.part.owned)).for_each(|(((x, t), mean), scale)| {
            by_width!(columns, locate(mean, times, scale, t, x));
        });
        profile::stop(Phase::Vector, timer, self.bytes(columns, 2), 0);
    }

    fn subtract_linear(&self, f: &Block<T>, a: &[f64], base: &Block<T>, out: &mut Block<T>) {
        let columns = base.columns;
        assert_eq!(columns, out.columns, "blocks of one width");
        assert_eq!(f.columns * columns, a.len(), "one coefficient per feature and column");
        let (timer, features) = (profile::start(), f.columns);
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
        profile::stop(Phase::Vector, timer, self.bytes(2 * columns + features, 1), 0);
    }

    fn project(&self, f: &Block<T>, v: &Block<T>, out: &mut [f64]) {
        let columns = v.columns;
        assert_eq!(f.columns * columns, out.len(), "one sum per pair of columns");
        let (timer, features) = (profile::start(), f.columns);
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
        profile::stop(Phase::Vector, timer, self.bytes(columns + features, 1), 0);
    }

    fn adam(
        &self,
        step: &AdamStep,
        weight: f64,
        gradient: &Block<T>,
        field: &mut Moving<Block<T>>,
    ) {
        let (timer, step, weight) = (profile::start(), Adam::new(step), T::from_f64(weight));
        let Moving { value, first, second } = field;
        let rows = self.chunks_mut(value).zip(self.chunks_mut(first)).zip(self.chunks_mut(second));
        let rows = rows.zip(self.chunks(gradient)).with_min_len(least(self.part.owned));
        rows.for_each(|(((p, m), v), g)| {
            on_vectors(
                #[inline(always)]
                || {
                    for (((p, m), v), &g) in p.iter_mut().zip(&mut *m).zip(&mut *v).zip(g) {
                        step.update(weight * g, p, m, v);
                    }
                },
            )
        });
        profile::stop(Phase::Vector, timer, self.bytes(1, 7), 0);
    }

    fn adam_positive(
        &self,
        step: &AdamStep,
        weight: f64,
        gradient: &Block<T>,
        field: &mut Moving<Block<T>>,
        positive: &mut Block<T>,
    ) -> f64 {
        let (timer, step, weight) = (profile::start(), Adam::new(step), T::from_f64(weight));
        let mut sums = self.sums.borrow_mut();
        let Moving { value, first, second } = field;
        let rows = self.chunks_mut(value).zip(self.chunks_mut(first)).zip(self.chunks_mut(second));
        let rows = rows.zip(self.chunks(gradient)).zip(self.chunks_mut(positive));
        let rows = rows.zip(sums.par_iter_mut()).with_min_len(least(self.part.owned));
        rows.for_each(|(((((p, m), v), g), positive), sum)| {
            *sum = on_vectors(
                #[inline(always)]
                || adam_positive(&step, weight, (p, m, v), g, positive),
            );
        });
        profile::stop(Phase::Vector, timer, self.bytes(1, 9), 0);
        sums.iter().sum() // in the order of the chunks
    }

    fn softplus(&self, a: &Block<T>, positive: &mut Block<T>) {
        assert_eq!(a.columns, positive.columns, "blocks of one width");
        for (positive, a) in self.owned_mut(positive).iter_mut().zip(self.owned(a)) {
            *positive = softplus(*a);
        }
    }
}

/// Sums that run side by side: one sum would make every addition wait for the one before.
const LANES: usize = 8;

/// What the lanes add up to.
#[inline(always)]
fn total<T: Copy + std::ops::Add<Output = T>>(lanes: [T; LANES]) -> T {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn zip3<T: Scalar>(y: &mut [T], a: &[T], b: &[T], f: impl Fn(T, T, T) -> T) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(*y, a, b);
    }
}

#[inline(always)]
fn residual<T: Scalar, const W: usize>(
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
fn locate<T: Scalar, const W: usize>(
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

/// [`AdamStep`] in the precision of the engine.
#[derive(Clone, Copy)]
struct Adam<T> {
    beta1: T,
    rest1: T,
    beta2: T,
    rest2: T,
    rate: T,
    epsilon: T,
}

impl<T: Scalar> Adam<T> {
    fn new(step: &AdamStep) -> Self {
        let number = T::from_f64;
        Adam {
            beta1: number(step.beta1),
            rest1: number(1.0 - step.beta1),
            beta2: number(step.beta2),
            rest2: number(1.0 - step.beta2),
            rate: number(step.rate),
            epsilon: number(step.epsilon),
        }
    }

    #[inline(always)]
    fn update(&self, g: T, p: &mut T, m: &mut T, v: &mut T) {
        *m = self.beta1 * *m + self.rest1 * g;
        *v = self.beta2 * *v + self.rest2 * g * g;
        *p = *p - self.rate * *m / (v.sqrt() + self.epsilon);
    }
}

#[inline(always)]
fn adam_positive<T: Scalar>(
    step: &Adam<T>,
    weight: T,
    (p, m, v): (&mut [T], &mut [T], &mut [T]),
    gradient: &[T],
    positive: &mut [T],
) -> f64 {
    // Two loops, since one with a sum in it does not run on vectors.
    let mut sums = [0.0; LANES];
    for positive in positive.chunks(LANES) {
        for (positive, sum) in positive.iter().zip(&mut sums) {
            *sum += positive.ln().to_f64();
        }
    }
    let state = p.iter_mut().zip(m).zip(v);
    for ((((p, m), v), &g), positive) in state.zip(gradient).zip(positive) {
        // The derivative of softplus is the sigmoid.
        let sigmoid = T::ONE / (T::ONE + (T::ZERO - *p).exp());
        step.update((weight * g - T::ONE / *positive) * sigmoid, p, m, v);
        *positive = softplus(*p);
    }
    total(sums)
}

/// `log(1 + exp a)`, accurate for all `a`.
#[inline(always)]
fn softplus<T: Scalar>(a: T) -> T {
    let above = if a > T::ZERO { a } else { T::ZERO };
    let e = (a - above - above).exp(); // of −|a|
    // Kahan's log(1 + e): what rounding has done to 1 + e is undone by the quotient.
    let w = T::ONE + e;
    let tail = if w == T::ONE { e } else { w.ln() * (e / (w - T::ONE)) };
    above + tail
}
