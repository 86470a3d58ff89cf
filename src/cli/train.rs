//! `dgmrf train`: fitting the parameters of a model to the data of a config.

use super::{ranks, table};
use crate::config::Config;
use crate::error::Result;
use crate::run::{Run, RunDir, Summary};
use crate::train::session::Resume;
use std::path::PathBuf;

/// Fit the parameters of a model to data.
///
/// Writes model.json (the parameters), summary.json, metrics.jsonl (one line per logged step) and
/// checkpoints into the run directory. A run that was broken off goes on from its last checkpoint,
/// on any number of ranks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf train configs/quickstart.toml\n  \
    mpirun -n 4 dgmrf train configs/quickstart.toml --set train.seed=2 --set name=second\n  \
    dgmrf train configs/quickstart.toml --resume never")]
pub(super) struct Args {
    /// Config file (TOML)
    config: PathBuf,
    /// Replace a setting, e.g. model.layers=2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Go on from a checkpoint: auto (the newest one, if any), never, or the path of one
    #[arg(long, default_value = "auto", value_name = "auto|never|PATH")]
    resume: String,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    let Ok(resume) = args.resume.parse::<Resume>();
    let prepare = || {
        let config = Config::load(&args.config, &args.set)?;
        args.ranks.threads = args.ranks.threads.or(config.run.threads);
        Ok((args.ranks, config))
    };
    ranks::run(prepare, |world, _, config| {
        let run = Run::begin(world, config)?;
        let summary = run.fit(&resume)?;
        if world.is_root() {
            if args.json {
                println!("{:#}", serde_json::json!(summary));
            } else {
                print(&summary, run.dir());
            }
        }
        Ok(())
    })
}

fn print(summary: &Summary, dir: &RunDir) {
    let mut objective = match summary.objective_stderr {
        Some(stderr) => format!("{:.5} ± {stderr:.5} per node", summary.objective_per_node),
        None => format!("{:.5} per node", summary.objective_per_node),
    };
    if let Some(value) = summary.elbo_without_constants {
        objective += &format!(", {value:.5} without constants (as in the paper)");
    }
    let name = if summary.method == "elbo" { "ELBO" } else { "log p(y)" };
    let ended = if summary.converged { "nothing left to gain" } else { "as many as allowed" };
    table::print_pairs(&[
        ("method", summary.method.clone()),
        (
            "nodes",
            format!(
                "{}, {} observed",
                table::grouped(summary.nodes),
                table::grouped(summary.observed)
            ),
        ),
        ("steps", format!("{}, {ended}", summary.iterations)),
        (name, objective),
        ("sigma", format!("{:.5}", summary.sigma)),
        ("seconds", format!("{:.2}", summary.seconds)),
        ("model", dir.model().display().to_string()),
    ]);
}
