//! The paper's power series (appendix C): `Σ log(1 + ρλ) = −Σ_k (−ρ)ᵏ/k tr Ãᵏ`, cut at `K` terms,
//! with the traces by Hutchinson's estimator `E[uᵀ Ãᵏ u]`.

use super::moments;
use super::probes::{self, Probes};
use crate::field::Engine;
use crate::progress::Progress;

/// How traces are estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Probes; 1000 in the paper.
    pub probes: usize,
    /// Terms `K`; 50 in the paper.
    pub terms: usize,
    /// Seed of the probes.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { probes: 1000, terms: 50, seed: 1 }
    }
}

/// Estimates of `tr Ãᵏ`, `k = 1..=K`, from every probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    terms: usize,
    /// `uᵀ Ãᵏ u`, `K` of each probe, probe by probe.
    by_probe: Vec<f64>,
    /// Means over probes, except for `tr Ã = 0` and `tr Ã²`, which are known exactly.
    mean: Vec<f64>,
}

/// The traces of powers of the graph that the engine works on. To be called by all ranks.
///
/// With `v_k = Ãᵏ u`, `uᵀ Ã^2k u = ‖v_k‖²` and `uᵀ Ã^(2k+1) u = v_k·v_(k+1)`: `K` terms take `K/2`
/// products. All dots of a block of probes go into one reduction.
pub fn estimate<E: Engine>(engine: &mut E, options: &Options, progress: &mut Progress) -> Traces {
    let (n, terms) = (options.probes, options.terms);
    let products = terms.div_ceil(2);
    let mut by_probe = vec![0.0; n * terms];
    let graph = Probes::new(engine);
    let mut room = None;
    let mut first = 0;
    while first < n {
        let columns = probes::width(n - first);
        let mut block = graph.start(engine, options.seed, first, columns, room);
        // ‖v_k‖², v_k·v_(k+1) and ‖v_(k+1)‖² of every product.
        let mut sums = vec![0.0; 3 * columns * products];
        for sums in sums.chunks_exact_mut(3 * columns) {
            engine.krylov(None, &mut block.now, &mut block.next, sums);
            std::mem::swap(&mut block.now, &mut block.next);
            progress.advance(columns as u64);
        }
        room = Some(block);
        engine.world().sum(&mut sums);
        for c in 0..columns.min(n - first) {
            let of_probe = &mut by_probe[(first + c) * terms..][..terms];
            for (k, trace) in (1..).zip(of_probe) {
                // Of an odd power the middle, of an even one the end of a product.
                *trace = sums[(k - 1) / 2 * 3 * columns + (2 - k % 2) * columns + c];
            }
        }
        first += columns;
    }
    // The square is one hop; the paper's series goes on with estimates.
    let exact = moments::traces(engine.world(), engine.part(), 1, 0.0);
    Traces::new(terms, by_probe, exact[2])
}

impl Traces {
    /// From the terms of every probe and the exact `tr Ã²`.
    pub(super) fn new(terms: usize, by_probe: Vec<f64>, trace_of_square: f64) -> Self {
        let probes = by_probe.len() / terms;
        let mut mean = vec![0.0; terms];
        for of_probe in by_probe.chunks_exact(terms) {
            mean.iter_mut().zip(of_probe).for_each(|(m, t)| *m += t / probes as f64);
        }
        mean.iter_mut().zip([0.0, trace_of_square]).for_each(|(m, exact)| *m = exact);
        Traces { terms, by_probe, mean }
    }

    /// Terms, the values of every probe, and `tr Ã²`: what a file keeps.
    pub(super) fn parts(&self) -> (usize, &[f64], f64) {
        (self.terms, &self.by_probe, self.mean.get(1).copied().unwrap_or_default())
    }

    /// Number of probes.
    pub fn probes(&self) -> usize {
        self.by_probe.len() / self.terms
    }

    /// `tr Ãᵏ` for `k = 1..=K`.
    pub fn traces(&self) -> &[f64] {
        &self.mean
    }

    /// The series and its derivative in `ρ`.
    pub(super) fn sum_log(&self, rho: f64) -> (f64, f64) {
        let mut power = 1.0; // (−ρ)^(k−1)
        let (mut value, mut derivative) = (0.0, 0.0);
        for (k, trace) in (1..).zip(&self.mean) {
            value += rho * power / f64::from(k) * trace;
            derivative += power * trace;
            power *= -rho;
        }
        (value, derivative)
    }

    /// Standard error of the sum; the first two terms are exact.
    pub(super) fn stderr(&self, rho: f64) -> f64 {
        let coefficient = |k: usize| -(-rho).powi(k as i32) / k as f64;
        let coefficients: Vec<f64> = (1..=self.terms).map(coefficient).collect();
        let of_probe = |traces: &[f64]| -> f64 {
            traces.iter().zip(&coefficients).skip(2).map(|(t, c)| t * c).sum()
        };
        probes::stderr(self.by_probe.chunks_exact(self.terms).map(of_probe))
    }

    /// What the terms beyond `K` add up to at most (paper, Eq. 37):
    /// `N (−log(1 − |ρ|) − Σ_{k ≤ K} |ρ|ᵏ/k)`.
    pub(super) fn bound(&self, nodes: usize, rho: f64) -> f64 {
        let r = rho.abs();
        let kept: f64 = (1..=self.terms).map(|k| r.powi(k as i32) / k as f64).sum();
        // The difference of two close numbers may round below 0.
        nodes as f64 * (-(-r).ln_1p() - kept).max(0.0)
    }
}
