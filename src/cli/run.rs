//! `dgmrf run`: the whole way of the data, stage by stage, whatever is missing.

use crate::config::Config;
use crate::dataset::Dataset;
use crate::error::{Error, Result, WithPath};
use std::io::Write;
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
}

/// One step of the way. `make` is only called when `done` says no, and leaves either the whole
/// result or nothing.
struct Stage {
    name: &'static str,
    /// What the stage makes, for the line it prints.
    result: fn(&Config) -> PathBuf,
    done: fn(&Config) -> Result<bool>,
    make: fn(&Config) -> Result<()>,
}

/// The stages in their order. Each runs on the first rank alone unless it says otherwise; the
/// other ranks wait for it.
const STAGES: &[Stage] = &[Stage {
    name: "data",
    result: |config| config.data.clone(),
    done: data_is_there,
    make: make_data,
}];

pub(super) fn run(args: Args) -> Result<()> {
    let config = Config::load(&args.config, &args.set)?;
    let record = config.run_dir().join("config.toml");
    warn_of_stale_data(&config, &record);
    write_record(&config, &record)?;
    for stage in STAGES {
        let start = Instant::now();
        let skipped = (stage.done)(&config)?;
        if !skipped {
            (stage.make)(&config)?;
        }
        let time = match skipped {
            true => "skipped, already there".to_owned(),
            false => format!("{:.2} s", start.elapsed().as_secs_f64()),
        };
        println!("{:<10} {:<24} {}", stage.name, time, (stage.result)(&config).display());
    }
    Ok(())
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

// ---- the record of the settings -------------------------------------------------------------

/// Writes the resolved settings: the whole file or nothing.
fn write_record(config: &Config, path: &Path) -> Result<()> {
    let dir = config.run_dir();
    std::fs::create_dir_all(&dir).with_path(&dir, "")?;
    let text = format!("# The settings of this run, defaults included.\n{}", config.to_toml()?);
    let partial = path.with_extension(format!("toml.{}.part", std::process::id()));
    let written = std::fs::File::create(&partial)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written.with_path(path, "")
}
