//! The two precisions of the native engine.

use std::ops::{Add, AddAssign, Mul, Sub};

/// `f32` or `f64`.
pub trait Scalar:
    Copy
    + Send
    + Sync
    + PartialEq
    + std::fmt::Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
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
    /// `1` with the sign bit `bit` (0 or 1).
    fn sign(bit: u64) -> Self;
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
    fn sign(bit: u64) -> f32 {
        f32::from_bits(1.0f32.to_bits() | (bit as u32) << 31)
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
    fn sign(bit: u64) -> f64 {
        f64::from_bits(1.0f64.to_bits() | bit << 63)
    }
}
