//! Gradients of layers: a transposed layer, the sums over rows that the gradient follows from, and
//! what becomes of the result, row by row in vectors.

#![allow(unsafe_code, reason = "coefficients of checked rows, read without checking each again")]

use super::kernel::{self, Csr};
use super::lanes::{self, Lanes};
use super::stencil::{Adjoint, Linear, Stencil, Totals, coefficient};
use crate::field::{LayerSums, Scalar};
use pulp::Simd;
use std::ops::Range;

/// [`Adjoint`] with the sums of [`LayerSums`], and with what becomes of the result, in the same
/// pass.
#[derive(Clone, Copy)]
pub(super) struct Gradient<'a, T, K, F> {
    pub adjoint: Adjoint<'a, T>,
    pub bias: T,
    pub log_degree: &'a [f64],
    pub input: &'a [T],
    pub forward: K,
    pub epilogue: F,
}

impl<T: Scalar, K: Forward<T>, F: Epilogue<T>> Stencil<T> for Gradient<'_, T, K, F> {
    fn squared(&self) -> bool {
        Linear::squared(&self.adjoint)
    }

    fn run(
        &self,
        csr: &Csr<T>,
        input: &[T],
        columns: usize,
        rows: Range<usize>,
        out: kernel::Output<T>,
    ) -> Totals {
        kernel::gradient(self, csr, input, columns, rows, out)
    }
}

impl<T: Scalar, K: Forward<T>, F: Epilogue<T>> Gradient<'_, T, K, F> {
    /// Blocks that are read row by row.
    #[inline(always)]
    pub fn blocks(&self) -> [&[T]; 2] {
        [self.input, self.forward.block()]
    }

    /// The row at `place`: `own` is the cotangent there, `gathered` the sum `Σ_j w_ij (s_j/d_j)
    /// g_j`.
    ///
    /// # Safety
    /// The row must be one that `kernel::check` has verified.
    #[inline(always)]
    pub unsafe fn row<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        own: &Row<T, S, N>,
        gathered: &Row<T, S, N>,
        sums: &mut Sums<T, S, N>,
    ) -> RowResult<T, S, N> {
        let input: Row<T, S, N> = place.at.map(|at| load(self.input, at));
        // SAFETY: the caller has verified the row.
        let (log_degree, coefficients) =
            unsafe { (coefficient(self.log_degree, place.i), self.adjoint.coefficients(place.i)) };
        self.forward.add(simd, place, own, (self.bias, log_degree), sums);
        for v in 0..N {
            sums.rho[v] = T::fused(simd, gathered[v], input[v], sums.rho[v]);
            sums.bias[v] = T::plus(simd, sums.bias[v], own[v]);
        }
        let [s, r, _] = coefficients.map(|value| T::splat(simd, value));
        let g = |v: usize| T::fused(simd, r, gathered[v], T::times(simd, s, own[v]));
        self.epilogue.apply(simd, place, &input, std::array::from_fn(g), sums)
    }
}

/// Columns of one row: `N` vectors.
pub(super) type Row<T, S, const N: usize> = [<T as Lanes>::Vector<S>; N];

/// Which columns of which row.
pub(super) struct Position<T: Lanes, S: Simd, const N: usize> {
    /// The row.
    pub i: usize,
    /// Where the vectors begin, counted over the whole block.
    pub at: [usize; N],
    /// Whether these are the first vectors of the row.
    pub leading: bool,
    /// 1 in the lanes that no vector before has covered, 0 elsewhere.
    pub fresh: Row<T, S, N>,
}

impl<T: Scalar, S: Simd, const N: usize> Position<T, S, N> {
    /// `Σ_c a_c b_c`.
    #[inline(always)]
    fn dot(&self, simd: S, a: &Row<T, S, N>, b: &Row<T, S, N>) -> T {
        let mut sum = T::splat(simd, T::ZERO);
        for v in 0..N {
            let fresh = T::times(simd, a[v], self.fresh[v]);
            sum = T::fused(simd, fresh, b[v], sum);
        }
        T::sum(simd, sum)
    }
}

/// What a stencil has made: the row, and its contributions to two node fields.
pub(super) struct RowResult<T: Lanes, S: Simd, const N: usize> {
    pub row: Row<T, S, N>,
    pub fields: [T; 2],
}

impl<T: Scalar, S: Simd, const N: usize> RowResult<T, S, N> {
    #[inline(always)]
    fn row(row: Row<T, S, N>) -> Self {
        RowResult { row, fields: [T::ZERO; 2] }
    }
}

/// Sums of every lane: adding across a row for every row would cost more than the row itself.
pub(super) struct Sums<T: Lanes, S: Simd, const N: usize> {
    alpha: Row<T, S, N>,
    rho: Row<T, S, N>,
    gamma: Row<T, S, N>,
    bias: Row<T, S, N>,
    misfit: Row<T, S, N>,
    /// `Σ g u` and `Σ g u log d` of rows whose dots are known.
    known: [f64; 2],
}

impl<T: Scalar, S: Simd, const N: usize> Sums<T, S, N> {
    #[inline(always)]
    pub fn new(simd: S) -> Self {
        let zero = [T::splat(simd, T::ZERO); N];
        Sums { alpha: zero, rho: zero, gamma: zero, bias: zero, misfit: zero, known: [0.0; 2] }
    }

    /// `Σ g u` and `Σ g u log d` of a row, with `u` the output less the bias.
    #[inline(always)]
    fn add_products(
        &mut self,
        simd: S,
        g: &Row<T, S, N>,
        output: &Row<T, S, N>,
        bias: T,
        log_degree: f64,
    ) {
        let (bias, log_degree) = (T::splat(simd, bias), T::splat(simd, T::from_f64(log_degree)));
        for v in 0..N {
            let gu = T::times(simd, g[v], T::minus(simd, output[v], bias));
            self.alpha[v] = T::plus(simd, self.alpha[v], gu);
            self.gamma[v] = T::fused(simd, gu, log_degree, self.gamma[v]);
        }
    }

    /// Adds all lanes to `total` in double precision, without the first `overlap` of each vector.
    #[inline(always)]
    pub fn add_to(&self, overlap: [usize; N], total: &mut Totals) {
        let sum = |row: &Row<T, S, N>| -> f64 {
            let lanes = |v: usize| &bytemuck::cast_slice::<_, T>(&row[v..=v])[overlap[v]..];
            (0..N).flat_map(lanes).map(|x| x.to_f64()).sum()
        };
        let layer = LayerSums {
            alpha: sum(&self.alpha) + self.known[0],
            rho: sum(&self.rho),
            gamma: sum(&self.gamma) + self.known[1],
            bias: sum(&self.bias),
        };
        total.add(&Totals { layer, misfit: sum(&self.misfit) });
    }
}

/// What is known of the forward output `u + b`: the sums `Σ g u` and `Σ g u log d`.
pub(super) trait Forward<T: Scalar>: Sync + Copy {
    /// The block that it is, if it is one.
    fn block(&self) -> &[T] {
        &[]
    }
    fn add<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        own: &Row<T, S, N>,
        bias_and_log_degree: (T, f64),
        sums: &mut Sums<T, S, N>,
    );
}

/// The output is the cotangent itself.
#[derive(Clone, Copy)]
pub(super) struct Cotangent;

impl<T: Scalar> Forward<T> for Cotangent {
    #[inline(always)]
    fn add<S: Simd, const N: usize>(
        &self,
        simd: S,
        _place: &Position<T, S, N>,
        own: &Row<T, S, N>,
        (bias, log_degree): (T, f64),
        sums: &mut Sums<T, S, N>,
    ) {
        sums.add_products(simd, own, own, bias, log_degree);
    }
}

/// The output is this block.
#[derive(Clone, Copy)]
pub(super) struct Values<'a, T>(pub &'a [T]);

impl<T: Scalar> Forward<T> for Values<'_, T> {
    fn block(&self) -> &[T] {
        self.0
    }
    #[inline(always)]
    fn add<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        own: &Row<T, S, N>,
        (bias, log_degree): (T, f64),
        sums: &mut Sums<T, S, N>,
    ) {
        let output = place.at.map(|at| load(self.0, at));
        sums.add_products(simd, own, &output, bias, log_degree);
    }
}

/// Only its dots with the cotangent are known, `Σ_c g_ic u_ic = a_i b_i`.
#[derive(Clone, Copy)]
pub(super) struct Dots<'a, T>(pub &'a [T], pub &'a [T]);

impl<T: Scalar> Forward<T> for Dots<'_, T> {
    #[inline(always)]
    fn add<S: Simd, const N: usize>(
        &self,
        _simd: S,
        place: &Position<T, S, N>,
        _own: &Row<T, S, N>,
        (_, log_degree): (T, f64),
        sums: &mut Sums<T, S, N>,
    ) {
        if place.leading {
            let dot = (self.0[place.i] * self.1[place.i]).to_f64();
            sums.known[0] += dot;
            sums.known[1] += dot * log_degree;
        }
    }
}

/// What becomes of a row `g` of the result, given the row `x` of the forward input.
pub(super) trait Epilogue<T: Scalar>: Sync + Copy {
    fn apply<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        x: &Row<T, S, N>,
        g: Row<T, S, N>,
        sums: &mut Sums<T, S, N>,
    ) -> RowResult<T, S, N>;
}

/// The row stays as it is.
#[derive(Clone, Copy)]
pub(super) struct Identity;

impl<T: Scalar> Epilogue<T> for Identity {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(
        &self,
        _simd: S,
        _place: &Position<T, S, N>,
        _x: &Row<T, S, N>,
        g: Row<T, S, N>,
        _sums: &mut Sums<T, S, N>,
    ) -> RowResult<T, S, N> {
        RowResult::row(g)
    }
}

/// A residual is added, and then the row is pulled back through `x = mean + scale ∘ t`: `scale g`
/// is kept, and the fields `Σ_c g` and `Σ_c g t`.
#[derive(Clone, Copy)]
pub(super) struct PullBack<'a, T> {
    pub residual: Option<Residual<'a, T>>,
    /// Mean, zero when absent, and scale.
    pub through: Option<(Option<&'a [T]>, &'a [T])>,
}

/// Adds `precision m_i (x_i − target_i)`.
#[derive(Clone, Copy)]
pub(super) struct Residual<'a, T> {
    pub precision: T,
    pub mask: &'a [T],
    pub target: Option<&'a [T]>,
}

impl<T: Scalar> Epilogue<T> for PullBack<'_, T> {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        x: &Row<T, S, N>,
        mut g: Row<T, S, N>,
        sums: &mut Sums<T, S, N>,
    ) -> RowResult<T, S, N> {
        let (i, splat) = (place.i, |value: T| T::splat(simd, value));
        if let Some(Residual { precision, mask, target }) = self.residual {
            let target = splat(target.map_or(T::ZERO, |target| target[i]));
            let (mask, pull) = (splat(mask[i]), splat(precision * mask[i]));
            for v in 0..N {
                let difference = T::minus(simd, x[v], target);
                g[v] = T::fused(simd, pull, difference, g[v]);
                let masked = T::times(simd, mask, difference);
                sums.misfit[v] = T::fused(simd, masked, difference, sums.misfit[v]);
            }
        }
        let Some((mean, scale)) = self.through else { return RowResult::row(g) };
        let mean = splat(mean.map_or(T::ZERO, |mean| mean[i]));
        let t = std::array::from_fn(|v| T::minus(simd, x[v], mean));
        let ones = [splat(T::ONE); N];
        let fields = [place.dot(simd, &g, &ones), place.dot(simd, &g, &t) / scale[i]];
        let scale = splat(scale[i]);
        RowResult { row: g.map(|g| T::times(simd, g, scale)), fields }
    }
}

/// Only the field `Σ_c g x / w` is wanted.
#[derive(Clone, Copy)]
pub(super) struct RowDots<'a, T>(pub &'a [T]);

impl<T: Scalar> Epilogue<T> for RowDots<'_, T> {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Position<T, S, N>,
        x: &Row<T, S, N>,
        g: Row<T, S, N>,
        _sums: &mut Sums<T, S, N>,
    ) -> RowResult<T, S, N> {
        let dot = place.dot(simd, &g, x) / self.0[place.i];
        RowResult { row: g, fields: [dot, T::ZERO] }
    }
}

/// A vector of neighbouring values.
#[inline(always)]
fn load<T: Scalar, S: Simd>(values: &[T], at: usize) -> T::Vector<S> {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(&values[at..at + lanes::lanes::<T, S>()]))
}
