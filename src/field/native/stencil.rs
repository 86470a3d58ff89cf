//! What the rows of a sweep are made of, given the gathered neighbours: layers and their
//! transposes.

#![allow(unsafe_code, reason = "coefficients of checked rows, read without checking each again")]

use super::engine::Layer;
use super::kernel::{self, Csr};
use crate::field::{LayerSums, Scalar};
use std::ops::Range;

/// Something to be done to the rows of a part, given its neighbours.
pub(super) trait Stencil<T: Scalar>: Sync {
    /// Whether edges count with the squares of their weights.
    fn squared(&self) -> bool;
    /// Does it to `rows`; `out` holds just these rows.
    fn run(
        &self,
        csr: &Csr<T>,
        input: &[T],
        columns: usize,
        rows: Range<usize>,
        out: kernel::Output<T>,
    ) -> Totals;
}

/// `b_i + s_i x_i + r_i Σ_j w_ij c_j x_j`.
pub(super) trait Linear<T: Scalar>: Sync {
    /// Whether edges count with the squares of their weights.
    fn squared(&self) -> bool;
    /// Owned rows for which there are coefficients.
    fn rows(&self) -> usize;
    /// `c_j` of all rows that may be neighbours; one where absent.
    fn factors(&self) -> Option<&[T]> {
        None
    }
    /// `[s, r, b]` of a row.
    ///
    /// # Safety
    /// `i` must be below [`Linear::rows`].
    unsafe fn coefficients(&self, i: usize) -> [T; 3];
}

macro_rules! linear_stencil {
    ($type:ty) => {
        impl<T: Scalar> Stencil<T> for $type {
            fn squared(&self) -> bool {
                Linear::<T>::squared(self)
            }
            fn run(
                &self,
                csr: &Csr<T>,
                input: &[T],
                columns: usize,
                rows: Range<usize>,
                out: kernel::Output<T>,
            ) -> Totals {
                kernel::linear(self, csr, input, columns, rows, out.block);
                Totals::default()
            }
        }
    };
}
linear_stencil!(Neighbours);
linear_stencil!(Forward<'_, T>);
linear_stencil!(Adjoint<'_, T>);

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

/// `Σ_j w_ij x_j`.
#[derive(Clone, Copy)]
pub(super) struct Neighbours {
    pub squared: bool,
    /// Owned rows.
    pub rows: usize,
}

impl<T: Scalar> Linear<T> for Neighbours {
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.rows
    }
    #[inline(always)]
    unsafe fn coefficients(&self, _: usize) -> [T; 3] {
        [T::ZERO, T::ONE, T::ZERO]
    }
}

/// `b + s_i h_i + ρ (s_i/d_i) Σ_j w_ij h_j`, or `mean_i + factor_i` times that.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a, T> {
    scale: &'a [T],
    ratio: &'a [T],
    rho: T,
    bias: T,
    squared: bool,
    /// Mean and factor of every row.
    pub affine: Option<(Option<&'a [T]>, &'a [T])>,
}

impl<'a, T: Scalar> Forward<'a, T> {
    pub fn new(l: &'a Layer<T>, bias: f64) -> Self {
        Forward {
            scale: &l.scale.values,
            ratio: &l.ratio.values,
            rho: T::from_f64(l.rho),
            bias: T::from_f64(bias),
            squared: l.squared,
            affine: None,
        }
    }
}

impl<T: Scalar> Linear<T> for Forward<'_, T> {
    fn squared(&self) -> bool {
        self.squared
    }
    fn rows(&self) -> usize {
        self.scale.len().min(self.ratio.len())
    }
    #[inline(always)]
    unsafe fn coefficients(&self, i: usize) -> [T; 3] {
        // SAFETY: the caller has verified the row.
        let (s, r) = unsafe { (coefficient(self.scale, i), coefficient(self.ratio, i)) };
        let r = self.rho * r;
        match self.affine {
            None => [s, r, self.bias],
            Some((mean, factor)) => {
                let mean = mean.map_or(T::ZERO, |mean| mean[i]);
                [factor[i] * s, factor[i] * r, factor[i] * self.bias + mean]
            }
        }
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
    pub fn new(l: &'a Layer<T>) -> Self {
        let rho = T::from_f64(l.rho);
        Adjoint { scale: &l.scale.values, ratio: &l.ratio.values, rho, squared: l.squared }
    }
}

impl<T: Scalar> Linear<T> for Adjoint<'_, T> {
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
    unsafe fn coefficients(&self, i: usize) -> [T; 3] {
        // SAFETY: the caller has verified the row.
        [unsafe { coefficient(self.scale, i) }, self.rho, T::ZERO]
    }
}

/// A coefficient of a row.
///
/// # Safety
/// There must be such a row; a sweep has that verified by `kernel::check` for all rows at once.
#[inline(always)]
pub(super) unsafe fn coefficient<T: Copy>(values: &[T], row: usize) -> T {
    debug_assert!(row < values.len());
    // SAFETY: as above.
    unsafe { *values.get_unchecked(row) }
}
