//! Sources of right-hand sides: what to solve for to get the posterior mean and posterior samples.
//!
//! Both are `Gᵀ w + W^½ v` ([`Precision::right_hand_side`]) with their own `w` and `v`, so a
//! mean and any number of samples are columns of one block and one solve.

use super::Precision;
use crate::field::Engine;
use crate::likelihood::ObservedFields;
use crate::random::{Purpose, Stream};

/// Fills all columns of `w` and `v` with the standard normal numbers of samples
/// `first..first + columns`: solving for them gives samples of `N(0, Q̃⁻¹)`.
pub fn draw<E: Engine>(engine: &E, seed: u64, first: u64, w: &mut E::Block, v: &mut E::Block) {
    engine.fill_normal(Stream::new(seed, Purpose::Posterior, 0), first, w);
    engine.fill_normal(Stream::new(seed, Purpose::Posterior, 1), first, v);
}

/// Makes the sources of the posterior mean; owns the columns that takes.
pub struct MeanSource<E: Engine> {
    zero: E::Block,
    /// `g(0)`.
    offset: E::Block,
    weighted: E::Block,
}

impl<E: Engine> MeanSource<E> {
    /// Three columns.
    pub fn new(engine: &E) -> Self {
        let [zero, offset, weighted] = [0; 3].map(|_| engine.zeros(1));
        MeanSource { zero, offset, weighted }
    }

    /// Makes a column of `w` and `v` the one whose solution is the posterior mean:
    /// `Q̃ μ = W y − Gᵀ b_G` with `b_G = g(0)`, that is `w = −g(0)` and `v = W^½ y`.
    pub fn place(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        data: &ObservedFields<E::Block>,
        (w, v): (&mut E::Block, &mut E::Block),
        column: usize,
    ) {
        precision.stack().apply(engine, true, &mut self.zero, &mut self.offset);
        engine.aypx(&[-1.0], &self.zero, &mut self.offset);
        engine.copy_columns(&self.offset, w, &[(0, column)]);
        precision.weigh_root(engine, &data.y, &mut self.weighted);
        engine.copy_columns(&self.weighted, v, &[(0, column)]);
    }
}
