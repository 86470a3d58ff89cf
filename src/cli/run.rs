//! `dgmrf run`: the whole way of the data, stage by stage, whatever is missing.

use super::{evaluate, ranks};
use crate::config::Config;
use crate::error::Result;
use crate::run::{Metrics, Run, RunDir, Stage};
use std::path::PathBuf;
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

/// Takes a run through one stage.
type Call = fn(&Run) -> Result<Stage>;

/// The stages in their order.
const STAGES: [(&str, Call); 5] = [
    ("data", |run| run.data(super::run_words)),
    ("partition", Run::partition),
    ("train", Run::train),
    ("infer", Run::infer),
    ("evaluate", Run::evaluate),
];

pub(super) fn run(mut args: Args) -> Result<()> {
    // Every rank reads the same file, and the threads depend on it.
    let prepare = || {
        let config = Config::load(&args.config, &args.set)?;
        args.ranks.threads = args.ranks.threads.or(config.run.threads);
        Ok((args.ranks, config))
    };
    ranks::run(prepare, |world, _, config| {
        let run = Run::begin(world, config)?;
        for (name, stage) in STAGES {
            let start = Instant::now();
            let Stage { result, made } = stage(&run)?;
            let time = if made {
                format!("{:.2} s", start.elapsed().as_secs_f64())
            } else {
                "skipped, already there".to_owned()
            };
            if world.is_root() {
                println!("{name:<10} {time:<24} {}", result.display());
            }
        }
        world.on_root(|| conclude(run.dir())).map(|_| ())
    })
}

/// What came out, and where to look next.
fn conclude(dir: &RunDir) -> Result<()> {
    println!();
    evaluate::print(&Metrics::read(&dir.metrics())?);
    let shown = dir.path().display();
    println!(
        "\npredictions  {shown}/posterior.h5     (h5py, or: dgmrf infer {shown} --csv)\n\
         parameters   {shown}/model.json\nthe fit      {shown}/summary.json, {shown}/metrics.jsonl"
    );
    Ok(())
}
