//! Robust outliers by an elliptic envelope: the minimum covariance determinant (MCD).
//!
//! The same estimator as scikit-learn's `EllipticEnvelope`, which the paper's preprocessing
//! calls: FAST-MCD, scaled to the normal law, reweighted once, then a quantile of the distances.
//! Only the random starts differ; the best of many leads to the same envelope.
//!
//! # Reference
//! Rousseeuw & Van Driessen, "A fast algorithm for the minimum covariance determinant estimator",
//! Technometrics 41 (1999).

use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};
use faer::linalg::solvers::DenseSolveCore;
use rayon::prelude::*;

/// Starts, each of `D + 1` random rows, that take [`FIRST_STEPS`] concentration steps.
const STARTS: u64 = 50;
const FIRST_STEPS: usize = 2;
/// Starts that go on until nothing improves.
const FINALISTS: usize = 5;
/// More than any run needs (about 20): the determinant falls with every step.
const MOST_STEPS: usize = 500;

/// Which rows to drop: those farther out than all but a share `contamination` of the rows.
pub(super) fn outliers<const D: usize>(rows: &[[f64; D]], contamination: f64) -> Result<Vec<bool>> {
    let distances = robust_distances(rows)?;
    let limit = quantile(&distances, 1.0 - contamination);
    Ok(distances.iter().map(|&d| d > limit).collect())
}

/// Squared Mahalanobis distances from the reweighted MCD location and covariance.
fn robust_distances<const D: usize>(rows: &[[f64; D]]) -> Result<Vec<f64>> {
    let raw = minimum_determinant(rows)?.distances(rows);
    // Consistency: half of a normal sample lies within the median of chi-squared.
    let correction = quantile(&raw, 0.5) / chi_squared_tail_inverse::<D>(0.5);
    let near = chi_squared_tail_inverse::<D>(0.025);
    let inside = (0..rows.len()).filter(|&i| raw[i] / correction < near);
    Ok(Ellipsoid::of(rows, inside).ok_or_else(degenerate)?.distances(rows))
}

fn degenerate() -> Error {
    Error::Numeric(
        "no elliptic envelope: half of the rows lie in a plane; use --outliers 0 to keep all rows"
            .into(),
    )
}

/// FAST-MCD: the half of the rows whose covariance has the smallest determinant.
fn minimum_determinant<const D: usize>(rows: &[[f64; D]]) -> Result<Ellipsoid<D>> {
    let half = (rows.len() + D + 1).div_ceil(2);
    if half > rows.len() {
        return Err(degenerate());
    }
    let mut candidates: Vec<Ellipsoid<D>> = (0..STARTS)
        .into_par_iter()
        .filter_map(|start| {
            let mut ellipsoid = random_start(rows, start)?;
            for _ in 0..FIRST_STEPS {
                ellipsoid = ellipsoid.concentrate(rows, half)?;
            }
            Some(ellipsoid)
        })
        .collect();
    // Stable, and the starts are in order: the result does not depend on the threads.
    candidates.sort_by(|a, b| a.log_det.total_cmp(&b.log_det));
    candidates.truncate(FINALISTS);
    candidates
        .into_par_iter()
        .filter_map(|mut best| {
            for _ in 0..MOST_STEPS {
                let next = best.concentrate(rows, half)?;
                if next.log_det >= best.log_det {
                    break;
                }
                best = next;
            }
            Some(best)
        })
        .min_by(|a, b| a.log_det.total_cmp(&b.log_det))
        .ok_or_else(degenerate)
}

/// The ellipsoid of random rows: `D + 1` of them, and more while these lie in a plane.
fn random_start<const D: usize>(rows: &[[f64; D]], start: u64) -> Option<Ellipsoid<D>> {
    let stream = Stream::new(0, Purpose::Start, start);
    let row = |k: usize| (stream.uniform(k as u64, 0) * rows.len() as f64) as usize;
    (D + 1..=rows.len().min(20 * D)).find_map(|count| Ellipsoid::of(rows, (0..count).map(row)))
}

/// Location and covariance of some rows.
struct Ellipsoid<const D: usize> {
    mean: [f64; D],
    precision: [[f64; D]; D],
    log_det: f64,
}

impl<const D: usize> Ellipsoid<D> {
    /// Of the rows with the given indices; `None` if they lie in a plane.
    fn of(rows: &[[f64; D]], chosen: impl Iterator<Item = usize> + Clone) -> Option<Self> {
        let count = chosen.clone().count() as f64;
        let mut mean = [0.0; D];
        for i in chosen.clone() {
            for (m, v) in mean.iter_mut().zip(&rows[i]) {
                *m += v / count;
            }
        }
        let mut covariance = [[0.0; D]; D];
        for i in chosen {
            let d = difference(&rows[i], &mean);
            for (row, a) in covariance.iter_mut().zip(d) {
                for (c, b) in row.iter_mut().zip(d) {
                    *c += a * b / count;
                }
            }
        }
        let scale: [f64; D] = std::array::from_fn(|k| covariance[k][k].sqrt());
        // Columns differ by orders of magnitude; the correlation matrix does not.
        let correlation = faer::Mat::from_fn(D, D, |i, j| covariance[i][j] / (scale[i] * scale[j]));
        let factor = correlation.llt(faer::Side::Lower).ok()?;
        let inverse = factor.inverse();
        let log_det = (0..D).map(|k| 2.0 * (factor.L()[(k, k)] * scale[k]).ln()).sum::<f64>();
        let precision = std::array::from_fn(|i| {
            std::array::from_fn(|j| inverse[(i, j)] / (scale[i] * scale[j]))
        });
        (log_det.is_finite()).then_some(Ellipsoid { mean, precision, log_det })
    }

    fn distances(&self, rows: &[[f64; D]]) -> Vec<f64> {
        let distance = |row: &[f64; D]| {
            let d = difference(row, &self.mean);
            let pd = self.precision.map(|p| dot(&p, &d));
            dot(&pd, &d)
        };
        rows.iter().map(distance).collect()
    }

    /// The C-step of the reference: the ellipsoid of the `half` rows nearest to this one.
    fn concentrate(&self, rows: &[[f64; D]], half: usize) -> Option<Self> {
        let distances = self.distances(rows);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let key = |&i: &usize| (distances[i], i);
        order.select_nth_unstable_by(half - 1, |a, b| {
            let ((da, ia), (db, ib)) = (key(a), key(b));
            da.total_cmp(&db).then(ia.cmp(&ib))
        });
        // In row order, so that sums do not depend on how the selection shuffles.
        order.truncate(half);
        order.sort_unstable();
        Ellipsoid::of(rows, order.iter().copied())
    }
}

fn difference<const D: usize>(a: &[f64; D], b: &[f64; D]) -> [f64; D] {
    std::array::from_fn(|k| a[k] - b[k])
}

fn dot<const D: usize>(a: &[f64; D], b: &[f64; D]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Linear interpolation between order statistics, as numpy's `percentile`.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// The `x` with `P(X > x) = tail` for chi-squared `X` with an even number `D` of degrees of
/// freedom, where `P(X > x) = exp(-x/2) Σ_{k < D/2} (x/2)^k / k!`.
fn chi_squared_tail_inverse<const D: usize>(tail: f64) -> f64 {
    const { assert!(D.is_multiple_of(2)) };
    let exceeds = |x: f64| {
        let mut term = (-x / 2.0).exp();
        let mut sum = 0.0;
        for k in 0..D / 2 {
            sum += term;
            term *= x / 2.0 / (k + 1) as f64;
        }
        sum
    };
    let (mut low, mut high) = (0.0, 1000.0);
    while high - low > 1e-13 * high {
        let middle = (low + high) / 2.0;
        if exceeds(middle) > tail { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chi_squared_quantiles_are_those_of_the_tables() {
        // scipy.stats.chi2(6).isf and chi2(2).isf
        assert!((chi_squared_tail_inverse::<6>(0.5) - 5.348_120_627_447_122).abs() < 1e-11);
        assert!((chi_squared_tail_inverse::<6>(0.025) - 14.449_375_335_447_92).abs() < 1e-11);
        assert!((chi_squared_tail_inverse::<2>(0.5) - 2.0 * 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[3.0, 1.0], 1.0), 3.0);
    }

    #[test]
    fn a_far_cluster_cannot_hide_itself() {
        // 30 of 400 points sit far away together: they would inflate a plain covariance until
        // their own distance is moderate. The robust one finds exactly these.
        let stream = Stream::new(3, Purpose::Test, 0);
        let rows: Vec<[f64; 2]> = (0..400)
            .map(|i| {
                let shift = if i < 30 { 20.0 } else { 0.0 };
                [shift + stream.normal(i, 0), 1e4 * stream.normal(i, 1) - shift]
            })
            .collect();
        let dropped = outliers(&rows, 30.0 / 400.0).unwrap();
        assert_eq!(dropped.iter().filter(|&&d| d).count(), 30);
        assert!(dropped[..30].iter().all(|&d| d));
    }

    #[test]
    fn points_on_a_line_have_no_envelope() {
        let rows: Vec<[f64; 2]> = (0..20).map(|i| [f64::from(i), 0.0]).collect();
        assert!(outliers(&rows, 0.1).is_err());
    }
}
