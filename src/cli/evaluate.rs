//! `dgmrf evaluate`: how good the predictions are.

use super::table;
use crate::config::Config;
use crate::error::Result;
use crate::run::{self, Metrics, RunDir};
use std::path::PathBuf;

/// Score the predictions of a run at the nodes that were hidden from it.
///
/// Writes metrics.json: RMSE, MAE, CRPS, the interval score of 95 % intervals, coverages, the log
/// score, and the distance to the true posterior where the dataset knows it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf evaluate runs/quickstart\n  \
    dgmrf evaluate runs/quickstart --json\n  \
    dgmrf evaluate --posterior other.h5 --data other-mask.h5 -o other.json")]
pub(super) struct Args {
    /// Run directory
    #[arg(required_unless_present_all = ["posterior", "data"])]
    run: Option<PathBuf>,
    /// Predictions [default: RUN/posterior.h5]
    #[arg(long)]
    posterior: Option<PathBuf>,
    /// Dataset they are for [default: that of the run]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where the scores go [default: RUN/metrics.json; without a run, nowhere]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<()> {
    let (predictions, data, output) = match args.run.map(RunDir::new) {
        Some(dir) => {
            let config = Config::load::<&str>(&dir.config(), &[])?;
            (dir.predictions(), config.data, Some(dir.metrics()))
        }
        None => (PathBuf::new(), PathBuf::new(), None),
    };
    let predictions = args.posterior.unwrap_or(predictions);
    let metrics = run::evaluate(&predictions, &args.data.unwrap_or(data))?;
    if let Some(path) = args.output.or(output) {
        metrics.write(&path)?;
    }
    if args.json {
        println!("{:#}", serde_json::json!(metrics));
    } else {
        print(&metrics);
    }
    Ok(())
}

/// A table for people.
pub(super) fn print(metrics: &Metrics) {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let number = |value: f64| format!("{value:.5}");
    let percent = |value: f64| format!("{:.1} %", 100.0 * value);
    match &metrics.scores {
        Some(s) => rows.extend([
            ("hidden nodes", table::grouped(s.n_test)),
            ("RMSE", number(s.rmse)),
            ("MAE", number(s.mae)),
            ("CRPS", number(s.crps)),
            ("interval score (95 %)", number(s.interval_score)),
            ("coverage of 50 %", percent(s.coverage50)),
            ("coverage of 80 %", percent(s.coverage80)),
            ("coverage of 95 %", percent(s.coverage95)),
            ("log score", number(s.log_score)),
        ]),
        None => rows.push(("hidden nodes", "none with a value: nothing to score".into())),
    }
    let distance = metrics.distance.as_ref();
    for (name, value) in [
        ("MAE to true mean", distance.and_then(|d| d.mean_mae)),
        ("MAE to true std", distance.and_then(|d| d.std_mae)),
    ] {
        rows.extend(value.map(|value| (name, format!("{value:.6}"))));
    }
    table::print_pairs(&rows);
}
