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
            "{msg:<28} [{bar:30}] {percent:>3}%  {elapsed} of {duration}  {per_sec}",
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
                let percent = 100 * self.done / self.total.max(1);
                eprintln!(
                    "{}: {percent} % after {:.0} s",
                    self.what,
                    (now - self.start).as_secs_f64()
                );
            }
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
