//! `dgmrf run`: the whole way of the data, stage by stage, whatever is missing.

use super::ranks;
use crate::comm::World;
use crate::config::Config;
use crate::dataset::Dataset;
use crate::error::{Error, Result, WithPath};
use crate::partition::{self, Part};
use crate::storage;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Do everything a config asks for; finished stages are skipped, so it is safe to repeat.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf run configs/quickstart.toml\n  \
    dgmrf run configs/quickstart.toml --set model.layers=2 --set name=two-layers\n\n\
    The settings are described in configs/README.md; the resolved ones land in the run directory.")]
pub(super) struct Args {
    /// Config file (TOML)
    config: PathBuf,
    /// Replace a setting, e.g. model.layers=2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

/// One step of the way. `make` is only called when `done` says no, and leaves either the whole
/// result or nothing. Both run on the first rank while the others wait.
struct Stage {
    name: &'static str,
    /// What the stage makes, for the line it prints.
    result: fn(&Config, &World) -> Result<PathBuf>,
    done: fn(&Config, &World) -> Result<bool>,
    make: fn(&Config, &World) -> Result<()>,
}

/// The stages in their order.
const STAGES: &[Stage] = &[
    Stage {
        name: "data",
        result: |config, _| Ok(config.data.clone()),
        done: |config, _| data_is_there(config),
        make: |config, _| make_data(config),
    },
    Stage {
        name: "partition",
        result: partition_path,
        done: partition_is_there,
        make: make_partition,
    },
];

pub(super) fn run(args: Args) -> Result<()> {
    ranks::run(&args.ranks, |world, _threads| {
        let config = world.agree(Config::load(&args.config, &args.set))?;
        let record = config.run_dir().join("config.toml");
        let recorded = on_root(world, || {
            warn_of_stale_data(&config, &record);
            write_record(&config, &record)
        });
        world.agree(recorded)?;
        STAGES
            .iter()
            .try_for_each(|stage| world.agree(on_root(world, || stage.run(&config, world))))
    })
}

fn on_root(world: &World, work: impl FnOnce() -> Result<()>) -> Result<()> {
    if world.is_root() { work() } else { Ok(()) }
}

impl Stage {
    fn run(&self, config: &Config, world: &World) -> Result<()> {
        let start = Instant::now();
        let skipped = (self.done)(config, world)?;
        if !skipped {
            (self.make)(config, world)?;
        }
        let time = match skipped {
            true => "skipped, already there".to_owned(),
            false => format!("{:.2} s", start.elapsed().as_secs_f64()),
        };
        println!("{:<10} {:<24} {}", self.name, time, (self.result)(config, world)?.display());
        Ok(())
    }
}

// ---- data -----------------------------------------------------------------------------------

/// A file that is there but no dataset is an error: it may be the user's, so it is not replaced.
fn data_is_there(config: &Config) -> Result<bool> {
    match config.data.try_exists().with_path(&config.data, "")? {
        true => Dataset::read_header(&config.data).map(|_| true),
        false => Ok(false),
    }
}

fn make_data(config: &Config) -> Result<()> {
    let Some(source) = &config.source else {
        return Err(Error::file(
            &config.data,
            "the dataset is missing, and the config has no [source] command that makes it",
        ));
    };
    let in_source = |why: String| Error::Setting(format!("[source] {}: {why}", source.command));
    let words = source.words().map_err(in_source)?;
    let output = ["-o".into(), config.data.clone().into_os_string()];
    super::run_words(words.into_iter().map(Into::into).chain(output))
        .map_err(|e| in_source(e.to_string()))?;
    match data_is_there(config)? {
        true => Ok(()),
        false => Err(in_source(format!("did not make {}", config.data.display()))),
    }
}

/// Someone who edits `[source]` expects new data, but a file that is there is never replaced.
fn warn_of_stale_data(config: &Config, record: &Path) {
    let Ok(before) = Config::load::<&str>(record, &[]) else { return };
    let made_otherwise = before.data == config.data && before.source != config.source;
    if made_otherwise && config.data.exists() {
        eprintln!(
            "warning: [source] has changed since the last run, but {} is kept: \
             remove it to have it made anew",
            config.data.display()
        );
    }
}

// ---- partition ------------------------------------------------------------------------------

fn partition_path(config: &Config, world: &World) -> Result<PathBuf> {
    Ok(partition::default_path(&Dataset::read_header(&config.data)?.name, world.size()))
}

/// A partition of another graph is an error that names the command to make it anew.
fn partition_is_there(config: &Config, world: &World) -> Result<bool> {
    let path = partition_path(config, world)?;
    let header = Dataset::read_header(&config.data)?;
    match path.try_exists().with_path(&path, "")? {
        true => Part::read(&path, 0, world.size(), &header.graph_hash).map(|_| true),
        false => Ok(false),
    }
}

fn make_partition(config: &Config, world: &World) -> Result<()> {
    let data = Dataset::read(&config.data)?;
    let path = partition_path(config, world)?;
    partition::write(&path, &data, world.size(), &partition::Options::default()).map(|_| ())
}

// ---- the record of the settings -------------------------------------------------------------

/// Writes the resolved settings.
fn write_record(config: &Config, path: &Path) -> Result<()> {
    let text = format!("# The settings of this run, defaults included.\n{}", config.to_toml()?);
    storage::write_text_file(path, &text)
}
