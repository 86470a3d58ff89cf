//! The TOML settings of a run: what each key means, its default and its range.
//!
//! [`Config::load`] reads a file, applies `--set` overrides, refuses unknown keys and values out
//! of range with file and line, and fills in what depends on other keys, so that what is written
//! to the run directory is the whole truth about the run. Reading and overriding live in
//! `load.rs`; here are the keys. A key lives in the section of the room that reads it.

mod load;

pub use crate::field::Device;
pub use crate::logdet::Method as LogdetMethod;
pub use crate::model::Gamma;
pub use crate::posterior::{Choice as Preconditioner, Variance};
pub use crate::train::adam::Decay;
pub use crate::train::elbo::Estimator;

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// All settings of a run.
///
/// ```
/// use dgmrf::config::{Config, Gamma};
/// let dir = std::env::temp_dir();
/// let file = dir.join(format!("dgmrf-doc-config-{}.toml", std::process::id()));
/// std::fs::write(&file, "name = 'demo'\ndata = 'demo.h5'\n[model]\nlayers = 2\n").unwrap();
/// let config = Config::load(&file, &["model.gamma=1"])?;
/// assert_eq!((config.model.layers, config.model.gamma), (2, Gamma::Fixed(1.0)));
/// let error = Config::load(&file, &["model.layer=3"]).unwrap_err().to_string();
/// assert!(error.contains("did you mean `model.layers`?"));
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), dgmrf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the run; results land in `runs/NAME`.
    pub name: String,
    /// Dataset file. A relative path is looked for from the current directory, as every path on
    /// the command line is, then beside the config file; a file that `[source]` is still to make
    /// belongs to the current directory. [`Config::load`] makes it absolute.
    pub data: PathBuf,
    /// How to make `data` when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The layers.
    pub model: Model,
    /// Fitting of the parameters.
    pub train: Train,
    /// The score behind `train.method = "marginal"`.
    pub marginal: Marginal,
    /// The approximate posterior of `train.method = "elbo"`.
    pub variational: Variational,
    /// How `log|det G|` is computed.
    pub logdet: Logdet,
    /// Predictions and their error bars.
    pub posterior: Posterior,
    /// Where and on what to compute.
    pub run: Run,
}

/// `[source]`: the command that makes `data` when the file is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Words of `dgmrf import ...` or `dgmrf synth ...`, quoted as in a shell; `-o` is added.
    pub command: String,
}

/// `[model]`: the layers of the field (DESIGN §5).
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
    /// Whether `y` is given mean 0 and standard deviation 1 for the fit (undone in all results). Steps
    /// of Adam are as long as the learning rate whatever the units are, so this also decides how
    /// far `elbo` wanders about its maximum; the paper takes `y` as it is.
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
    /// Starts that are tried, at least 1: a short ascent from each, and the best goes on. When absent
    /// 2, but 1 on graphs of more than 50 000 nodes.
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

/// A setting with a fixed list of words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[derive(Serialize, Deserialize, clap::ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$word_doc])* $word),+ }
    };
}

words! {
    /// What training maximises.
    Method {
        /// The marginal likelihood `log p(y|θ)`, by Fisher's identity.
        #[default]
        Marginal,
        /// The evidence lower bound, as in the paper.
        Elbo,
    }
}
words! {
    /// Precision of node values.
    Precision {
        /// 64 bits.
        #[default]
        Double,
        /// 32 bits: half the memory and time, for `elbo` only.
        Single,
    }
}
words! {
    /// Who does the arithmetic.
    Engine {
        /// Rust loops on the CPU.
        #[default]
        Native,
        /// libtorch, on the CPU or a GPU.
        Torch,
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
        Train {
            method: Method::Marginal,
            seed: 1,
            iterations: None,
            learning_rate: None,
            decay: Decay::None,
            converge: 0.0,
            standardise: true,
            precision: Precision::Double,
            log_every: 10,
            checkpoint_every: 1000,
            checkpoint_minutes: 10.0,
        }
    }
}

impl Default for Marginal {
    fn default() -> Self {
        Marginal { starts: None, probes: None, tolerance: 3e-4, gain: 0.1 }
    }
}

impl Default for Variational {
    fn default() -> Self {
        Variational { layers: 1, samples: 10, estimator: Estimator::Rademacher }
    }
}

impl Default for Logdet {
    fn default() -> Self {
        Logdet { method: LogdetMethod::Auto, probes: 30, terms: 50, steps: 60 }
    }
}

impl Default for Posterior {
    fn default() -> Self {
        Posterior {
            samples: 100,
            variance: Variance::Rbmc,
            tolerance: 1e-7,
            preconditioner: Preconditioner::Auto,
        }
    }
}

impl Train {
    /// Steps of the method, also where none were asked for.
    pub fn iterations(&self) -> u64 {
        self.iterations.unwrap_or(match self.method {
            Method::Marginal => 200,
            Method::Elbo => 50_000,
        })
    }

    /// Step size of the method, also where none was asked for.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(match self.method {
            Method::Marginal => 0.1,
            Method::Elbo => 0.01,
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

impl Config {
    /// The run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.run.dir.clone().unwrap_or_else(|| Path::new("runs").join(&self.name))
    }

    /// The settings as a TOML document that [`Config::load`] reads back unchanged.
    pub fn to_toml(&self) -> crate::Result<String> {
        toml::to_string(self).map_err(|e| crate::Error::Setting(format!("config as TOML: {e}")))
    }

    /// The settings that a fit depends on, by name: what may not change when it is continued. How
    /// long it goes on, what it writes and on what it runs may.
    pub fn about(&self) -> crate::Result<std::collections::BTreeMap<String, String>> {
        let wrong = |e: toml::ser::Error| crate::Error::Setting(format!("config as TOML: {e}"));
        let table = toml::Table::try_from(self).map_err(wrong)?;
        let method = match self.train.method {
            Method::Marginal => "marginal",
            Method::Elbo => "variational",
        };
        let mut about = std::collections::BTreeMap::new();
        for section in ["model", "train", "logdet", method] {
            let Some(keys) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in keys {
                let changes = ["iterations", "log_every", "checkpoint_every", "checkpoint_minutes"];
                if section != "train" || !changes.contains(&key.as_str()) {
                    about.insert(format!("{section}.{key}"), value.to_string());
                }
            }
        }
        Ok(about)
    }

    /// The first key whose value cannot work, and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let need = |good: bool, key: &'static str, why: &str| match good {
            true => Ok(()),
            false => Err((key, why.to_owned())),
        };
        let at_least = |least: u64, value: u64, key: &'static str| match value >= least {
            true => Ok(()),
            false => Err((key, format!("{value} is too small, the least is {least}"))),
        };
        need(!self.name.is_empty(), "name", "is missing: it names the run directory runs/NAME")?;
        let plain = self.name != "."
            && self.name != ".."
            && !self.name.contains(|c: char| c == '/' || c == '\\' || c.is_control());
        need(plain, "name", "must be a plain directory name, without `/`; see run.dir")?;
        need(!self.data.as_os_str().is_empty(), "data", "is missing: it names the dataset file")?;
        if let Some(source) = &self.source {
            source.words().map_err(|why| ("source.command", why))?;
        }

        at_least(1, self.model.layers as u64, "model.layers")?;
        if let Gamma::Fixed(gamma) = self.model.gamma {
            need(gamma.is_finite(), "model.gamma", "must be \"free\" or a finite number")?;
        }

        at_least(1, self.train.iterations(), "train.iterations")?;
        let rate = self.train.learning_rate();
        need(
            rate.is_finite() && rate > 0.0,
            "train.learning_rate",
            "must be a finite number above 0",
        )?;
        at_least(1, self.train.log_every, "train.log_every")?;

        let converge = self.train.converge;
        need(converge >= 0.0 && converge.is_finite(), "train.converge", "must be 0 or above")?;
        let minutes = self.train.checkpoint_minutes;
        need(minutes > 0.0, "train.checkpoint_minutes", "must be above 0")?;
        if let Some(sigma) = self.model.sigma {
            need(
                sigma.is_finite() && sigma > 0.0,
                "model.sigma",
                "must be a finite number above 0",
            )?;
        }

        at_least(1, self.marginal.starts.unwrap_or(1), "marginal.starts")?;
        at_least(1, self.marginal.probes.unwrap_or(1) as u64, "marginal.probes")?;
        let tolerance = self.marginal.tolerance;
        let between = "must lie between 0 and 1, both excluded";
        need(tolerance > 0.0 && tolerance < 1.0, "marginal.tolerance", between)?;
        need(self.marginal.gain > 0.0, "marginal.gain", "must be above 0")?;

        let layers = self.variational.layers;
        need(layers <= 2, "variational.layers", "must be 0 (mean field), 1 or 2")?;
        at_least(1, self.variational.samples as u64, "variational.samples")?;

        at_least(1, self.logdet.probes as u64, "logdet.probes")?;
        at_least(1, self.logdet.terms as u64, "logdet.terms")?;
        at_least(1, self.logdet.steps as u64, "logdet.steps")?;

        at_least(2, self.posterior.samples as u64, "posterior.samples")?;
        let tolerance = self.posterior.tolerance;
        need(
            tolerance > 0.0 && tolerance < 1.0,
            "posterior.tolerance",
            "must lie between 0 and 1, both excluded",
        )?;

        if let Some(dir) = &self.run.dir {
            need(!dir.as_os_str().is_empty(), "run.dir", "must not be empty")?;
        }
        at_least(1, self.run.threads.unwrap_or(1) as u64, "run.threads")
    }
}
