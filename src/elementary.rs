//! Elementary functions without branches, so that loops over them run on vectors.
//!
//! Those of the platform are calls, one value at a time. Errors are a few units in the last place;
//! a NaN stays one in `exp`. Results are the same bits on vectors and one by one: fused
//! multiply-adds round once by definition, and are one instruction wherever [`pulp`] finds vector
//! units.

use std::f64::consts::{LN_2, LOG2_E};

/// A polynomial, highest coefficient first. (A plain loop: one over an iterator by value is not
/// always unrolled in time for the loop around it to become one of vectors.)
#[inline(always)]
fn horner<const K: usize>(x: f64, coefficients: [f64; K]) -> f64 {
    let mut sum = coefficients[0];
    for &c in &coefficients[1..] {
        sum = sum.mul_add(x, c);
    }
    sum
}

/// [`horner`] in single precision.
#[inline(always)]
fn horner32<const K: usize>(x: f32, coefficients: [f32; K]) -> f32 {
    let mut sum = coefficients[0];
    for &c in &coefficients[1..] {
        sum = sum.mul_add(x, c);
    }
    sum
}

/// `exp x`; beyond the range of the type, its ends.
#[inline(always)]
pub(crate) fn exp_f64(x: f64) -> f64 {
    // exp x = 2^n exp r with n whole and |r| <= log(2)/2. Adding 1.5 * 2^52 rounds to a whole
    // number and leaves it in the low bits.
    const MAGIC: f64 = 6755399441055744.0;
    const LN_2_LOW: f64 = 2.3190468138462996e-17;
    let x = if x < -708.0 { -708.0 } else { x };
    let x = if x > 709.0 { 709.0 } else { x };
    let k = x.mul_add(LOG2_E, MAGIC);
    let n = k - MAGIC;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2, x));
    // Taylor's series: the rest is below 5e-18.
    let p = horner(
        r,
        [
            1.0 / 6227020800.0,
            1.0 / 479001600.0,
            1.0 / 39916800.0,
            1.0 / 3628800.0,
            1.0 / 362880.0,
            1.0 / 40320.0,
            1.0 / 5040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0,
        ],
    );
    p * f64::from_bits((k.to_bits() << 52).wrapping_add(1.0f64.to_bits()))
}

/// [`exp_f64`] in single precision.
#[inline(always)]
pub(crate) fn exp_f32(x: f32) -> f32 {
    const MAGIC: f32 = 12582912.0;
    const LN_2_LOW: f32 = -1.904_654_3e-9;
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let k = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = k - MAGIC;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-std::f32::consts::LN_2, x));
    let p =
        horner32(r, [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0]);
    p * f32::from_bits((k.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// `log x` for finite, normal `x > 0`.
#[inline(always)]
pub(crate) fn ln_f64(x: f64) -> f64 {
    // x = 2^e m with m between √½ and √2, and log m = 2 artanh s with s = (m − 1) / (m + 1).
    let bits = x.to_bits();
    let e = (bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((e << 52) as u64));
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let p = horner(
        q,
        [
            2.0 / 21.0,
            2.0 / 19.0,
            2.0 / 17.0,
            2.0 / 15.0,
            2.0 / 13.0,
            2.0 / 11.0,
            2.0 / 9.0,
            2.0 / 7.0,
            2.0 / 5.0,
            2.0 / 3.0,
        ],
    );
    let log_m = (p * q).mul_add(s, 2.0 * s);
    (e as f64).mul_add(LN_2, log_m)
}

/// [`ln_f64`] in single precision.
#[inline(always)]
pub(crate) fn ln_f32(x: f32) -> f32 {
    let bits = x.to_bits();
    let e = (bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits()) as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e << 23) as u32));
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let p = horner32(q, [2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0]);
    let log_m = (p * q).mul_add(s, 2.0 * s);
    (e as f32).mul_add(std::f32::consts::LN_2, log_m)
}

/// Cosine and sine of `u` turns, `u` in `[0, 1)`.
#[inline(always)]
pub(crate) fn cos_sin_of_turns(u: f64) -> (f64, f64) {
    // The nearest quarter turn q, and the angle from there, at most π/4.
    const MAGIC: f64 = 6755399441055744.0;
    let k = u.mul_add(4.0, MAGIC);
    let quarter = k - MAGIC;
    let r = quarter.mul_add(-0.25, u) * std::f64::consts::TAU;
    let q = r * r;
    let sin = horner(
        q,
        [
            -1.0 / 1307674368000.0,
            1.0 / 6227020800.0,
            -1.0 / 39916800.0,
            1.0 / 362880.0,
            -1.0 / 5040.0,
            1.0 / 120.0,
            -1.0 / 6.0,
        ],
    );
    let sin = (q * sin).mul_add(r, r);
    let cos = horner(
        q,
        [
            1.0 / 20922789888000.0,
            -1.0 / 87178291200.0,
            1.0 / 479001600.0,
            -1.0 / 3628800.0,
            1.0 / 40320.0,
            -1.0 / 720.0,
            1.0 / 24.0,
            -0.5,
        ],
    );
    let cos = q.mul_add(cos, 1.0);
    // A quarter turn takes (cos, sin) to (−sin, cos).
    let bits = k.to_bits();
    let (a, b) = if bits & 1 == 0 { (cos, sin) } else { (sin, cos) };
    let flip = |value: f64, odd: u64| f64::from_bits(value.to_bits() ^ (odd << 63));
    (flip(a, (bits ^ (bits >> 1)) & 1), flip(b, (bits >> 1) & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the functions of the platform, over the whole range.
    #[test]
    fn agree_with_the_platform() {
        let close = |what: &str, x: f64, value: f64, reference: f64, ulps: f64| {
            let error = (value - reference).abs() / reference.abs().max(1e-300);
            assert!(error <= ulps, "{what}({x}): {value} instead of {reference}, {error:.1e}");
        };
        for k in 0..200_000 {
            let t = f64::from(k) / 200_000.0;
            let x = -700.0 + 1400.0 * t;
            close("exp", x, exp_f64(x), x.exp(), 5e-16);
            let x = (-86.0 + 172.0 * t) as f32;
            close("exp32", x.into(), exp_f32(x).into(), f64::from(x).exp(), 3e-7);
            let x = (-700.0 + 1400.0 * t).exp();
            close("ln", x, ln_f64(x), x.ln(), 1e-15);
            let x = (0.2 + 2.0 * t) as f32; // around the zero of the logarithm
            close("ln32", x.into(), ln_f32(x).into(), f64::from(x).ln(), 3e-7);
            let (cos, sin) = cos_sin_of_turns(t);
            let angle = std::f64::consts::TAU * t;
            assert!((cos - angle.cos()).abs() < 1e-15 && (sin - angle.sin()).abs() < 1e-15, "{t}");
        }
        assert!(exp_f64(f64::NAN).is_nan() && exp_f32(f32::NAN).is_nan());
        assert!(exp_f64(-1e9) > 0.0 && exp_f32(1e9).is_finite());
    }
}
