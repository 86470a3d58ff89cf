//! Progress for people: a bar on a terminal, plain lines otherwise, nothing when quiet.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Progress of one piece of work with a known length.
///
/// Work that ends within a second shows nothing. On a terminal a bar follows; otherwise (log
/// files, batch jobs) a line appears every ten seconds.
pub struct Progress {
    bar: ProgressBar,
    what: String,
    total: u64,
    done: u64,
    /// Steps that were done before, by somebody else.
    before: u64,
    start: Instant,
    spoken: Instant,
    lines: bool,
}

const QUIET_FIRST: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Progress {
    /// Progress towards `total` steps, shown on standard error.
    pub fn new(what: &str, total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(
            "{msg:<28} [{bar:30}] {percent:>3}%  {elapsed}, {eta} to go  {per_sec}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        let now = Instant::now();
        Progress {
            bar,
            what: what.into(),
            total,
            done: 0,
            before: 0,
            start: now,
            spoken: now,
            lines: !terminal,
        }
    }

    /// Progress that is never shown, for library use and for ranks other than 0.
    pub fn silent() -> Self {
        let mut progress = Progress::new("", 0);
        progress.total = u64::MAX;
        progress.lines = false;
        progress.start += Duration::from_secs(1 << 30);
        progress
    }

    /// There is more to do than was known at first.
    pub fn extend(&mut self, steps: u64) {
        self.total = self.total.saturating_add(steps);
        self.bar.set_length(self.total);
    }

    /// What there is to say at the moment, beside the bar.
    pub fn note(&mut self, what: &str) {
        what.clone_into(&mut self.what);
        self.bar.set_message(what.to_owned());
    }

    /// Goes on with work of which `steps` were done earlier: they do not count for the speed.
    pub fn begin_at(&mut self, steps: u64) {
        (self.done, self.before) = (steps, steps);
        self.bar.set_position(steps);
        self.bar.reset_eta();
    }

    /// `steps` more are done.
    pub fn advance(&mut self, steps: u64) {
        self.done += steps;
        let now = Instant::now();
        if now.saturating_duration_since(self.start) < QUIET_FIRST {
            return;
        }
        if self.lines {
            if now.saturating_duration_since(self.spoken) >= LINE_EVERY {
                self.spoken = now;
                eprintln!("{}", self.line((now - self.start).as_secs_f64()));
            }
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.done);
    }

    /// What a log file gets: `ELBO 2.0195: 5000 of 50000 (10 %), 520/s, 87 s to go`.
    fn line(&self, seconds: f64) -> String {
        let Progress { what, done, total, .. } = self;
        let rate = (done - self.before) as f64 / seconds.max(1e-9);
        let percent = 100 * done / (*total).max(1);
        let left = total.saturating_sub(*done) as f64 / rate.max(1e-9);
        let rate = if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") };
        format!("{what}: {done} of {total} ({percent} %), {rate}/s, {left:.0} s to go")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
