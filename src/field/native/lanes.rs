//! Vectors of either precision on the units that [`pulp`] finds at run time.
//!
//! The compiler turns a row of a fixed width into vectors on its own only where a loop is simple:
//! with a few sums beside the row it shuffles single numbers about and takes twice as long. Kernels
//! whose speed must not depend on that are written in these.
//!
//! A row of `W` columns is covered by full vectors. Where `W` is no multiple of their length the
//! last one begins earlier and *overlaps* the one before ([`Cover`]): its values are computed
//! twice, which is harmless, and its sums leave out what was counted already. No masks, no
//! remainders.

use pulp::{Arch, Simd, WithSimd};

/// What a precision can do in vectors of the units `S`.
pub trait Lanes: Sized + Copy {
    /// Some values side by side.
    type Vector<S: Simd>: Copy + bytemuck::Pod;
    /// `value` in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// `a + b`.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a − b`.
    fn minus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a b`.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a b + c`, rounded once where the machine can.
    fn fused<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The sum of all lanes.
    fn sum<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
}

macro_rules! lanes {
    (
        $type:ident, $vector:ident, $splat:ident, $add:ident, $sub:ident, $mul:ident,
        $mul_add:ident, $sum:ident
    ) => {
        impl Lanes for $type {
            type Vector<S: Simd> = S::$vector;
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn minus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn fused<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn sum<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$sum(a)
            }
        }
    };
}
lanes!(f32, f32s, splat_f32s, add_f32s, sub_f32s, mul_f32s, mul_add_e_f32s, reduce_sum_f32s);
lanes!(f64, f64s, splat_f64s, add_f64s, sub_f64s, mul_f64s, mul_add_e_f64s, reduce_sum_f64s);

/// Values in a vector.
#[inline(always)]
pub(super) const fn lanes<T: Lanes, S: Simd>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// Longest vectors in use: the blocks of this crate have about as many columns.
pub(super) const MOST: usize = 8;

/// Where the vectors of a row begin.
#[derive(Clone, Copy)]
pub(super) struct Cover {
    columns: usize,
    lanes: usize,
}

impl Cover {
    /// Vectors of `lanes` values, no more of them than a row has.
    #[inline(always)]
    pub fn new<T: Lanes, S: Simd>(columns: usize) -> Self {
        debug_assert!(columns >= lanes::<T, S>());
        Cover { columns, lanes: lanes::<T, S>() }
    }

    /// Number of vectors.
    #[inline(always)]
    pub fn vectors(&self) -> usize {
        self.columns.div_ceil(self.lanes)
    }

    /// The first column of vector `k`.
    #[inline(always)]
    pub fn first(&self, k: usize) -> usize {
        (k * self.lanes).min(self.columns - self.lanes)
    }

    /// How many of its lanes vector `k - 1` has already.
    #[inline(always)]
    pub fn overlap(&self, k: usize) -> usize {
        k * self.lanes - self.first(k)
    }
}

/// Runs `op` on the widest units whose vectors a row of `columns` values fills, on single numbers
/// where there are none.
#[inline(always)]
pub(super) fn dispatch<T: Lanes, Op: WithSimd>(columns: usize, op: Op) -> Op::Output {
    let fitting = Fitting::<T, Op> { columns, op, precision: std::marker::PhantomData };
    Arch::new().dispatch(fitting)
}

struct Fitting<T, Op> {
    columns: usize,
    op: Op,
    precision: std::marker::PhantomData<T>,
}

impl<T: Lanes, Op: WithSimd> WithSimd for Fitting<T, Op> {
    type Output = Op::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Op::Output {
        if lanes::<T, S>() <= self.columns.min(MOST) {
            return self.op.with_simd(simd);
        }
        // Half the length, with the registers of the longer vectors.
        #[cfg(target_arch = "x86_64")]
        if let Some(half) = half(simd)
            && lanes::<T, pulp::x86::V3>() <= self.columns
        {
            return self.op.with_simd(half);
        }
        self.op.with_simd(pulp::Scalar)
    }
}

/// The units of 256 bits of a machine that has those of 512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn half<S: Simd>(_simd: S) -> Option<pulp::x86::V3> {
    if size_of::<S::f64s>() < 64 {
        return None;
    }
    pulp::x86::V3::try_new()
}
