//! How good predictions are: scores of Gaussian predictive distributions at hidden nodes.
//!
//! All of them judge `y ~ N(mean, std²)` at nodes whose value the model has not seen; smaller is
//! better for every score (coverages should meet their names).

use serde::{Deserialize, Serialize};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Scores over the evaluation nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Evaluation nodes: not observed, with a value.
    pub n_test: usize,
    /// Root of the mean squared error of the mean.
    pub rmse: f64,
    /// Mean absolute error of the mean.
    pub mae: f64,
    /// Continuous ranked probability score.
    pub crps: f64,
    /// Interval score of the central 95 % interval.
    pub interval_score: f64,
    /// Share of the values inside the central 50 % interval.
    pub coverage50: f64,
    /// Share of the values inside the central 80 % interval.
    pub coverage80: f64,
    /// Share of the values inside the central 95 % interval.
    pub coverage95: f64,
    /// Mean negative log density.
    pub log_score: f64,
}

/// Distance to the true posterior, over the nodes that are not observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Mean absolute error of the posterior mean.
    pub mean_mae: Option<f64>,
    /// Mean absolute error of the standard deviation of `y`.
    pub std_mae: Option<f64>,
}

/// Half widths of central intervals, in standard deviations.
const HALF50: f64 = 0.674_489_750_196_081_7;
const HALF80: f64 = 1.281_551_565_544_600_4;
const HALF95: f64 = 1.959_963_984_540_054;

/// Scores of `(y, mean, std)` triples; nothing without any.
///
/// ```
/// use dgmrf::metrics::score;
/// let scores = score([(1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]).unwrap();
/// assert_eq!((scores.n_test, scores.rmse, scores.coverage50), (2, 1.0, 0.0));
/// ```
pub fn score(triples: impl IntoIterator<Item = (f64, f64, f64)>) -> Option<Scores> {
    let mut sums = [0.0; 8];
    let mut count = 0usize;
    for (y, mean, std) in triples {
        let z = (y - mean) / std;
        let inside = |half: f64| f64::from(u8::from(z.abs() <= half));
        let terms = [
            (y - mean).powi(2),
            (y - mean).abs(),
            crps(y, mean, std),
            interval_score(y, mean, std),
            inside(HALF50),
            inside(HALF80),
            inside(HALF95),
            0.5 * z * z + std.ln() + 0.5 * (2.0 * PI).ln(),
        ];
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        count += 1;
    }
    let [square, mae, crps, interval_score, coverage50, coverage80, coverage95, log_score] =
        sums.map(|sum| sum / count as f64);
    (count > 0).then(|| Scores {
        n_test: count,
        rmse: square.sqrt(),
        mae,
        crps,
        interval_score,
        coverage50,
        coverage80,
        coverage95,
        log_score,
    })
}

/// `∫ (F(t) − 1{t >= y})² dt` of a Gaussian, in closed form (Gneiting and Raftery 2007):
/// `std (z (2Φ(z) − 1) + 2φ(z) − 1/√π)` with `z = (y − mean) / std`.
pub fn crps(y: f64, mean: f64, std: f64) -> f64 {
    let z = (y - mean) / std;
    let density = (-0.5 * z * z).exp() / (2.0 * PI).sqrt();
    std * (z * libm::erf(z * FRAC_1_SQRT_2) + 2.0 * density - 1.0 / PI.sqrt())
}

/// Width of the central 95 % interval, with a penalty of `2/0.05` times the distance of a value
/// outside (Gneiting and Raftery 2007).
pub fn interval_score(y: f64, mean: f64, std: f64) -> f64 {
    let half = HALF95 * std;
    2.0 * half + 2.0 / 0.05 * ((y - mean).abs() - half).max(0.0)
}

/// Mean absolute difference over pairs; nothing without any.
pub fn mean_absolute_difference(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for (a, b) in pairs {
        sum += (a - b).abs();
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `∫ (F(t) − 1{t >= y})² dt` by the midpoint rule.
    fn crps_by_integration(y: f64, mean: f64, std: f64) -> f64 {
        let (steps, reach) = (200_000, 12.0);
        let width = 2.0 * reach / f64::from(steps);
        let term = |k: i32| {
            let t = -reach + (f64::from(k) + 0.5) * width;
            let below = 0.5 * libm::erfc(-t * FRAC_1_SQRT_2);
            let step = if mean + std * t >= y { 1.0 } else { 0.0 };
            (below - step).powi(2) * width * std
        };
        (0..steps).map(term).sum()
    }

    #[test]
    fn crps_is_its_integral() {
        for (y, mean, std) in [(0.0, 0.0, 1.0), (2.5, 1.0, 0.7), (-1.0, 0.3, 2.0)] {
            let (closed, integral) = (crps(y, mean, std), crps_by_integration(y, mean, std));
            assert!((closed - integral).abs() < 1e-4, "{closed} {integral}");
        }
        // Far outside it is the absolute error, less a constant.
        assert!((crps(100.0, 0.0, 1.0) - (100.0 - 1.0 / PI.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn a_calibrated_prediction_has_its_coverages() {
        // Quantiles of the standard normal, evenly spaced in probability.
        let n = 100_000;
        let quantile = |p: f64| {
            let (mut low, mut high) = (-9.0, 9.0);
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                let below = 0.5 * libm::erfc(-middle * FRAC_1_SQRT_2) < p;
                if below { low = middle } else { high = middle }
            }
            low
        };
        let values = (0..n).map(|k| quantile((f64::from(k) + 0.5) / f64::from(n)));
        let s = score(values.map(|z| (3.0 + 2.0 * z, 3.0, 2.0))).unwrap();
        for (got, expected) in [
            (s.coverage50, 0.5),
            (s.coverage80, 0.8),
            (s.coverage95, 0.95),
            (s.rmse, 2.0),
            (s.mae, 2.0 * (2.0 / PI).sqrt()),
            (s.crps, 2.0 / PI.sqrt()),
            (s.log_score, 0.5 + 2f64.ln() + 0.5 * (2.0 * PI).ln()),
        ] {
            assert!((got - expected).abs() < 2e-4 * expected, "{got} {expected}");
        }
    }

    #[test]
    fn interval_scores_by_hand() {
        assert_eq!(interval_score(0.0, 0.0, 1.0), 2.0 * HALF95);
        let outside = interval_score(3.0, 0.0, 1.0);
        assert!((outside - (2.0 * HALF95 + 40.0 * (3.0 - HALF95))).abs() < 1e-12);
        assert_eq!(score([]), None);
    }
}
