//! What is going on, shown on standard error: a bar on a terminal, plain lines otherwise.

use crate::progress::{Follower, Observer, Work};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows progress, warnings and notes on standard error.
///
/// Work that ends within a second shows nothing. On a terminal a bar follows; otherwise (log
/// files, batch jobs) a line appears every ten seconds.
pub struct Terminal;

const QUIET_FIRST: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Observer for Terminal {
    fn work(&self, begun: &Work) -> Option<Box<dyn Follower>> {
        Some(if std::io::stderr().is_terminal() {
            Box::new(Bar::new(begun))
        } else {
            Box::new(Lines { spoken: begun.start })
        })
    }

    fn warning(&self, message: &str) {
        eprintln!("warning: {message}");
    }

    fn note(&self, message: &str) {
        eprintln!("{message}");
    }
}

/// A bar that is redrawn in place, and gone at the end.
struct Bar {
    bar: ProgressBar,
    what: String,
    /// Steps that were done before the start.
    before: u64,
}

impl Bar {
    fn new(begun: &Work) -> Self {
        let bar = ProgressBar::with_draw_target(Some(begun.total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(
            "{msg:<28} [{bar:30}] {percent:>3}%  {elapsed}, {eta} to go  {per_sec}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        Bar { bar, what: String::new(), before: begun.before }
    }
}

impl Follower for Bar {
    fn update(&mut self, work: &Work) {
        if work.before != self.before {
            self.before = work.before;
            self.bar.set_position(work.before);
            self.bar.reset_eta();
        }
        if work.start.elapsed() < QUIET_FIRST {
            return;
        }
        if self.bar.length() != Some(work.total) {
            self.bar.set_length(work.total);
        }
        if self.what != work.what {
            self.what.clone_from(&work.what);
            self.bar.set_message(work.what.clone());
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(work.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Lines in a log file.
struct Lines {
    spoken: Instant,
}

impl Follower for Lines {
    fn update(&mut self, work: &Work) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(work.start);
        if elapsed >= QUIET_FIRST && now.saturating_duration_since(self.spoken) >= LINE_EVERY {
            self.spoken = now;
            eprintln!("{}", line(work, elapsed.as_secs_f64()));
        }
    }
}

/// What a log file gets: `ELBO 2.0195: 5000 of 50000 (10 %), 520/s, 87 s to go`.
fn line(work: &Work, seconds: f64) -> String {
    let Work { what, done, total, .. } = work;
    let rate = (done - work.before) as f64 / seconds.max(1e-9);
    let percent = 100 * done / (*total).max(1);
    let left = total.saturating_sub(*done) as f64 / rate.max(1e-9);
    let rate = if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") };
    format!("{what}: {done} of {total} ({percent} %), {rate}/s, {left:.0} s to go")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_speed_and_what_is_left() {
        let start = Instant::now();
        let what = "ELBO 2.0195".to_owned();
        let work = Work { what, total: 50_000, done: 5_000, before: 0, start };
        let expected = "ELBO 2.0195: 5000 of 50000 (10 %), 500/s, 90 s to go";
        assert_eq!(line(&work, 10.0), expected);
        // Steps of an earlier session do not count for the speed.
        let work = Work { before: 4_950, ..work };
        let expected = "ELBO 2.0195: 5000 of 50000 (10 %), 5.00/s, 9000 s to go";
        assert_eq!(line(&work, 10.0), expected);
    }
}
