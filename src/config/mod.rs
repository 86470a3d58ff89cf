//! The TOML settings of a run: what each key means, its default and its range.
//!
//! [`Config::load`] reads a file, applies `--set` overrides, refuses unknown keys and values out
//! of range with file and line, and fills in what depends on other keys, so that what is written
//! to the run directory is the whole truth about the run. A config can also be made in code, by
//! [`Config::resolve`]. What a room is told by its settings is in [`crate::run::settings`].

mod check;
mod load;
mod sections;

pub use crate::field::Device;
pub use crate::logdet::Method as LogdetMethod;
pub use crate::model::Gamma;
pub use crate::posterior::{Choice as Preconditioner, Variance};
pub use crate::train::adam::Decay;
pub use crate::train::elbo::Estimator;
pub use sections::{
    Engine, Logdet, Marginal, Method, Model, Posterior, Precision, Run, Source, Train, Variational,
};

use crate::checkpoint::Fingerprint;
use crate::error::{Error, Result, WithPath};
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

impl Config {
    /// Checks all values and fills in what depends on other keys, as [`Config::load`] does: for
    /// configs made in code.
    ///
    /// ```
    /// use dgmrf::config::{Config, Model};
    /// let model = Model { layers: 2, ..Model::default() };
    /// let (name, data) = ("demo".into(), "demo.h5".into());
    /// let config = Config { name, data, model, ..Config::default() }.resolve()?;
    /// assert!(config.data.is_absolute() && config.train.iterations == Some(200));
    /// # Ok::<(), dgmrf::Error>(())
    /// ```
    pub fn resolve(mut self) -> Result<Self> {
        self.check().map_err(|(key, why)| Error::Setting(format!("`{key}` {why}")))?;
        // Absolute, so that later commands on the run directory find it from anywhere.
        self.data = std::path::absolute(&self.data).with_path(&self.data, "")?;
        self.train.iterations = Some(self.train.iterations());
        self.train.learning_rate = Some(self.train.learning_rate());
        Ok(self)
    }

    /// The run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.run.dir.clone().unwrap_or_else(|| Path::new("runs").join(&self.name))
    }

    /// The settings as a TOML document that [`Config::load`] reads back unchanged.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(not_toml)
    }

    /// The settings that a fit depends on, by name: what may not change when it is continued. How
    /// long it goes on, what it writes and on what it runs may.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let table = toml::Table::try_from(self).map_err(not_toml)?;
        let method = match self.train.method {
            Method::Marginal => "marginal",
            Method::Elbo => "variational",
        };
        let mut fingerprint = Fingerprint::new();
        for section in ["model", "train", "logdet", method] {
            let Some(keys) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in keys {
                let changes = ["iterations", "log_every", "checkpoint_every", "checkpoint_minutes"];
                if section != "train" || !changes.contains(&key.as_str()) {
                    fingerprint.insert(format!("{section}.{key}"), value.to_string());
                }
            }
        }
        Ok(fingerprint)
    }
}

fn not_toml(error: toml::ser::Error) -> Error {
    Error::Setting(format!("config as TOML: {error}"))
}
