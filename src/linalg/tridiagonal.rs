//! Eigenvalues of symmetric tridiagonal matrices, and the first components of their eigenvectors:
//! all that a Gauss rule needs.
//!
//! Written by hand since dense solvers, faer's included, give whole eigenvectors or none: a rule of
//! `m` nodes takes `O(m²)` this way and `O(m³)` that way.
//!
//! # Reference
//! G. H. Golub, J. H. Welsch (1969), "Calculation of Gauss quadrature rules"; A. Dubrulle, R. S.
//! Martin, J. H. Wilkinson (1968), "The implicit QL algorithm".

/// A symmetric tridiagonal matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tridiagonal {
    /// `m` entries.
    pub diagonal: Vec<f64>,
    /// `m − 1` entries.
    pub off_diagonal: Vec<f64>,
}

/// Sweeps for one eigenvalue before it is taken as it is. Two are usual.
pub(super) const SWEEPS: usize = 100;

impl Tridiagonal {
    /// Eigenvalues, ascending.
    pub fn eigenvalues(mut self) -> Vec<f64> {
        self.diagonalise(&mut ());
        self.diagonal.sort_unstable_by(f64::total_cmp);
        self.diagonal
    }

    /// Golub and Welsch: nodes are the eigenvalues, ascending, and weights the squares of the first
    /// components of the eigenvectors.
    pub fn gauss_rule(mut self) -> Vec<(f64, f64)> {
        let mut first = vec![0.0; self.diagonal.len()];
        first.iter_mut().take(1).for_each(|v| *v = 1.0);
        self.diagonalise(&mut first);
        let mut rule: Vec<_> =
            self.diagonal.into_iter().zip(first.into_iter().map(|v| v * v)).collect();
        rule.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        rule
    }

    /// Implicit QL: leaves the eigenvalues on the diagonal; `first` goes through the same
    /// rotations.
    fn diagonalise(&mut self, first: &mut impl Rotate) {
        let (d, e) = (&mut self.diagonal[..], &mut self.off_diagonal);
        e.resize(d.len(), 0.0); // the last entry is room for the sweeps
        for l in 0..d.len() {
            for _ in 0..SWEEPS {
                // The block that begins here ends at the next entry that is nothing but rounding.
                let negligible =
                    |k: &usize| e[*k].abs() <= f64::EPSILON * (d[*k].abs() + d[*k + 1].abs());
                let m = (l..d.len() - 1).find(negligible).unwrap_or(d.len() - 1);
                if m == l {
                    break;
                }
                sweep(d, e, l, m, first);
            }
        }
    }
}

/// One sweep with Wilkinson's shift over the block `l..=m`.
fn sweep(d: &mut [f64], e: &mut [f64], l: usize, m: usize, first: &mut impl Rotate) {
    let shift = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let root = (shift * shift + 1.0).sqrt().copysign(shift);
    let mut g = d[m] - d[l] + e[l] / (shift + root);
    let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (s * e[i], c * e[i]);
        let r = (f * f + g * g).sqrt();
        e[i + 1] = r;
        if r == 0.0 {
            // The matrix falls apart here; the next sweep takes what is left.
            d[i + 1] -= p;
            e[m] = 0.0;
            return;
        }
        (s, c) = (f / r, g / r);
        g = d[i + 1] - p;
        let t = (d[i] - g) * s + 2.0 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        first.rotate(i, s, c);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0.0;
}

/// What goes through the rotations besides the matrix.
trait Rotate {
    /// Rotates entries `i` and `i + 1`.
    fn rotate(&mut self, i: usize, s: f64, c: f64);
}

/// No vector: eigenvalues alone are wanted.
impl Rotate for () {
    fn rotate(&mut self, _: usize, _: f64, _: f64) {}
}

/// One row of the eigenvectors.
impl Rotate for Vec<f64> {
    fn rotate(&mut self, i: usize, s: f64, c: f64) {
        let (a, b) = (self[i], self[i + 1]);
        (self[i], self[i + 1]) = (c * a - s * b, s * a + c * b);
    }
}

#[cfg(test)]
mod tests {
    use super::super::gauss_rules::gauss_rules;
    use super::*;
    use crate::random::{Purpose, Stream};

    fn dense(t: &Tridiagonal) -> Vec<(f64, f64)> {
        let m = t.diagonal.len();
        let matrix = faer::Mat::from_fn(m, m, |i, j| match i.abs_diff(j) {
            0 => t.diagonal[i],
            1 => t.off_diagonal[i.min(j)],
            _ => 0.0,
        });
        let eigen = matrix.self_adjoint_eigen(faer::Side::Lower).expect("eigenvalues");
        (0..m).map(|k| (eigen.S()[k], eigen.U()[(0, k)].powi(2))).collect()
    }

    /// Against the dense solver: eigenvalues, and moments of the rule (weights of nodes that lie
    /// together are not unique, what they add up to is).
    fn check(t: &Tridiagonal) {
        let (rule, expected) = (t.clone().gauss_rule(), dense(t));
        let size = expected.iter().map(|(x, _)| x.abs()).fold(1e-300, f64::max);
        for ((x, _), (y, _)) in rule.iter().zip(&expected) {
            assert!((x - y).abs() <= 1e-13 * size * (rule.len() as f64).sqrt(), "{x} {y}");
        }
        for power in 0..9 {
            let moment = |rule: &[(f64, f64)]| -> f64 {
                rule.iter().map(|(x, w)| w * (x / size).powi(power)).sum()
            };
            let (a, b) = (moment(&rule), moment(&expected));
            assert!((a - b).abs() < 1e-12, "moment {power}: {a} {b}");
        }
        // In lanes, beside smaller ones and one that ends at once.
        let smaller = |rows: usize| Tridiagonal {
            diagonal: t.diagonal[..rows].to_vec(),
            off_diagonal: t.off_diagonal[..rows.saturating_sub(1)].to_vec(),
        };
        let sizes = [rule.len(), 1, rule.len() / 2, 0, rule.len(), rule.len() - rule.len() / 3];
        for count in [3, 11, 43] {
            let sizes = sizes.iter().cycle().take(count);
            let together: Vec<_> = sizes.map(|&rows| smaller(rows)).collect();
            for (rule, alone) in gauss_rules(&together).into_iter().zip(together) {
                assert!(rule == alone.gauss_rule(), "the same in lanes");
            }
        }
        let alone = t.clone().eigenvalues();
        assert!(alone.iter().zip(&rule).all(|(a, b)| a == &b.0), "the same without a rule");
    }

    #[test]
    fn agrees_with_the_dense_solver() {
        let random = Stream::new(5, Purpose::Test, 0);
        for m in [1, 2, 3, 10, 60, 200] {
            let uniform = |k: usize, c: u64| random.uniform(k as u64, c) - 0.5;
            let plain = Tridiagonal {
                diagonal: (0..m).map(|k| uniform(k, 0)).collect(),
                off_diagonal: (1..m).map(|k| uniform(k, 1)).collect(),
            };
            // Eight orders of magnitude from end to end, either way up; blocks that do not touch;
            // zeros.
            let grade = |k: usize| 10f64.powf(-8.0 * k as f64 / m as f64);
            let mut graded = plain.clone();
            graded.diagonal.iter_mut().enumerate().for_each(|(k, v)| *v *= grade(k));
            graded.off_diagonal.iter_mut().enumerate().for_each(|(k, v)| *v *= grade(k));
            let mut upside_down = graded.clone();
            upside_down.diagonal.reverse();
            upside_down.off_diagonal.reverse();
            let mut apart = plain.clone();
            apart.off_diagonal.iter_mut().step_by(3).for_each(|v| *v = 0.0);
            let zeros = Tridiagonal { diagonal: vec![0.0; m], off_diagonal: vec![0.0; m - 1] };
            let mut tiny = plain.clone();
            tiny.diagonal.iter_mut().for_each(|v| *v *= 1e-200);
            tiny.off_diagonal.iter_mut().for_each(|v| *v *= 1e-200);
            for t in [plain, graded, upside_down, apart, zeros] {
                check(&t);
            }
            assert!(tiny.eigenvalues().iter().all(|v| v.abs() < 1e-199));
        }
        assert!(Tridiagonal::default().gauss_rule().is_empty());
    }

    /// Chebyshev polynomials of the second kind: nodes and weights in closed form.
    #[test]
    fn the_rule_of_chebyshev() {
        let m = 300;
        let t = Tridiagonal { diagonal: vec![0.0; m], off_diagonal: vec![0.5; m - 1] };
        let step = std::f64::consts::PI / (m as f64 + 1.0);
        for (k, (x, w)) in (1..).zip(t.gauss_rule()) {
            let angle = std::f64::consts::PI - step * f64::from(k);
            assert!((x - angle.cos()).abs() < 1e-14, "{x}");
            let expected = 2.0 / (m as f64 + 1.0) * angle.sin().powi(2);
            // Each of about two sweeps per node may round a component v of up to 0.08 once, and w =
            // v².
            let rounding = 2.0 * 0.08 * (2.0 * m as f64) * f64::EPSILON;
            assert!((w - expected).abs() < rounding, "{w} {expected}");
        }
    }
}
