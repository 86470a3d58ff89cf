//! Log-determinants: `Σ f(λ)` over the spectrum of `Ã = D^-½ A D^-½`.
//!
//! A layer is `G = α D^γ (I + ρ D⁻¹A)`, and `D⁻¹A` is similar to `Ã`, so (paper, Eq. 14 and
//! appendix C)
//!
//! ```text
//! log|det G| = N log α + γ Σ log dᵢ + Σ log(1 + ρ λᵢ)
//! ```
//!
//! where the spectrum `λ` belongs to the graph alone. It is computed once, in one of three ways
//! ([`Source`]), kept beside the dataset ([`load_or_make`]), and then serves every layer of every
//! model: a [`Spectrum`] gives the value and the gradient at a cost that depends neither on the
//! graph nor on the source.
//!
//! | source | what is kept | error |
//! |---|---|---|
//! | [`eigenvalues`] | all of them, by a dense solver | none |
//! | [`power_series`] | the traces `tr Ãᵏ` of the paper, by Hutchinson | sampling, truncation |
//! | [`lanczos`] | nodes and weights of a quadrature rule | sampling; truncation far smaller |

mod cache;
mod compute;
pub mod eigenvalues;
pub mod lanczos;
mod moments;
pub mod power_series;
mod probes;
mod table;
mod walks;

pub use cache::{Loaded, load_or_make};
pub use compute::{Method, Options, compute};

use crate::model::{Gamma, LayerParameters, LogDet};
use lanczos::Quadrature;
use power_series::Traces;
use table::Table;

/// What `Σ log(1 + ρ λ)` is computed from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// All eigenvalues.
    Eigenvalues(Vec<f64>),
    /// Traces of powers.
    PowerSeries(Traces),
    /// A weighted spectrum that reproduces `Σ f(λ)` on average.
    Lanczos(Quadrature),
}

/// The spectrum of a graph, ready for the log-determinants of layers.
///
/// ```
/// use dgmrf::logdet::{Source, Spectrum};
/// use dgmrf::model::{Gamma, LayerParameters};
/// // Two nodes, one edge: λ = ±1, d = 1, so det G = α² (1 − ρ²).
/// let spectrum = Spectrum::new(2, 0.0, Source::Eigenvalues(vec![-1.0, 1.0]));
/// let layer = LayerParameters::from_coefficients((2.0, -1.0, 0.5, 0.0), Gamma::Free)?;
/// let log_det = spectrum.log_det(&layer, Gamma::Free);
/// assert!((log_det.value - 3.0_f64.ln()).abs() < 1e-12);
/// assert_eq!(log_det.gradient.log_alpha, 2.0);
/// # Ok::<(), dgmrf::Error>(())
/// ```
#[derive(Debug)]
pub struct Spectrum {
    nodes: usize,
    sum_log_degree: f64,
    source: Source,
    table: Table,
}

/// An estimate of `Σ log(1 + ρ λ)` and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The sum.
    pub value: f64,
    /// The derivative of the sum in `ρ`.
    pub derivative: f64,
    /// Standard error of `value` from the choice of probes; 0 where nothing is random.
    pub stderr: f64,
    /// What a finite number of terms or steps leaves out is at most this.
    pub bound: f64,
}

impl Spectrum {
    /// A graph of `nodes` nodes with `Σ log dᵢ = sum_log_degree`.
    pub fn new(nodes: usize, sum_log_degree: f64, source: Source) -> Self {
        Spectrum { nodes, sum_log_degree, source, table: Table::default() }
    }

    /// Nodes of the graph.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Where the spectrum comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// `log|det G|` of a layer and its gradient; the same cost for every graph and source.
    pub fn log_det(&self, layer: &LayerParameters, gamma: Gamma) -> LogDet {
        layer.log_det(gamma, self.nodes, self.sum_log_degree, |artanh_rho| {
            self.table.evaluate(artanh_rho, |theta| self.source.sum_log(theta))
        })
    }

    /// `Σ log(1 + ρ λ)` with its error bars, straight from the source.
    pub fn estimate(&self, rho: f64) -> Estimate {
        let (value, slope) = self.source.sum_log(rho.atanh());
        let derivative = slope / (1.0 - rho * rho);
        let (stderr, bound) = match &self.source {
            Source::Eigenvalues(_) => (0.0, 0.0),
            Source::PowerSeries(traces) => (traces.stderr(rho), traces.bound(self.nodes, rho)),
            Source::Lanczos(q) => (q.stderr(rho), q.bound(self.nodes, rho)),
        };
        Estimate { value, derivative, stderr, bound }
    }
}

impl Source {
    /// `Σ log(1 + λ tanh θ)` and its derivative in `θ`.
    fn sum_log(&self, theta: f64) -> (f64, f64) {
        match self {
            Source::Eigenvalues(values) => weighted_sum(theta, values.iter().map(|&v| (v, 1.0))),
            Source::PowerSeries(traces) => {
                let rho = theta.tanh();
                let (value, derivative) = traces.sum_log(rho);
                (value, (1.0 - rho * rho) * derivative)
            }
            Source::Lanczos(quadrature) => weighted_sum(theta, quadrature.nodes_and_weights()),
        }
    }
}

/// `Σ ω log(1 + λ tanh θ)` and its derivative in `θ`.
///
/// With `e = exp(−2|θ|)` and `μ = λ sign θ`, `1 + λ tanh θ = ((1 + μ) + (1 − μ) e) / (1 + e)`: sums
/// of positive numbers, so nothing is lost where `1 + ρλ` comes close to 0.
fn weighted_sum(theta: f64, spectrum: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (e, sign) = ((-2.0 * theta.abs()).exp(), 1.0_f64.copysign(theta));
    let (mut value, mut derivative, mut total) = (0.0, 0.0, 0.0);
    for (lambda, weight) in spectrum {
        let factor = (1.0 + sign * lambda) + (1.0 - sign * lambda) * e;
        value += weight * factor.ln();
        derivative += weight * lambda / factor;
        total += weight;
    }
    (value - total * e.ln_1p(), derivative * 4.0 * e / (1.0 + e))
}
