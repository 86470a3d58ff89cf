//! The ELBO as a noisy series: its means over windows of steps, and what follows from them.

/// Steps of a window (the authors' choice).
const WINDOW: u64 = 100;
/// Windows over which a fit must have gained something.
const PATIENCE: usize = 10;
/// A window this much per node below the very first value is a divergence.
const FALL: f64 = 10.0;

/// Means over windows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Smooth {
    nodes: f64,
    tolerance: f64,
    sum: f64,
    count: u64,
    first: f64,
    best: f64,
    /// Best means after each of the last windows.
    recent: Vec<f64>,
    last: f64,
}

/// What a new value has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Judged {
    /// A window is full, and its mean is the best so far.
    pub improved: bool,
    /// The fit is lost.
    pub diverged: bool,
}

impl Smooth {
    /// `tolerance` is the gain per node that counts; 0 for any.
    pub fn new(nodes: f64, tolerance: f64) -> Self {
        Smooth {
            nodes,
            tolerance,
            sum: 0.0,
            count: 0,
            first: f64::NAN,
            best: f64::NEG_INFINITY,
            recent: Vec::with_capacity(PATIENCE + 2),
            last: f64::NAN,
        }
    }

    /// Takes in the ELBO of a step.
    pub fn add(&mut self, elbo: f64) -> Judged {
        (self.sum, self.count, self.last) = (self.sum + elbo, self.count + 1, elbo);
        if self.first.is_nan() {
            self.first = elbo; // before any step was made: a first window may be lost already
        }
        let mut judged = Judged { improved: false, diverged: !elbo.is_finite() };
        if self.count == WINDOW {
            let mean = self.sum / WINDOW as f64;
            (self.sum, self.count) = (0.0, 0);
            judged.improved = mean > self.best;
            judged.diverged |= mean < self.first - FALL * self.nodes;
            self.best = self.best.max(mean);
            self.recent.push(self.best);
            if self.recent.len() > PATIENCE + 1 {
                self.recent.remove(0);
            }
        }
        judged
    }

    /// The best mean; of a fit shorter than a window, the last value.
    pub fn best(&self) -> f64 {
        if self.any_window() { self.best } else { self.last }
    }

    /// Whether there was a full window, and so a best one.
    pub fn any_window(&self) -> bool {
        self.best.is_finite()
    }

    /// Whether the last windows have gained less than the tolerance.
    pub fn converged(&self) -> bool {
        let full = self.recent.len() == PATIENCE + 1;
        let gained = || (self.recent[PATIENCE] - self.recent[0]) / self.nodes;
        self.tolerance > 0.0 && full && gained() < self.tolerance
    }

    /// The state as numbers for a checkpoint.
    pub fn to_numbers(&self) -> Vec<f64> {
        let numbers = [self.sum, self.count as f64, self.first, self.best, self.last];
        [&numbers[..], &self.recent].concat()
    }

    /// Takes over what [`Smooth::to_numbers`] gave; nothing if the numbers do not fit.
    pub fn restore(&mut self, numbers: &[f64]) -> Option<()> {
        let (&[sum, count, first, best, last], recent) = numbers.split_first_chunk()?;
        (self.sum, self.count, self.first, self.best) = (sum, count as u64, first, best);
        self.last = last;
        self.recent.clear();
        self.recent.extend_from_slice(recent.get(..recent.len().min(PATIENCE + 1))?);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of equal values, and after how many of them the fit has converged.
    fn converges_after(tolerance: f64, means: impl Iterator<Item = f64>) -> Option<usize> {
        let mut smooth = Smooth::new(1.0, tolerance);
        means.enumerate().find_map(|(k, mean)| {
            (0..WINDOW).for_each(|_| {
                smooth.add(mean);
            });
            // A checkpoint at any time changes nothing.
            let mut restored = Smooth::new(1.0, tolerance);
            restored.restore(&smooth.to_numbers()).unwrap();
            assert_eq!(restored, smooth);
            smooth.converged().then_some(k + 1)
        })
    }

    #[test]
    fn a_fit_converges_when_ten_windows_gain_less_than_the_tolerance() {
        let rise_to = |top: usize| (0..100).map(move |k| k.min(top) as f64);
        // The best of the first 20 windows is 19; ten more without a gain end it.
        assert_eq!(converges_after(0.5, rise_to(19)), Some(30));
        // Ten windows gain 10 at first: too little for this tolerance as soon as there are ten.
        assert_eq!(converges_after(10.5, rise_to(99)), Some(11));
        assert_eq!(converges_after(0.5, rise_to(99)), None);
        // Without a tolerance a fit never ends early, and falling back is no gain.
        assert_eq!(converges_after(0.0, rise_to(5)), None);
        assert_eq!(converges_after(0.5, (0..100).map(|k| -f64::from(k))), Some(11));
    }
}
