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
        if self.best.is_finite() { self.best } else { self.last }
    }

    /// Whether the last windows have gained less than the tolerance.
    pub fn converged(&self) -> bool {
        let full = self.recent.len() == PATIENCE + 1;
        let gained = || (self.recent[PATIENCE] - self.recent[0]) / self.nodes;
        self.tolerance > 0.0 && full && gained() < self.tolerance
    }

    /// As numbers for a checkpoint.
    pub fn to_numbers(&self) -> Vec<f64> {
        let numbers = [self.sum, self.count as f64, self.first, self.best, self.last];
        [&numbers[..], &self.recent].concat()
    }

    /// The opposite of [`Smooth::to_numbers`].
    pub fn restore(&mut self, numbers: &[f64]) -> Option<()> {
        let (&[sum, count, first, best, last], recent) = numbers.split_first_chunk()?;
        (self.sum, self.count, self.first, self.best) = (sum, count as u64, first, best);
        self.last = last;
        self.recent.clear();
        self.recent.extend_from_slice(recent.get(..recent.len().min(PATIENCE + 1))?);
        Some(())
    }
}
