//! Conjugate gradients for one right-hand side, as the generators need them.

use crate::error::{CgError, Result};

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Residual relative to the right-hand side, both in the 2-norm.
    pub tolerance: f64,
    /// More iterations than this are an error.
    pub max_iterations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { tolerance: 1e-10, max_iterations: 20_000 }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Info {
    /// Products with the matrix.
    pub iterations: usize,
    /// Relative residual that was reached.
    pub residual: f64,
}

/// Solves `M x = rhs` from the `x` given, for a symmetric positive (semi-)definite `M` with the
/// Jacobi preconditioner `diagonal(i) = M_ii`. A singular system must be consistent.
///
/// Not converging is a [`CgError`] that says how far it got.
pub fn solve(
    mut product: impl FnMut(&[f64], &mut [f64]),
    diagonal: impl Fn(usize) -> f64,
    rhs: &[f64],
    x: &mut [f64],
    options: &Options,
) -> Result<Info> {
    let n = rhs.len();
    let target = options.tolerance * dot(rhs, rhs).sqrt();
    let mut mp = vec![0.0; n];
    product(x, &mut mp);
    let mut r: Vec<f64> = rhs.iter().zip(&mp).map(|(b, m)| b - m).collect();
    let mut z: Vec<f64> = (0..n).map(|i| r[i] / diagonal(i)).collect();
    let mut p = z.clone();
    let mut rz = dot(&r, &z);
    let mut norm = dot(&r, &r).sqrt();
    let mut iterations = 0;
    // A NaN must not end the loop as if it had converged.
    while norm > target || norm.is_nan() {
        product(&p, &mut mp);
        let curvature = dot(&p, &mp);
        let residual = norm / dot(rhs, rhs).sqrt();
        if iterations == options.max_iterations {
            let (tolerance, residuals) = (options.tolerance, vec![residual]);
            return Err(CgError::NoConvergence { iterations, tolerance, residuals }.into());
        }
        let definite = curvature > 0.0;
        if !definite {
            let iteration = iterations + 1;
            return Err(CgError::Breakdown { iteration, column: 0, curvature, residual }.into());
        }
        let step = rz / curvature;
        for i in 0..n {
            x[i] += step * p[i];
            r[i] -= step * mp[i];
            z[i] = r[i] / diagonal(i);
        }
        let rz_new = dot(&r, &z);
        let turn = rz_new / rz;
        for i in 0..n {
            p[i] = z[i] + turn * p[i];
        }
        rz = rz_new;
        norm = dot(&r, &r).sqrt();
        iterations += 1;
    }
    let residual = if target > 0.0 { norm / target * options.tolerance } else { 0.0 };
    Ok(Info { iterations, residual })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second_difference(p: &[f64], out: &mut [f64]) {
        for i in 0..p.len() {
            let left = if i > 0 { p[i - 1] } else { 0.0 };
            let right = p.get(i + 1).copied().unwrap_or(0.0);
            out[i] = 2.0 * p[i] - left - right;
        }
    }

    #[test]
    fn ends_after_at_most_n_iterations() {
        let solution: Vec<f64> = (0..20).map(|i| f64::from(i).sin()).collect();
        let mut rhs = vec![0.0; 20];
        second_difference(&solution, &mut rhs);
        let mut x = vec![0.0; 20];
        let info = solve(second_difference, |_| 2.0, &rhs, &mut x, &Options::default()).unwrap();
        assert!(info.iterations <= 20 && info.residual <= 1e-10, "{info:?}");
        assert!(x.iter().zip(&solution).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    #[test]
    fn says_how_far_it_got() {
        let options = Options { max_iterations: 3, ..Options::default() };
        let error = solve(second_difference, |_| 2.0, &[1.0; 100], &mut [0.0; 100], &options);
        let message = error.unwrap_err().to_string();
        assert!(message.contains("after 3 iterations") && message.contains("1e-10"), "{message}");
        let negative =
            |p: &[f64], out: &mut [f64]| out.iter_mut().zip(p).for_each(|(o, p)| *o = -p);
        let error = solve(negative, |_| 1.0, &[1.0], &mut [0.0], &Options::default());
        assert!(error.unwrap_err().to_string().contains("not positive definite in working"));
    }

    #[test]
    fn zero_stays_zero() {
        let mut x = [0.0; 4];
        let info = solve(second_difference, |_| 2.0, &[0.0; 4], &mut x, &Options::default());
        assert_eq!((info.unwrap().iterations, x), (0, [0.0; 4]));
    }
}
