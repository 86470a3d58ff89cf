//! The precisions that engines compute in.

use super::native::lanes::Lanes;
use super::pointwise::Arithmetic;
use crate::elementary;
use std::ops::AddAssign;

/// `f32` or `f64`.
pub trait Scalar:
    Lanes
    + Arithmetic
    + Copy
    + bytemuck::Pod
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + std::fmt::Debug
    + AddAssign
    + mpi::traits::Equivalence
    + 'static
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Size in memory.
    const BYTES: usize = std::mem::size_of::<Self>();
    /// Rounds to this precision.
    fn from_f64(value: f64) -> Self;
    /// Widens.
    fn to_f64(self) -> f64;
    /// `1` with the lowest of the bits as its sign.
    fn sign(bits: u64) -> Self;
    /// `1` with bit `at` of 32 as its sign: narrow integers keep single precision in one vector.
    fn sign_of_low(bits: u32, at: u32) -> Self;
    /// `self a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
}

impl Scalar for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn sign(bits: u64) -> f32 {
        f32::from_bits(1.0f32.to_bits() | (bits as u32) << 31)
    }
    #[inline(always)]
    fn sign_of_low(bits: u32, at: u32) -> f32 {
        f32::from_bits(1.0f32.to_bits() | (bits >> at) << 31)
    }
    #[inline(always)]
    fn mul_add(self, a: f32, b: f32) -> f32 {
        f32::mul_add(self, a, b)
    }
}

impl Scalar for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    #[inline(always)]
    fn from_f64(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn sign(bits: u64) -> f64 {
        f64::from_bits(1.0f64.to_bits() | bits << 63)
    }
    #[inline(always)]
    fn sign_of_low(bits: u32, at: u32) -> f64 {
        f64::from_bits(1.0f64.to_bits() | u64::from(bits >> at) << 63)
    }
    #[inline(always)]
    fn mul_add(self, a: f64, b: f64) -> f64 {
        f64::mul_add(self, a, b)
    }
}

/// Elementary functions that run on vectors, unlike those of the standard library.
macro_rules! arithmetic {
    ($type:ident, $exp:path, $ln:path) => {
        impl Arithmetic for $type {
            #[inline(always)]
            fn copy(&self) -> Self {
                *self
            }
            #[inline(always)]
            fn number(&self, value: f64) -> Self {
                Self::from_f64(value)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> Self {
                // Kahan's: what rounding has done to 1 + x is undone by the quotient.
                let w = 1.0 + self;
                if w == 1.0 { self } else { $ln(w) * (self / (w - 1.0)) }
            }
            #[inline(always)]
            fn positive_part(self) -> Self {
                if self > 0.0 { self } else { 0.0 }
            }
        }
    };
}
arithmetic!(f32, elementary::exp_f32, elementary::ln_f32);
arithmetic!(f64, elementary::exp_f64, elementary::ln_f64);
