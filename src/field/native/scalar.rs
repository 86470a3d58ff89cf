//! The two precisions of the native engine.

use super::lanes::Lanes;
use crate::elementary;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// `f32` or `f64`.
pub trait Scalar:
    Lanes
    + bytemuck::Pod
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + std::fmt::Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
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
    /// Square root.
    fn sqrt(self) -> Self;
    /// `exp`, in code that runs on vectors.
    fn exp(self) -> Self;
    /// Natural logarithm of a positive normal number, in code that runs on vectors.
    fn ln(self) -> Self;
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
    fn mul_add(self, a: f32, b: f32) -> f32 {
        f32::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        elementary::exp_f32(self)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        elementary::ln_f32(self)
    }
    #[inline(always)]
    fn sign_of_low(bits: u32, at: u32) -> f32 {
        f32::from_bits(1.0f32.to_bits() | (bits >> at) << 31)
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
    fn mul_add(self, a: f64, b: f64) -> f64 {
        f64::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        elementary::exp_f64(self)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        elementary::ln_f64(self)
    }
    #[inline(always)]
    fn sign_of_low(bits: u32, at: u32) -> f64 {
        f64::from_bits(1.0f64.to_bits() | u64::from(bits >> at) << 63)
    }
}
