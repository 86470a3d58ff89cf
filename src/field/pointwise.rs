//! Work at every node by itself, written once for all engines: where numbers are worked on one by
//! one it is compiled for `f32` and `f64`, where whole fields are, for fields.

use std::ops::{Add, Div, Mul, Sub};

/// What pointwise work is written in: a number, or a field of numbers.
pub trait Arithmetic:
    Sized + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The value once more.
    fn copy(&self) -> Self;
    /// A constant, in the precision and at the place of `self`.
    fn number(&self, value: f64) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `exp`.
    fn exp(self) -> Self;
    /// Natural logarithm of a positive normal number.
    fn ln(self) -> Self;
    /// `log(1 + x)` for `x ≥ 0`, accurate for small `x`.
    fn ln_1p(self) -> Self;
    /// `max(x, 0)`.
    fn positive_part(self) -> Self;
}

/// Work that changes some values at a node, given others there.
///
/// The native engine compiles the work into loops for the vector units of the machine. That takes
/// methods marked `#[inline(always)]`, and constants that are held by value: one behind a reference
/// might change as the loop writes.
pub trait Pointwise<const CHANGED: usize, const GIVEN: usize>: Copy + Sync {
    /// The values after the work, from those before.
    fn apply<V: Arithmetic>(&self, changed: [V; CHANGED], given: [V; GIVEN]) -> [V; CHANGED];

    /// A number to be summed over all nodes, from the values before the work.
    #[inline(always)]
    fn summand<V: Arithmetic>(&self, _: &[V; CHANGED], _: &[V; GIVEN]) -> Option<V> {
        None
    }
}

/// `y = y / x`.
#[derive(Clone, Copy)]
pub(super) struct Quotient;

impl Pointwise<1, 1> for Quotient {
    #[inline(always)]
    fn apply<V: Arithmetic>(&self, [y]: [V; 1], [x]: [V; 1]) -> [V; 1] {
        [y / x]
    }
}
