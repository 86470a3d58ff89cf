//! `dgmrf run`: the whole way of the data, stage by stage, whatever is missing.

use super::evaluate::{self, Metrics};
use super::{infer, ranks, train};
use crate::comm::World;
use crate::config::{Config, Engine};
use crate::dataset::Dataset;
use crate::error::{Error, Result, WithPath};
use crate::partition;
use crate::posterior::PosteriorFile;
use crate::storage;
use crate::train::session::Resume;
use std::path::{Path, PathBuf};
use std::rc::Rc;
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

/// One step of the way, taken by all ranks together. Says what it has made and whether it was
/// there already; a stage leaves either its whole result or nothing.
struct Stage {
    name: &'static str,
    run: fn(&Config, &Rc<World>, usize) -> Result<Outcome>,
}

struct Outcome {
    result: PathBuf,
    skipped: bool,
}

/// The stages in their order.
const STAGES: &[Stage] = &[
    Stage { name: "data", run: data },
    Stage { name: "partition", run: divide },
    Stage { name: "train", run: fit },
    Stage { name: "infer", run: predict },
    Stage { name: "evaluate", run: score },
];

pub(super) fn run(mut args: Args) -> Result<()> {
    // Every rank reads the same file, and the threads depend on it.
    let prepare = || {
        let config = Config::load(&args.config, &args.set)?;
        args.ranks.threads = args.ranks.threads.or(config.run.threads);
        Ok((args.ranks, config))
    };
    ranks::run(prepare, |world, threads, config| {
        check_engine(&config, world)?;
        let record = config.run_dir().join("config.toml");
        on_root(world, || {
            warn_of_stale_data(&config, &record);
            write_record(&config)
        })?;
        for stage in STAGES {
            let start = Instant::now();
            let outcome = (stage.run)(&config, world, threads)?;
            let time = match outcome.skipped {
                true => "skipped, already there".to_owned(),
                false => format!("{:.2} s", start.elapsed().as_secs_f64()),
            };
            if world.is_root() {
                println!("{:<10} {:<24} {}", stage.name, time, outcome.result.display());
            }
        }
        on_root(world, || conclude(&config))
    })
}

/// What came out, and where to look next.
fn conclude(config: &Config) -> Result<()> {
    let dir = config.run_dir();
    println!();
    Metrics::read(&dir.join("metrics.json"))?.print();
    let shown = dir.display();
    println!(
        "\npredictions  {shown}/posterior.h5     (h5py, or: dgmrf infer {shown} --csv)\n\
         parameters   {shown}/model.json\nthe fit      {shown}/summary.json, {shown}/metrics.jsonl"
    );
    Ok(())
}

/// Runs on rank 0 while the others wait; a failure there is one of all.
pub(super) fn on_root(world: &World, work: impl FnOnce() -> Result<()>) -> Result<()> {
    world.agree(if world.is_root() { work() } else { Ok(()) })
}

/// A missing engine or device should not show after hours of work.
pub(super) fn check_engine(config: &Config, world: &World) -> Result<()> {
    if config.run.engine == Engine::Native {
        return Ok(());
    }
    #[cfg(feature = "torch")]
    return world.agree(crate::field::torch::device_of(world, config.run.device)).map(|_| ());
    #[cfg(not(feature = "torch"))]
    return world.agree(Err(Error::Setting(
        "this dgmrf was built without libtorch (feature `torch`): set run.engine = \"native\""
            .into(),
    )));
}

// ---- data -----------------------------------------------------------------------------------

fn data(config: &Config, world: &Rc<World>, _: usize) -> Result<Outcome> {
    let mut skipped = false;
    on_root(world, || {
        skipped = data_is_there(config)?;
        if skipped { Ok(()) } else { make_data(config) }
    })?;
    // What rank 0 has found counts for all.
    let skipped = world.broadcast(vec![u8::from(skipped)]) == [1];
    Ok(Outcome { result: config.data.clone(), skipped })
}

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

fn divide(config: &Config, world: &Rc<World>, _: usize) -> Result<Outcome> {
    let loaded = partition::load_or_make(world, &config.data, None, &Default::default())?;
    Ok(Outcome { result: loaded.path, skipped: !loaded.made })
}

// ---- train, infer, evaluate ------------------------------------------------------------------

/// Whether rank 0 finds a stage finished.
fn finished(world: &World, look: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let found = world.agree(if world.is_root() { look() } else { Ok(false) })?;
    Ok(world.broadcast(vec![u8::from(found)]) == [1])
}

fn fit(config: &Config, world: &Rc<World>, threads: usize) -> Result<Outcome> {
    let dir = config.run_dir();
    let result = dir.join("model.json");
    let skipped = finished(world, || {
        let key = train::key(config, &Dataset::read_header(&config.data)?)?;
        Ok(result.exists() && train::Summary::read(&dir).is_some_and(|s| s.key == key))
    })?;
    if !skipped {
        train::train(world, config, &Resume::Auto, threads)?;
    }
    Ok(Outcome { result, skipped })
}

fn predict(config: &Config, world: &Rc<World>, _: usize) -> Result<Outcome> {
    let plan = infer::Plan::of_run(config, &config.run_dir());
    let skipped = finished(world, || {
        let key = plan.key(&Dataset::read_header(&config.data)?)?;
        Ok(PosteriorFile::read_key(&plan.output).is_some_and(|found| found == key))
    })?;
    if !skipped {
        infer::infer(world, &plan)?;
    }
    Ok(Outcome { result: plan.output, skipped })
}

fn score(config: &Config, world: &Rc<World>, _: usize) -> Result<Outcome> {
    let dir = config.run_dir();
    let (posterior, result) = (dir.join("posterior.h5"), dir.join("metrics.json"));
    let skipped = finished(world, || {
        let key = PosteriorFile::read_key(&posterior);
        Ok(Metrics::read(&result).is_ok_and(|m| Some(m.posterior) == key))
    })?;
    if !skipped {
        on_root(world, || evaluate::evaluate(&posterior, &config.data)?.write(&result))?;
    }
    Ok(Outcome { result, skipped })
}

// ---- the record of the settings -------------------------------------------------------------

/// Writes the resolved settings into the run directory.
pub(super) fn write_record(config: &Config) -> Result<()> {
    let text = format!("# The settings of this run, defaults included.\n{}", config.to_toml()?);
    storage::write_text_file(&config.run_dir().join("config.toml"), &text)
}
