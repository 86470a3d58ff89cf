//! Progress and warnings of long work, told to whoever wants to know: an [`Observer`].
//!
//! Rooms say what they do ([`Progress`], [`warning`], [`note`]) and never print. What they say goes
//! to the observer of the thread, set for the length of a call by [`observed_by`]; the `dgmrf`
//! program sets one that writes to the terminal ([`crate::cli::Terminal`]). Without one nothing is
//! shown. Only rank 0 of a job speaks.
//!
//! ```
//! use dgmrf::progress::{self, Observer, Progress};
//! use std::{cell::RefCell, rc::Rc};
//!
//! /// Keeps the warnings for later.
//! #[derive(Default)]
//! struct Collected(RefCell<Vec<String>>);
//! impl Observer for Collected {
//!     fn warning(&self, message: &str) {
//!         self.0.borrow_mut().push(message.to_owned());
//!     }
//! }
//!
//! let collected = Rc::new(Collected::default());
//! progress::observed_by(collected.clone(), || {
//!     let mut progress = Progress::new("counting", 3);
//!     (0..3).for_each(|_| progress.advance(1));
//!     progress::warning("three is not many");
//! });
//! assert_eq!(*collected.0.borrow(), ["three is not many"]);
//! ```

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// Who is told what goes on. Everything may be ignored, and is by default.
pub trait Observer {
    /// Work begins. What is returned follows it, and is dropped when the work ends.
    fn work(&self, _begun: &Work) -> Option<Box<dyn Follower>> {
        None
    }

    /// Something is not as it should be, but the work goes on.
    fn warning(&self, _message: &str) {}

    /// Something a user may want to know.
    fn note(&self, _message: &str) {}
}

/// Follows one piece of work.
pub trait Follower {
    /// The work has come this far.
    fn update(&mut self, work: &Work);
}

/// A piece of work with a known length.
#[derive(Debug, Clone)]
pub struct Work {
    /// What is done, with what there is to say at the moment.
    pub what: String,
    /// Steps in all.
    pub total: u64,
    /// Steps that are done.
    pub done: u64,
    /// Steps that were done before the start, by somebody else: they do not count for the speed.
    pub before: u64,
    /// When the work began.
    pub start: Instant,
}

/// An observer that ignores everything.
struct Silent;

impl Observer for Silent {}

thread_local! {
    static OBSERVER: RefCell<Rc<dyn Observer>> = RefCell::new(Rc::new(Silent));
}

/// Does `work` while `observer` is told what goes on in this thread; afterwards, also after a
/// panic, the observer from before is back.
pub fn observed_by<R>(observer: Rc<dyn Observer>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Rc<dyn Observer>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                OBSERVER.with(|observer| observer.replace(before));
            }
        }
    }
    let _restore = Restore(Some(OBSERVER.with(|now| now.replace(observer))));
    work()
}

fn observer() -> Rc<dyn Observer> {
    OBSERVER.with(|observer| observer.borrow().clone())
}

/// Tells the observer of this thread that something is not as it should be.
pub fn warning(message: impl AsRef<str>) {
    observer().warning(message.as_ref());
}

/// Tells the observer of this thread something that a user may want to know.
pub fn note(message: impl AsRef<str>) {
    observer().note(message.as_ref());
}

/// Progress of one piece of work, as the one who does it tells it.
pub struct Progress {
    work: Work,
    follower: Option<Box<dyn Follower>>,
}

impl Progress {
    /// Begins work of `total` steps, followed by the observer of this thread.
    pub fn new(what: &str, total: u64) -> Self {
        let mut progress = Progress::silent();
        (progress.work.what, progress.work.total) = (what.into(), total);
        progress.follower = observer().work(&progress.work);
        progress
    }

    /// Progress that nobody follows, for ranks other than 0.
    pub fn silent() -> Self {
        let start = Instant::now();
        let work = Work { what: String::new(), total: 0, done: 0, before: 0, start };
        Progress { work, follower: None }
    }

    /// There is more to do than was known at first.
    pub fn extend(&mut self, steps: u64) {
        self.work.total = self.work.total.saturating_add(steps);
        self.tell();
    }

    /// What there is to say at the moment, beside the count.
    pub fn note(&mut self, what: &str) {
        what.clone_into(&mut self.work.what);
        self.tell();
    }

    /// Goes on with work of which `steps` were done earlier: they do not count for the speed.
    pub fn begin_at(&mut self, steps: u64) {
        (self.work.done, self.work.before) = (steps, steps);
        self.tell();
    }

    /// `steps` more are done.
    pub fn advance(&mut self, steps: u64) {
        self.work.done += steps;
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(follower) = &mut self.follower {
            follower.update(&self.work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(RefCell<Vec<String>>);

    impl Observer for Heard {
        fn work(&self, begun: &Work) -> Option<Box<dyn Follower>> {
            self.0.borrow_mut().push(format!("{} of {}", begun.what, begun.total));
            None
        }

        fn warning(&self, message: &str) {
            self.0.borrow_mut().push(message.into());
        }
    }

    #[test]
    fn the_observer_of_a_call_hears_it_and_the_one_before_is_back_afterwards() {
        let (outer, inner) = (Rc::new(Heard::default()), Rc::new(Heard::default()));
        warning("nobody listens");
        observed_by(outer.clone(), || {
            observed_by(inner.clone(), || drop(Progress::new("inside", 3)));
            let _ = std::panic::catch_unwind(|| observed_by(Rc::new(Silent), || panic!("lost")));
            warning("outside");
        });
        warning("nobody listens");
        assert_eq!(*inner.0.borrow(), ["inside of 3"]);
        assert_eq!(*outer.0.borrow(), ["outside"]);
    }
}
