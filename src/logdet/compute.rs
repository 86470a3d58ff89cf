//! Choosing a source of the spectrum, and making it.

use super::{Source, Spectrum, eigenvalues, lanczos, power_series, probes};
use crate::error::Result;
use crate::field::Engine;
use crate::progress::Progress;

words! {
    /// Where the spectrum comes from.
    pub enum Method {
        /// Eigenvalues for small graphs, Lanczos otherwise.
        #[default]
        Auto = "auto",
        /// All eigenvalues by a dense solver.
        Eigenvalues = "eigenvalues",
        /// The paper's power series with Hutchinson traces.
        PowerSeries = "power-series",
        /// Stochastic Lanczos quadrature.
        Lanczos = "lanczos",
    }
}

/// How the spectrum of a graph is made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The source.
    pub method: Method,
    /// Limits of the dense solver.
    pub eigenvalues: eigenvalues::Options,
    /// Probes and terms of the power series.
    pub power_series: power_series::Options,
    /// Probes and steps of Lanczos.
    pub lanczos: lanczos::Options,
}

/// Up to this size all eigenvalues take a fraction of a second.
const EIGENVALUES_UP_TO: usize = 1000;

impl Options {
    /// The method for a graph of `nodes` nodes; never `Auto`.
    pub fn method_for(&self, nodes: usize) -> Method {
        match self.method {
            Method::Auto if nodes <= EIGENVALUES_UP_TO => Method::Eigenvalues,
            Method::Auto => Method::Lanczos,
            chosen => chosen,
        }
    }
}

/// The spectrum of the graph that the engine works on, which should compute in double precision.
/// To be called by all ranks.
pub fn compute<E: Engine>(engine: &mut E, options: &Options) -> Result<Spectrum> {
    let nodes = engine.part().nodes;
    let root = engine.world().is_root();
    let bar = |what: &str, steps: usize| {
        if root { Progress::new(what, steps as u64) } else { Progress::silent() }
    };
    let source = match options.method_for(nodes) {
        Method::Eigenvalues => {
            let mut bar = bar("eigenvalues", nodes);
            Source::Eigenvalues(eigenvalues::compute(engine, &options.eigenvalues, &mut bar)?)
        }
        Method::PowerSeries => {
            let o = &options.power_series;
            let mut bar = bar("traces of powers", o.probes * o.terms.div_ceil(2));
            Source::PowerSeries(power_series::estimate(engine, o, &mut bar))
        }
        Method::Lanczos | Method::Auto => {
            let o = &options.lanczos;
            let mut bar = bar("Lanczos quadrature", o.probes * o.steps);
            Source::Lanczos(lanczos::estimate(engine, o, &mut bar))
        }
    };
    Ok(Spectrum::new(nodes, probes::sum_log_degree(engine), source))
}
