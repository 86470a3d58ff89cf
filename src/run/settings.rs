//! What each room is told by the settings of a run: the one place where a [`Config`] becomes the
//! options of algorithms, with the values that follow from the size of the graph.
//!
//! The program and library calls fit alike with the same config:
//!
//! ```
//! use dgmrf::{config::Config, run::settings};
//! let config = Config::default();
//! let [small, large] = [3_000, 1_000_000].map(|nodes| settings::marginal(&config, nodes));
//! assert_eq!((small.starts, large.starts), (2, 1));
//! assert_eq!(small.probes, 15); // one layer: systems are cheap
//! ```

use super::RunDir;
use crate::config::{Config, Method};
use crate::dataset::Header;
use crate::error::Result;
use crate::model::Standardise;
use crate::train::session::{Objective, Resume};
use crate::train::{Shape, adam, session};
use crate::{logdet as spectra, posterior as inference, train};
use std::time::Duration;

/// Above so many nodes a start is expensive and the first one rarely beaten, and probes of
/// log-determinants are many enough by the size of the graph.
const LARGE: usize = 50_000;

/// A fit by the marginal likelihood of a graph of `nodes` nodes.
pub fn marginal(config: &Config, nodes: usize) -> train::marginal::Options {
    let default = train::marginal::Options::default();
    let starts = if nodes > LARGE { 1 } else { default.starts };
    // The systems of one layer are cheap.
    let probes = if config.model.layers == 1 { 15 } else { default.probes };
    train::marginal::Options {
        starts: config.marginal.starts.unwrap_or(starts),
        iterations: config.train.iterations(),
        learning_rate: config.train.learning_rate(),
        probes: config.marginal.probes.unwrap_or(probes),
        tolerance: config.marginal.tolerance,
        gain: config.marginal.gain,
        seed: config.train.seed,
        ..default
    }
}

/// A fit by the evidence lower bound.
pub fn elbo(config: &Config) -> train::elbo::Options {
    train::elbo::Options {
        layers: config.variational.layers,
        samples: config.variational.samples,
        estimator: config.variational.estimator,
        adam: adam::Options {
            learning_rate: config.train.learning_rate(),
            decay: config.train.decay,
            iterations: config.train.iterations(),
            ..adam::Options::default()
        },
        converge: config.train.converge,
        seed: config.train.seed,
    }
}

/// The layers that are fitted, to values in units of `standardise`.
pub fn shape(config: &Config, standardise: &Standardise) -> Shape {
    Shape {
        layers: config.model.layers,
        bias: config.model.bias,
        gamma: config.model.gamma,
        sigma: config.model.sigma.map(|sigma| sigma / standardise.scale),
    }
}

/// The spectrum of a graph of `nodes` nodes for a fit: on small graphs more probes cost nothing,
/// and the error of the whole log-determinant should be small against what likelihoods tell apart
/// (one).
pub fn logdet(config: &Config, nodes: usize) -> spectra::Options {
    let c = &config.logdet;
    let default = spectra::Options::default();
    spectra::Options {
        method: c.method,
        power_series: spectra::power_series::Options {
            probes: c.probes,
            terms: c.terms,
            ..default.power_series
        },
        lanczos: spectra::lanczos::Options {
            probes: c.probes,
            steps: c.steps,
            tolerance: 0.2 / nodes as f64,
            most_probes: if nodes <= LARGE { 400 } else { 100 },
            ..default.lanczos
        },
        ..default
    }
}

/// Mean and variances of the posterior.
pub fn posterior(config: &Config) -> inference::Options {
    let p = &config.posterior;
    let mut options = inference::Options {
        samples: p.samples,
        variance: p.variance,
        seed: config.train.seed,
        preconditioner: p.preconditioner,
        ..inference::Options::default()
    };
    options.cg.tolerance = p.tolerance;
    options
}

/// The loop around a fit to `observed` values in units of `standardise`: its journal and
/// checkpoints are those of the run directory.
pub fn session(
    config: &Config,
    header: &Header,
    observed: usize,
    standardise: &Standardise,
    resume: &Resume,
) -> Result<session::Options> {
    let dir = RunDir::new(config.run_dir());
    let mut fingerprint = config.fingerprint()?;
    fingerprint.insert("data".into(), header.hash.clone());
    let name = match config.train.method {
        Method::Marginal => "log p(y)",
        Method::Elbo => "ELBO",
    };
    Ok(session::Options {
        journal: Some(dir.journal()),
        log_every: config.train.log_every,
        checkpoints: Some(dir.checkpoints()),
        checkpoint_every: config.train.checkpoint_every,
        checkpoint_after: Duration::from_secs_f64(60.0 * config.train.checkpoint_minutes),
        resume: resume.clone(),
        fingerprint,
        iterations: config.train.iterations(),
        objective: Objective::standardised(name, header.nodes, observed, standardise.scale),
    })
}
