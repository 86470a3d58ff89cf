//! Random probes on their way through the graph: what Hutchinson's estimator and Lanczos share.
//!
//! Probes advance as blocks of columns. Instead of `Ã = D^-½ A D^-½` the engines apply the random
//! walk `D⁻¹A = D^-½ Ã D^½`, so `x = D^-½ u` stands for a probe `u`, and dots carry the weight `d`:
//! `Σ d x y = u·v`.

use crate::field::Engine;
use crate::random::{Purpose, Stream};

/// Columns of a block: a row is a cache line, and two blocks of a million nodes 130 MB.
const WIDTH: usize = 8;

/// Columns of the next block when `left` probes remain. More than asked for where a full row costs
/// less than a part of it; the results of those are left alone.
pub(super) fn width(left: usize) -> usize {
    if left > WIDTH / 2 { WIDTH } else { left }
}

/// What probes need on an engine.
pub(super) struct Probes<E: Engine> {
    inverse_root_degree: E::Block,
}

/// Two blocks of probes: where they are, and where they go.
pub(super) struct Block<B> {
    pub columns: usize,
    pub now: B,
    pub next: B,
}

impl<E: Engine> Probes<E> {
    pub fn new(engine: &E) -> Self {
        let part = engine.part();
        let degree = part.degree[..part.owned].iter();
        let inverse_root: Vec<f64> = degree.map(|d| 1.0 / d.sqrt()).collect();
        Probes { inverse_root_degree: engine.node_field(&inverse_root) }
    }

    /// Probes `first..first + columns` at their start: `now = D^-½ u` with `u` random signs. The
    /// room of earlier probes is used again if it has the right width.
    pub fn start(
        &self,
        engine: &E,
        seed: u64,
        first: usize,
        columns: usize,
        room: Option<Block<E::Block>>,
    ) -> Block<E::Block> {
        let zeros = || engine.zeros(columns);
        let mut block = room.filter(|block| block.columns == columns).unwrap_or_else(|| Block {
            columns,
            now: zeros(),
            next: zeros(),
        });
        let stream = Stream::new(seed, Purpose::Probe, 0);
        engine.fill_rademacher(stream, first as u64, &mut block.next);
        engine.scale_rows(&self.inverse_root_degree, &block.next, &mut block.now);
        block
    }
}

/// `Σ log d` over all nodes. To be called by all ranks.
pub(super) fn sum_log_degree<E: Engine>(engine: &E) -> f64 {
    let part = engine.part();
    let mut sum = [part.degree[..part.owned].iter().map(|d| d.ln()).sum()];
    engine.world().sum(&mut sum);
    sum[0]
}

/// Standard error of the mean of values that are known one by one.
pub(super) fn stderr(values: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        let delta = value - mean;
        mean += delta / n;
        squares += delta * (value - mean);
    }
    if n < 2.0 { f64::INFINITY } else { (squares / (n - 1.0) / n).sqrt() }
}
