//! A fit under way: one step at a time, with a state that can be put on disk.

use super::Parameters;
use crate::checkpoint::State;
use crate::error::Result;
use crate::field::Engine;

/// A method of fitting, as the loop around it sees it ([`super::session`]). All ranks call all of
/// it.
pub trait Fit<E: Engine> {
    /// Steps done.
    fn steps(&self) -> u64;

    /// Does the next step.
    fn step(&mut self, engine: &mut E) -> Result<Report>;

    /// Whether there is nothing left to do; known to all ranks alike.
    fn finished(&self) -> bool;

    /// The parameters as they are now.
    fn parameters(&self) -> &Parameters;

    /// Everything that the next step depends on.
    fn save(&self, engine: &E) -> State;

    /// Takes over what [`Fit::save`] gave.
    fn restore(&mut self, engine: &mut E, state: State) -> Result<()>;
}

/// What a step has to say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The objective at the parameters the step began with, in standardised units.
    pub objective: f64,
    /// Iterations of conjugate gradients, where there were any.
    pub cg_iterations: Option<usize>,
}
