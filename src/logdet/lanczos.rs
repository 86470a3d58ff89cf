//! Stochastic Lanczos quadrature: `n` probes times `m` steps become nodes `λ` and weights `ω` with
//! `Σ ω f(λ) ≈ tr f(Ã)`, a *weighted spectrum* that is used exactly like the eigenvalues.
//!
//! `m` steps from a probe `u` give the Gauss rule of the spectral measure of `u`, exact for
//! polynomials of degree `2m − 1`; the mean over probes is Hutchinson's estimator. No vector is
//! kept for reorthogonalisation: rounding makes copies of converged nodes, whose weights add up to
//! the right ones (Greenbaum 1989), and sums over the rule are as good as in exact arithmetic.
//!
//! The traces of `I`, `Ã` and `Ã²` are known exactly, so the weights are *calibrated* to give them
//! exactly, as survey statisticians do: `ω ← ω (1 + c₀ + c₁λ + c₂λ²)`. What remains random is the
//! part of `f` that no parabola explains, an order of magnitude less.
//!
//! # Reference
//! S. Ubaru, J. Chen, Y. Saad (2017), "Fast estimation of tr(f(A)) via stochastic Lanczos
//! quadrature"; J.-C. Deville, C.-E. Särndal (1992), "Calibration estimators in survey sampling".

use super::Tridiagonal;
use super::probes::{self, Probes};
use crate::field::Engine;
use crate::progress::Progress;

/// How the quadrature is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Probes to begin with.
    pub probes: usize,
    /// Steps `m` of each probe.
    pub steps: usize,
    /// More probes are taken until the standard error of `log|det G|` per node is below this, for
    /// all `|ρ| ≤ 0.99`; infinite for `probes` probes and no more.
    pub tolerance: f64,
    /// Never more probes than this.
    pub most_probes: usize,
    /// Seed of the probes.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { probes: 30, steps: 60, tolerance: 2e-4, most_probes: 1000, seed: 1 }
    }
}

/// Where the adaptive rule measures the error: it is largest at the ends.
const RHO: [f64; 2] = [-0.99, 0.99];

/// Nodes and weights, probe by probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Quadrature {
    steps: usize,
    /// `steps` nodes of every probe.
    lambda: Vec<f64>,
    /// Their weights in the rule of the probe, adding up to `N`.
    of_probe: Vec<f64>,
    /// Their weights in the mean over probes, calibrated.
    weight: Vec<f64>,
    trace_of_square: f64,
}

/// The quadrature rule of the graph that the engine works on. To be called by all ranks.
pub fn estimate<E: Engine>(
    engine: &mut E,
    options: &Options,
    progress: &mut Progress,
) -> Quadrature {
    let nodes = engine.part().nodes;
    let steps = options.steps.min(nodes);
    let trace_of_square = probes::trace_of_square(engine);
    let graph = Probes::new(engine);
    let mut room = None;
    let (mut lambda, mut of_probe) = (Vec::new(), Vec::new());
    let (mut done, mut wanted) = (0, options.probes);
    loop {
        while done < wanted {
            let columns = probes::width(wanted - done);
            let block = graph.start(engine, options.seed, done, columns, room);
            let (block, tridiagonal) = advance(engine, &graph, block, steps, progress);
            room = Some(block);
            done += columns;
            for probe in tridiagonal {
                for (value, share) in probe.gauss_rule() {
                    lambda.push(value.clamp(-1.0, 1.0));
                    of_probe.push(share * nodes as f64);
                }
                // Probes that ended early: nodes without weight.
                lambda.resize(lambda.len().next_multiple_of(steps), 0.0);
                of_probe.resize(lambda.len(), 0.0);
            }
        }
        let rule = Quadrature::new(steps, lambda, of_probe, trace_of_square);
        let stderr = RHO.map(|rho| rule.stderr(rho)).into_iter().fold(0.0, f64::max);
        let excess = stderr / (nodes as f64 * options.tolerance);
        if excess <= 1.0 || done >= options.most_probes {
            return rule;
        }
        // The error falls with the root of the number of probes.
        let needed = (done as f64 * excess * excess * 1.1).ceil() as usize;
        wanted = needed.clamp(done + 1, 4 * done).min(options.most_probes);
        progress.extend(((wanted - done) * steps) as u64);
        (lambda, of_probe) = (rule.lambda, rule.of_probe);
    }
}

/// `steps` steps of Lanczos for a block of probes, with one reduction each.
///
/// Directions stay unnormalised until the product is there, so that norm and diagonal share a
/// reduction: with `x_k = β_k v_k` and `z = D⁻¹A x_k`, `β_k² = ‖x_k‖²` and `α_k = ⟨x_k, z⟩ / β_k²`,
/// then `x_(k+1) = (z − α_k x_k) / β_k − (β_k / β_(k−1)) x_(k−1)`.
fn advance<E: Engine>(
    engine: &mut E,
    graph: &Probes<E>,
    mut block: probes::Block<E::Block>,
    steps: usize,
    progress: &mut Progress,
) -> (probes::Block<E::Block>, Vec<Tridiagonal>) {
    let columns = block.columns;
    let mut made = vec![Tridiagonal::default(); columns];
    let mut sums = vec![0.0; 2 * columns];
    let mut beta_before = vec![0.0; columns];
    let [mut of_next, mut of_now, mut of_before] = [0, 1, 2].map(|_| vec![0.0; columns]);
    for k in 0..steps {
        engine.layer(graph.walk(), false, &mut block.now, &mut block.next);
        engine.moments(graph.degree(), &block.now, &block.next, &mut sums);
        engine.world().sum(&mut sums);
        for c in 0..columns {
            let beta = sums[c].sqrt();
            // Nothing left but rounding: the probe has reached all that it can reach.
            let alive = k == 0 || (beta > EXHAUSTED && made[c].diagonal.len() == k);
            if !alive {
                (of_next[c], of_now[c], of_before[c]) = (0.0, 0.0, 0.0);
                continue;
            }
            let alpha = sums[columns + c] / sums[c];
            if k > 0 {
                made[c].off_diagonal.push(beta);
            }
            made[c].diagonal.push(alpha);
            of_next[c] = 1.0 / beta;
            of_now[c] = -alpha / beta;
            of_before[c] = if k == 0 { 0.0 } else { -beta / beta_before[c] };
            beta_before[c] = beta;
        }
        engine.combine(&of_next, &block.next, &of_now, &block.now, &of_before, &mut block.before);
        std::mem::swap(&mut block.now, &mut block.before);
        progress.advance(columns as u64);
    }
    (block, made)
}

/// Norms of directions lie between 0 and 1; below this there is no direction.
const EXHAUSTED: f64 = 1e-10;

impl Quadrature {
    /// Calibrates the rules of the probes, given the exact `tr Ã²` (and `tr Ã = 0`).
    pub(super) fn new(
        steps: usize,
        lambda: Vec<f64>,
        of_probe: Vec<f64>,
        trace_of_square: f64,
    ) -> Self {
        let mut rule = Quadrature { steps, weight: vec![], lambda, of_probe, trace_of_square };
        let basis = rule.parabolas();
        // Orthogonal parabolas have mean 0 under the rule; what their exact trace is instead is
        // put right in their own direction.
        let correction = |p: &Parabola| p.trace(rule.nodes(), trace_of_square) / p.norm;
        let corrections: Vec<f64> = basis[1..].iter().map(correction).collect();
        let share = 1.0 / rule.probes() as f64;
        let calibrated = rule.lambda.iter().zip(&rule.of_probe).map(|(&x, w)| {
            let terms = basis[1..].iter().zip(&corrections).map(|(p, c)| c * p.at(x));
            w * share * (1.0 + terms.sum::<f64>())
        });
        rule.weight = calibrated.collect();
        rule
    }

    /// What a file keeps: steps, nodes, weights of the probes, `tr Ã²`.
    pub(super) fn parts(&self) -> (usize, &[f64], &[f64], f64) {
        (self.steps, &self.lambda, &self.of_probe, self.trace_of_square)
    }

    /// Number of probes.
    pub fn probes(&self) -> usize {
        self.lambda.len() / self.steps
    }

    /// The weights of a probe add up to the number of nodes.
    fn nodes(&self) -> f64 {
        self.of_probe[..self.steps].iter().sum()
    }

    /// The weighted spectrum.
    pub fn nodes_and_weights(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.lambda.iter().copied().zip(self.weight.iter().copied())
    }

    /// `1`, `λ` and `λ²` made orthogonal under the mean rule; shorter if the spectrum has fewer
    /// points than three.
    fn parabolas(&self) -> Vec<Parabola> {
        let share = 1.0 / self.probes() as f64;
        let inner = |p: &Parabola, q: &Parabola| -> f64 {
            let terms = self.lambda.iter().zip(&self.of_probe);
            share * terms.map(|(&x, w)| w * p.at(x) * q.at(x)).sum::<f64>()
        };
        let mut basis: Vec<Parabola> = Vec::with_capacity(3);
        for power in 0..3 {
            let mut p = Parabola { coefficients: [0.0; 3], norm: 0.0 };
            p.coefficients[power] = 1.0;
            let length = inner(&p, &p);
            for q in &basis {
                let c = inner(&p, q) / q.norm;
                (0..3).for_each(|k| p.coefficients[k] -= c * q.coefficients[k]);
            }
            p.norm = inner(&p, &p);
            if p.norm > 1e-10 * length {
                basis.push(p);
            }
        }
        basis
    }

    /// Standard error of `Σ ω log(1 + ρλ)`: the spread over probes of what no parabola explains.
    pub(super) fn stderr(&self, rho: f64) -> f64 {
        let basis = self.parabolas();
        let values: Vec<f64> = self.lambda.iter().map(|x| (1.0 + rho * x).ln()).collect();
        let share = 1.0 / self.probes() as f64;
        let fit = basis.iter().map(|p| {
            let terms = self.lambda.iter().zip(&self.of_probe).zip(&values);
            share * terms.map(|((&x, w), f)| w * f * p.at(x)).sum::<f64>() / p.norm
        });
        let fit: Vec<f64> = fit.collect();
        let residual = |(&x, f): (&f64, &f64)| {
            f - basis.iter().zip(&fit).map(|(p, c)| c * p.at(x)).sum::<f64>()
        };
        let residuals: Vec<f64> = self.lambda.iter().zip(&values).map(residual).collect();
        let probes = residuals.chunks_exact(self.steps).zip(self.of_probe.chunks_exact(self.steps));
        probes::stderr(probes.map(|(r, w)| r.iter().zip(w).map(|(r, w)| r * w).sum()))
    }

    /// What `m` steps leave out at most: twice the error of the best polynomial of degree `2m − 1`
    /// for every node, bounded by the rest of the Chebyshev series
    /// `log(1 + ρx) = c + Σ_k ∓(2/k) rᵏ T_k(x)` with `r = |ρ| / (1 + √(1 − ρ²))`.
    pub(super) fn bound(&self, nodes: usize, rho: f64) -> f64 {
        let r = rho.abs() / (1.0 + (1.0 - rho * rho).sqrt());
        let degree = 2 * self.steps;
        let rest = 2.0 * r.powi(degree as i32) / (degree as f64 * (1.0 - r));
        2.0 * nodes as f64 * rest
    }
}

/// `a + b λ + c λ²` and its squared norm under a rule.
struct Parabola {
    coefficients: [f64; 3],
    norm: f64,
}

impl Parabola {
    fn at(&self, x: f64) -> f64 {
        let [a, b, c] = self.coefficients;
        a + x * (b + x * c)
    }

    /// Its exact trace.
    fn trace(&self, nodes: f64, of_square: f64) -> f64 {
        self.coefficients[0] * nodes + self.coefficients[2] * of_square
    }
}
