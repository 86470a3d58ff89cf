//! The stages of a run: each is skipped when its result is there, so a run may always be repeated.

use super::engine::check_engine;
use super::{Metrics, Plan, Predictions, RunDir, Summary, evaluate, train};
use crate::comm::World;
use crate::config::Config;
use crate::dataset::{Dataset, DatasetFile};
use crate::error::{Error, Result, WithPath};
use crate::partition;
use crate::progress;
use crate::train::session::Resume;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

/// A run under way. Its stages are called by all ranks together, in their order; a stage leaves
/// either its whole result or nothing.
///
/// ```
/// use dgmrf::{comm::World, config::Config, synth, run::Run};
/// use dgmrf::synth::{Observation, mesh::{Kind, Mesh}};
/// use dgmrf::graph::delaunay::Weighting;
///
/// # let place = std::env::temp_dir().join(format!("dgmrf-doc-run-{}", std::process::id()));
/// # std::fs::create_dir_all(&place).unwrap();
/// let (name, data) = ("demo".into(), place.join("demo.h5"));
/// let mut config = Config { name, data, ..Config::default() };
/// config.run.dir = Some(place.join("run"));
/// config.posterior.samples = 10;
/// let mesh = Mesh { nodes: 200, kind: Kind::Grid, weighting: Weighting::None };
/// synth::mesh::generate(&mesh, &Observation::default())?.write(&config.data)?;
///
/// # let here = std::env::current_dir().unwrap();
/// # std::env::set_current_dir(&place).unwrap(); // where partitions go
/// let run = Run::begin(&World::solo(), config.resolve()?)?;
/// run.partition()?;
/// assert!(run.train()?.made && run.infer()?.made && run.evaluate()?.made);
/// assert!(!run.train()?.made, "the model is there");
/// let scores = dgmrf::run::Metrics::read(&run.dir().metrics())?.scores.unwrap();
/// assert_eq!(scores.n_test, 50);
/// # std::env::set_current_dir(here).unwrap();
/// # std::fs::remove_dir_all(place).unwrap();
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub struct Run {
    world: Rc<World>,
    config: Config,
    dir: RunDir,
    /// Whether the command that makes the data was another when the settings were last recorded.
    source_changed: bool,
}

/// What a stage has made, or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The file.
    pub result: PathBuf,
    /// Whether it was made just now.
    pub made: bool,
}

impl Run {
    /// Makes sure that the engine is there and records the settings in the run directory. All ranks
    /// call it.
    pub fn begin(world: &Rc<World>, config: Config) -> Result<Run> {
        check_engine(world, &config)?;
        let dir = RunDir::new(config.run_dir());
        let record = || {
            let before = Config::load::<&str>(&dir.config(), &[]);
            dir.record(&config)?;
            Ok(before.is_ok_and(|b| b.data == config.data && b.source != config.source))
        };
        let source_changed = world.on_root(record)?.unwrap_or(false);
        Ok(Run { world: world.clone(), config, dir, source_changed })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where the results are.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The dataset. Where it is missing, `make` on rank 0 does what the words of the command in
    /// `[source]` say, the output file included (in the program, [`crate::cli::run_words`]).
    pub fn data(&self, make: impl FnOnce(Vec<OsString>) -> Result<()>) -> Result<Stage> {
        let data = &self.config.data;
        if self.source_changed && data.exists() {
            // Someone who edits `[source]` expects new data, but a file that is there is never
            // replaced.
            progress::warning(format!(
                "[source] has changed since the last run, but {} is kept: remove it to have it \
                 made anew",
                data.display()
            ));
        }
        let make = || self.world.on_root(|| self.make_data(make)).map(|_| ());
        let made = self.world.make_if_missing(|| self.data_is_there(), make)?;
        Ok(Stage { result: data.clone(), made })
    }

    /// The part of the graph of every rank.
    pub fn partition(&self) -> Result<Stage> {
        let data = self.open_data()?;
        let loaded = partition::load_or_make(&self.world, &data, None, &Default::default())?;
        Ok(Stage { result: loaded.path, made: loaded.made })
    }

    /// The fitted model; a fit that was broken off goes on from its last checkpoint.
    pub fn train(&self) -> Result<Stage> {
        let (data, result) = (self.open_data()?, self.dir.model());
        let there = || {
            let key = train::key(&self.config, data.header())?;
            let summary = Summary::read(&self.dir.summary());
            Ok(result.exists() && summary.is_ok_and(|summary| summary.key == key))
        };
        let fit = || train::train(&self.world, &self.config, &data, &Resume::Auto).map(|_| ());
        let made = self.world.make_if_missing(there, fit)?;
        Ok(Stage { result, made })
    }

    /// Fits the model, also where one is there already.
    pub fn fit(&self, resume: &Resume) -> Result<Summary> {
        train::train(&self.world, &self.config, &self.open_data()?, resume)
    }

    /// The predictions.
    pub fn infer(&self) -> Result<Stage> {
        let (data, plan) = (self.open_data()?, Plan::of_run(&self.config, &self.dir));
        let there = || {
            let key = plan.key(data.header())?;
            Ok(Predictions::read_key(&plan.output).is_some_and(|found| found == key))
        };
        let infer = || plan.infer_from(&self.world, &data).map(|_| ());
        let made = self.world.make_if_missing(there, infer)?;
        Ok(Stage { result: plan.output, made })
    }

    /// The scores of the predictions.
    pub fn evaluate(&self) -> Result<Stage> {
        let (predictions, result) = (self.dir.predictions(), self.dir.metrics());
        let there = || {
            let key = Predictions::read_key(&predictions);
            Ok(Metrics::read(&result).is_ok_and(|metrics| Some(metrics.posterior) == key))
        };
        let score = || evaluate(&predictions, &self.config.data)?.write(&result);
        let score = || self.world.on_root(score).map(|_| ());
        let made = self.world.make_if_missing(there, score)?;
        Ok(Stage { result, made })
    }

    fn open_data(&self) -> Result<DatasetFile> {
        self.world.agree(DatasetFile::open(&self.config.data))
    }

    /// A file that is there but no dataset is an error: it may be the user's, so it is not
    /// replaced.
    fn data_is_there(&self) -> Result<bool> {
        let data = &self.config.data;
        if !data.try_exists().with_path(data, "")? {
            return Ok(false);
        }
        Dataset::read_header(data).map(|_| true)
    }

    fn make_data(&self, make: impl FnOnce(Vec<OsString>) -> Result<()>) -> Result<()> {
        let data = &self.config.data;
        let Some(source) = &self.config.source else {
            let why =
                "the dataset is missing, and the config has no [source] command that makes it";
            return Err(Error::file(data, why));
        };
        let in_source = |why: String| Error::Setting(format!("[source] {}: {why}", source.command));
        let words = source.words().map_err(in_source)?.into_iter().map(OsString::from);
        let output = ["-o".into(), data.clone().into_os_string()];
        make(words.chain(output).collect()).map_err(|e| in_source(e.to_string()))?;
        if !self.data_is_there()? {
            return Err(in_source(format!("did not make {}", data.display())));
        }
        Ok(())
    }
}
