//! The sections of a config: their keys, and what a key is when it is left out.
//!
//! A section belongs to the room that reads it, and its defaults are those of that room.

use super::{Decay, Device, Estimator, Gamma, LogdetMethod, Preconditioner, Variance};
use crate::train::{adam, elbo, marginal, session};
use crate::{logdet, posterior};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[source]`: the command that makes `data` when the file is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Words of `dgmrf import ...` or `dgmrf synth ...`, quoted as in a shell; `-o` is added.
    pub command: String,
}

/// `[model]`: the layers of the field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// Number of layers `L`, at least 1.
    pub layers: usize,
    /// Whether layers have a bias `b`.
    pub bias: bool,
    /// The exponent of the degree: `"free"` (fitted) or a number.
    pub gamma: Gamma,
    /// Whether the node features enter through a linear model.
    pub features: bool,
    /// Standard deviation of the noise in the units of `y`; when absent, it is fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigma: Option<f64>,
    /// Whether edge weights are used; when absent, they are if the data has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted: Option<bool>,
}

/// `[train]`: fitting of the parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Train {
    /// What is maximised.
    pub method: Method,
    /// Every random number of the run follows from it.
    pub seed: u64,
    /// Steps; when absent 200 for `marginal` and 50 000 for `elbo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Step size of Adam; when absent 0.1 for `marginal` and 0.01 for `elbo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// What becomes of the step size of `elbo` (that of `marginal` always falls).
    pub decay: Decay,
    /// `elbo` ends when the smoothed ELBO has gained less than this per node over 1000 steps; 0
    /// for as many steps as there are.
    pub converge: f64,
    /// Whether `y` is given mean 0 and standard deviation 1 for the fit (undone in all results).
    /// Steps of Adam are as long as the learning rate whatever the units are, so this also decides
    /// how far `elbo` wanders about its maximum; the paper takes `y` as it is.
    pub standardise: bool,
    /// Precision of node values under `elbo`; `marginal` always takes 64 bits.
    pub precision: Precision,
    /// Steps between lines of `metrics.jsonl`, at least 1.
    pub log_every: u64,
    /// Steps between checkpoints; 0 writes none.
    pub checkpoint_every: u64,
    /// Minutes after which a checkpoint is written in any case (unless there are none at all).
    pub checkpoint_minutes: f64,
}

/// `[marginal]`: the score `∇ log p(y|θ)` by Fisher's identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Marginal {
    /// Starts that are tried, at least 1: a short ascent from each, and the best goes on. When
    /// absent 2, but 1 on graphs of more than 50 000 nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u64>,
    /// Random signs behind the score, at least 1. When absent 15 for one layer, whose systems are
    /// cheap, and 7 for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<usize>,
    /// Relative residual of conjugate gradients, between 0 and 1.
    pub tolerance: f64,
    /// The fit ends when a step promises less gain of `log p(y)` than this (or than 1e-5 per node).
    pub gain: f64,
}

/// `[variational]`: `q = N(ν, S Sᵀ)` of the paper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Variational {
    /// Layers in `S`: 0 (mean field), 1 or 2.
    pub layers: usize,
    /// Samples or probes per step, at least 1.
    pub samples: usize,
    /// How expectations under `q` are estimated.
    pub estimator: Estimator,
}

/// `[logdet]`: the spectrum behind `log|det G|`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Logdet {
    /// Where the spectrum comes from.
    pub method: LogdetMethod,
    /// Random probes of `power-series` and `lanczos`, at least 1.
    pub probes: usize,
    /// Terms `K` of `power-series`, at least 1.
    pub terms: usize,
    /// Steps `m` of `lanczos`, at least 1.
    pub steps: usize,
}

/// `[posterior]`: predictions and their error bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Posterior {
    /// Posterior samples behind the variances, at least 2.
    pub samples: usize,
    /// How marginal variances are computed.
    pub variance: Variance,
    /// Relative tolerance of conjugate gradients, between 0 and 1.
    pub tolerance: f64,
    /// Preconditioner of conjugate gradients.
    pub preconditioner: Preconditioner,
}

/// `[run]`: where and on what to compute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Run directory; when absent `runs/NAME`. Relative to the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Who does the arithmetic.
    pub engine: Engine,
    /// Device of the torch engine.
    pub device: Device,
    /// Threads per rank, at least 1; when absent, the cores of the machine over its ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

words! {
    /// What training maximises.
    pub enum Method {
        /// The marginal likelihood `log p(y|θ)`, by Fisher's identity.
        #[default]
        Marginal = "marginal",
        /// The evidence lower bound, as in the paper.
        Elbo = "elbo",
    }
}

words! {
    /// Precision of node values.
    pub enum Precision {
        /// 64 bits.
        #[default]
        Double = "double",
        /// 32 bits: half the memory and time.
        Single = "single",
    }
}

words! {
    /// Who does the arithmetic.
    pub enum Engine {
        /// Rust loops on the CPU.
        #[default]
        Native = "native",
        /// libtorch, on the CPU or a GPU.
        Torch = "torch",
    }
}

impl Default for Model {
    fn default() -> Self {
        Model {
            layers: 1,
            bias: true,
            gamma: Gamma::Free,
            features: false,
            sigma: None,
            weighted: None,
        }
    }
}

impl Default for Train {
    fn default() -> Self {
        let (elbo, session) = (elbo::Options::default(), session::Options::default());
        Train {
            method: Method::default(),
            seed: elbo.seed,
            iterations: None,
            learning_rate: None,
            decay: elbo.adam.decay,
            converge: elbo.converge,
            standardise: true,
            precision: Precision::default(),
            log_every: session.log_every,
            checkpoint_every: session.checkpoint_every,
            checkpoint_minutes: session.checkpoint_after.as_secs_f64() / 60.0,
        }
    }
}

impl Default for Marginal {
    fn default() -> Self {
        let marginal::Options { tolerance, gain, .. } = marginal::Options::default();
        Marginal { starts: None, probes: None, tolerance, gain }
    }
}

impl Default for Variational {
    fn default() -> Self {
        let elbo::Options { layers, samples, estimator, .. } = elbo::Options::default();
        Variational { layers, samples, estimator }
    }
}

impl Default for Logdet {
    fn default() -> Self {
        let logdet::Options { method, power_series, lanczos, .. } = logdet::Options::default();
        Logdet { method, probes: lanczos.probes, terms: power_series.terms, steps: lanczos.steps }
    }
}

impl Default for Posterior {
    fn default() -> Self {
        let posterior::Options { samples, variance, cg, preconditioner, .. } =
            posterior::Options::default();
        Posterior { samples, variance, tolerance: cg.tolerance, preconditioner }
    }
}

impl Train {
    /// Steps of the method, also where none were asked for.
    pub fn iterations(&self) -> u64 {
        self.iterations.unwrap_or_else(|| match self.method {
            Method::Marginal => marginal::Options::default().iterations,
            Method::Elbo => adam::Options::default().iterations,
        })
    }

    /// Step size of the method, also where none was asked for.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or_else(|| match self.method {
            Method::Marginal => marginal::Options::default().learning_rate,
            Method::Elbo => adam::Options::default().learning_rate,
        })
    }
}

impl Source {
    /// The command as words, without a leading `dgmrf`.
    pub fn words(&self) -> Result<Vec<String>, String> {
        let mut words = shlex::split(&self.command)
            .ok_or_else(|| "a quotation mark is not closed".to_owned())?;
        if words.first().is_some_and(|w| w == "dgmrf") {
            words.remove(0);
        }
        match words.first().map(String::as_str) {
            Some("import" | "synth") => Ok(words),
            Some(other) => Err(format!(
                "`{other}` does not make a dataset: the command starts with `import` or `synth`"
            )),
            None => Err("the command is empty".into()),
        }
    }
}
