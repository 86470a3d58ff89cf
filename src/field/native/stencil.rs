//! What one output row of a sweep is made of, given the gathered neighbours.

use super::lanes::{self, Lanes};
use super::scalar::Scalar;
use crate::field::LayerSums;
use pulp::Simd;

/// Columns of one row: `N` vectors.
pub(super) type Row<T, S, const N: usize> = [<T as Lanes>::Vector<S>; N];

/// A formula for output rows. Sums over columns of a row become node fields, sums over everything
/// [`Sums`].
pub(super) trait Stencil<T: Scalar>: Sync + Copy {
    /// Whether the stencil adds to [`Sums`] or makes node fields.
    const SUMS: bool = false;
    /// Whether edges count with the squares of their weights.
    fn squared(&self) -> bool;
    /// Owned rows for which there are coefficients.
    fn rows(&self) -> usize;
    /// `c_j` of all rows that may be neighbours; one where absent.
    fn factors(&self) -> Option<&[T]> {
        None
    }
    /// Further blocks that are read row by row.
    #[inline(always)]
    fn blocks(&self) -> [&[T]; 2] {
        [&[], &[]]
    }
    /// The row at `place`: `own` is the input there, `gathered` the sum `Σ_j w_ij c_j x_j`.
    fn row<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Place<T, S, N>,
        own: &Row<T, S, N>,
        gathered: &Row<T, S, N>,
        sums: &mut Sums<T, S, N>,
    ) -> Made<T, S, N>;
}

/// Which columns of which row.
pub(super) struct Place<T: Lanes, S: Simd, const N: usize> {
    /// The row.
    pub i: usize,
    /// Where the vectors begin, counted over the whole block.
    pub at: [usize; N],
    /// Whether these are the first vectors of the row.
    pub leading: bool,
    /// 1 in the lanes that no vector before has covered, 0 elsewhere.
    pub fresh: Row<T, S, N>,
}

/// What a stencil has made: the row, and its contributions to two node fields.
pub(super) struct Made<T: Lanes, S: Simd, const N: usize> {
    pub row: Row<T, S, N>,
    pub fields: [T; 2],
}

impl<T: Scalar, S: Simd, const N: usize> Made<T, S, N> {
    #[inline(always)]
    fn row(row: Row<T, S, N>) -> Self {
        Made { row, fields: [T::ZERO; 2] }
    }
}

/// What sums over all rows and columns amount to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub layer: LayerSums,
    /// `Σ m_i (x_ic − target_i)²` of a residual.
    pub misfit: f64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.layer.add(&other.layer);
        self.misfit += other.misfit;
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

    /// Adds all lanes to `total` in double precision, leaving out the first `overlap` of each vector.
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

/// `b + s_i h_i + ρ (s_i/d_i) Σ_j w_ij h_j`, or `mean_i + factor_i` times that.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a, T> {
    pub scale: &'a [T],
    pub ratio: &'a [T],
    pub rho: T,
    pub bias: T,
    pub squared: bool,
    /// Mean and factor of every row.
    pub located: Option<(Option<&'a [T]>, &'a [T])>,
}

impl<T: Scalar> Stencil<T> for Forward<'_, T> {
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.scale.len().min(self.ratio.len())
    }
    #[inline(always)]
    fn row<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Place<T, S, N>,
        own: &Row<T, S, N>,
        gathered: &Row<T, S, N>,
        _sums: &mut Sums<T, S, N>,
    ) -> Made<T, S, N> {
        let i = place.i;
        let mut s = coefficient(self.scale, i);
        let mut r = self.rho * coefficient(self.ratio, i);
        let mut b = self.bias;
        if let Some((mean, factor)) = self.located {
            (s, r) = (factor[i] * s, factor[i] * r);
            b = factor[i] * b + mean.map_or(T::ZERO, |mean| mean[i]);
        }
        let [s, r, b] = [s, r, b].map(|value| T::splat(simd, value));
        Made::row(std::array::from_fn(|v| {
            T::fused(simd, r, gathered[v], T::fused(simd, s, own[v], b))
        }))
    }
}

/// `s_i g_i + ρ Σ_j w_ij (s_j/d_j) g_j`.
#[derive(Clone, Copy)]
pub(super) struct Adjoint<'a, T> {
    scale: &'a [T],
    ratio: &'a [T],
    rho: T,
    squared: bool,
}

impl<'a, T: Scalar> Adjoint<'a, T> {
    pub fn new(l: &'a super::Layer<T>) -> Self {
        let rho = T::from_f64(l.rho);
        Adjoint { scale: &l.scale, ratio: &l.ratio, rho, squared: l.squared }
    }
}

impl<T: Scalar> Stencil<T> for Adjoint<'_, T> {
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.scale.len().min(self.ratio.len())
    }
    fn factors(&self) -> Option<&[T]> {
        Some(self.ratio)
    }
    #[inline(always)]
    fn row<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Place<T, S, N>,
        own: &Row<T, S, N>,
        gathered: &Row<T, S, N>,
        _sums: &mut Sums<T, S, N>,
    ) -> Made<T, S, N> {
        let s = T::splat(simd, coefficient(self.scale, place.i));
        let rho = T::splat(simd, self.rho);
        Made::row(std::array::from_fn(|v| {
            T::fused(simd, rho, gathered[v], T::times(simd, s, own[v]))
        }))
    }
}

/// [`Adjoint`] with the sums of [`LayerSums`], and with what becomes of the result, in the same pass.
#[derive(Clone, Copy)]
pub(super) struct Gradient<'a, T> {
    pub adjoint: Adjoint<'a, T>,
    pub bias: T,
    pub log_degree: &'a [f64],
    pub input: &'a [T],
    pub output: Output<'a, T>,
    /// Adds `precision m_i (x_i − target_i)`, with `x` the input.
    pub residual: Option<Residual<'a, T>>,
    pub fate: Fate<'a, T>,
}

/// The forward output `u + b`.
#[derive(Clone, Copy)]
pub(super) enum Output<'a, T> {
    /// The cotangent itself.
    Cotangent,
    /// A block.
    Block(&'a [T]),
    /// All that is known are the dots `Σ_c g_ic u_ic = a_i b_i`.
    Dots(&'a [T], &'a [T]),
}

#[derive(Clone, Copy)]
pub(super) struct Residual<'a, T> {
    pub precision: T,
    pub mask: &'a [T],
    pub target: Option<&'a [T]>,
}

/// What becomes of a row of the result.
#[derive(Clone, Copy)]
pub(super) enum Fate<'a, T> {
    /// It stays as it is.
    Kept,
    /// Pulled back through `x = mean + scale ∘ t`: fields `Σ_c g` and `Σ_c g t`, and `scale g` is kept.
    Pulled { mean: Option<&'a [T]>, scale: &'a [T] },
    /// Only the field `Σ_c g h / w` with the input `h` is wanted.
    Dotted { w: &'a [T] },
}

impl<T: Scalar> Stencil<T> for Gradient<'_, T> {
    const SUMS: bool = true;
    fn squared(&self) -> bool {
        self.adjoint.squared
    }
    fn rows(&self) -> usize {
        self.adjoint.rows().min(self.log_degree.len())
    }
    fn factors(&self) -> Option<&[T]> {
        self.adjoint.factors()
    }
    #[inline(always)]
    fn blocks(&self) -> [&[T]; 2] {
        [self.input, if let Output::Block(output) = self.output { output } else { &[] }]
    }
    #[inline(always)]
    fn row<S: Simd, const N: usize>(
        &self,
        simd: S,
        place: &Place<T, S, N>,
        own: &Row<T, S, N>,
        gathered: &Row<T, S, N>,
        sums: &mut Sums<T, S, N>,
    ) -> Made<T, S, N> {
        let i = place.i;
        let splat = |value: T| T::splat(simd, value);
        let input: Row<T, S, N> = place.at.map(|at| load(self.input, at));
        let log_degree = coefficient(self.log_degree, i);
        if let Output::Dots(a, b) = self.output {
            if place.leading {
                let dot = (a[i] * b[i]).to_f64();
                sums.known[0] += dot;
                sums.known[1] += dot * log_degree;
            }
        } else {
            let (bias, log_degree) = (splat(self.bias), splat(T::from_f64(log_degree)));
            for v in 0..N {
                let output = match self.output {
                    Output::Block(output) => load(output, place.at[v]),
                    _ => own[v],
                };
                let gu = T::times(simd, own[v], T::minus(simd, output, bias));
                sums.alpha[v] = T::plus(simd, sums.alpha[v], gu);
                sums.gamma[v] = T::fused(simd, gu, log_degree, sums.gamma[v]);
            }
        }
        for v in 0..N {
            sums.rho[v] = T::fused(simd, gathered[v], input[v], sums.rho[v]);
            sums.bias[v] = T::plus(simd, sums.bias[v], own[v]);
        }
        let mut made = self.adjoint.row(simd, place, own, gathered, sums);
        let g = &mut made.row;
        if let Some(Residual { precision, mask, target }) = self.residual {
            let target = splat(target.map_or(T::ZERO, |target| target[i]));
            let (mask, pull) = (splat(mask[i]), splat(precision * mask[i]));
            for v in 0..N {
                let difference = T::minus(simd, input[v], target);
                g[v] = T::fused(simd, pull, difference, g[v]);
                let masked = T::times(simd, mask, difference);
                sums.misfit[v] = T::fused(simd, masked, difference, sums.misfit[v]);
            }
        }
        let across = |row: Row<T, S, N>| -> T {
            let mut sum = T::splat(simd, T::ZERO);
            for v in 0..N {
                sum = T::fused(simd, row[v], place.fresh[v], sum);
            }
            T::sum(simd, sum)
        };
        match self.fate {
            Fate::Kept => {}
            Fate::Pulled { mean, scale } => {
                let mean = splat(mean.map_or(T::ZERO, |mean| mean[i]));
                let deviation = |v: usize| T::times(simd, g[v], T::minus(simd, input[v], mean));
                let spread = across(std::array::from_fn(deviation)) / scale[i];
                made.fields = [across(*g), spread];
                let scale = splat(scale[i]);
                g.iter_mut().for_each(|g| *g = T::times(simd, *g, scale));
            }
            Fate::Dotted { w } => {
                let dots = std::array::from_fn(|v| T::times(simd, g[v], input[v]));
                made.fields[0] = across(dots) / w[i];
            }
        }
        made
    }
}

/// A coefficient of a row that [`super::kernel::run`] has verified to be there.
#[inline(always)]
fn coefficient<T: Copy>(values: &[T], row: usize) -> T {
    debug_assert!(row < values.len());
    // SAFETY: `run` asserts that coefficients cover all rows a sweep may name, and `Csr::new`
    // that no index names another.
    unsafe { *values.get_unchecked(row) }
}

/// A vector of neighbouring values.
#[inline(always)]
fn load<T: Scalar, S: Simd>(values: &[T], at: usize) -> T::Vector<S> {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(&values[at..at + lanes::lanes::<T, S>()]))
}
