//! Right-hand sides: what to solve for to get the posterior mean and posterior samples.
//!
//! Both are `Gᵀ w + σ⁻¹ I_m v` ([`Precision::right_hand_side`]) with their own `w` and `v`, so a
//! mean and any number of samples are columns of one block and one solve.

use super::Precision;
use crate::field::Engine;
use crate::random::{Purpose, Stream};

/// Fills all columns of `w` and `v` with the standard normal numbers of samples
/// `first..first + columns`: solving for them gives samples of `N(0, Q̃⁻¹)`.
pub fn draw<E: Engine>(engine: &E, seed: u64, first: u64, w: &mut E::Block, v: &mut E::Block) {
    engine.fill_normal(Stream::new(seed, Purpose::Posterior, 0), first, w);
    engine.fill_normal(Stream::new(seed, Purpose::Posterior, 1), first, v);
}

/// The data as the posterior mean needs them.
pub struct Observations<E: Engine> {
    /// `y` in one column; anything finite where nothing is observed.
    y: E::Block,
    zero: E::Block,
    /// `g(0)`.
    offset: E::Block,
    scaled: E::Block,
}

impl<E: Engine> Observations<E> {
    /// `y` of the owned rows; values that are not observed may be missing (NaN).
    pub fn new(engine: &E, y: &[f64]) -> Self {
        let finite: Vec<f64> = y.iter().map(|&y| if y.is_finite() { y } else { 0.0 }).collect();
        let mut block = engine.zeros(1);
        engine.upload(&finite, &mut block);
        Observations {
            y: block,
            zero: engine.zeros(1),
            offset: engine.zeros(1),
            scaled: engine.zeros(1),
        }
    }

    /// `y` of the owned rows, zero where unknown.
    pub fn y(&self) -> &E::Block {
        &self.y
    }

    /// Makes a column of `w` and `v` the one whose solution is the posterior mean:
    /// `Q̃ μ = σ⁻² y_m − Gᵀ b_G` with `b_G = g(0)`, that is `w = −g(0)` and `v = y/σ`.
    pub fn place_mean(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        w: &mut E::Block,
        v: &mut E::Block,
        column: usize,
    ) {
        precision.stack().apply(engine, true, &mut self.zero, &mut self.offset);
        engine.aypx(&[-1.0], &self.zero, &mut self.offset);
        engine.copy_columns(&self.offset, w, &[(0, column)]);
        engine.copy_columns(&self.zero, &mut self.scaled, &[(0, 0)]);
        engine.axpy(&[1.0 / precision.sigma()], &self.y, &mut self.scaled);
        engine.copy_columns(&self.scaled, v, &[(0, column)]);
    }
}
