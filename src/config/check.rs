//! Which values of a config can work.

use super::{Config, Gamma};

impl Config {
    /// The first key whose value cannot work, and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let need = |good: bool, key: &'static str, why: &str| {
            if good { Ok(()) } else { Err((key, why.to_owned())) }
        };
        let at_least = |least: u64, value: u64, key: &'static str| {
            let small = || (key, format!("{value} is too small, the least is {least}"));
            if value >= least { Ok(()) } else { Err(small()) }
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
