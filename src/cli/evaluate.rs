//! `dgmrf evaluate`: how good the predictions are.

use super::table;
use crate::config::Config;
use crate::dataset::Dataset;
use crate::error::{Error, Result, WithPath};
use crate::metrics::{self, Distance, Scores};
use crate::posterior::PosteriorFile;
use crate::storage;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

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

/// `metrics.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// Name of the dataset.
    name: String,
    /// The `key` of the predictions that were scored.
    pub posterior: String,
    #[serde(flatten)]
    scores: Option<Scores>,
    #[serde(flatten)]
    distance: Option<Distance>,
}

pub(super) fn run(args: Args) -> Result<()> {
    let (posterior, data, output) = match &args.run {
        Some(dir) => {
            let config = Config::load::<&str>(&dir.join("config.toml"), &[])?;
            (dir.join("posterior.h5"), config.data, Some(dir.join("metrics.json")))
        }
        None => (PathBuf::new(), PathBuf::new(), None),
    };
    let posterior = args.posterior.unwrap_or(posterior);
    let data = args.data.unwrap_or(data);
    let metrics = evaluate(&posterior, &data)?;
    if let Some(path) = args.output.or(output) {
        metrics.write(&path)?;
    }
    match args.json {
        true => println!("{:#}", serde_json::json!(metrics)),
        false => metrics.print(),
    }
    Ok(())
}

/// Scores predictions against the dataset they were made for.
pub(super) fn evaluate(posterior: &Path, data: &Path) -> Result<Metrics> {
    if !posterior.exists() {
        return Err(Error::file(posterior, "no predictions yet: `dgmrf infer` makes them"));
    }
    let predicted = PosteriorFile::read(posterior)?;
    let dataset = Dataset::read(data)?;
    if predicted.data_hash != dataset.hash() {
        let why = format!("predictions for another dataset than {}", data.display());
        return Err(Error::file(posterior, why));
    }
    let count = predicted.mean.len();
    let nodes = predicted.nodes.unwrap_or_else(|| (0..count as u32).collect());
    if let Some(id) = nodes.iter().find(|&&id| id as usize >= dataset.nodes()) {
        return Err(Error::file(posterior, format!("node {id} is not in the dataset")));
    }
    let hidden = || {
        let all = nodes.iter().map(|&id| id as usize).enumerate();
        all.filter(|&(_, i)| !dataset.observed[i])
    };
    let scores = metrics::score(
        hidden()
            .filter(|&(_, i)| dataset.y[i].is_finite())
            .map(|(k, i)| (dataset.y[i], predicted.mean[k], predicted.std_y[k])),
    );
    let distance = dataset.truth.as_ref().map(|truth| {
        let to = |values: &Option<Vec<f64>>, predicted: &[f64]| {
            let values = values.as_ref()?;
            metrics::mean_absolute_difference(hidden().map(|(k, i)| (predicted[k], values[i])))
        };
        Distance {
            mean_mae: to(&truth.post_mean, &predicted.mean),
            std_mae: to(&truth.post_std, &predicted.std_y),
        }
    });
    Ok(Metrics { name: dataset.name, posterior: predicted.key, scores, distance })
}

impl Metrics {
    /// Reads `metrics.json`.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_path(path, "")?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::parse(path, e.line() as u64, e.to_string()))
    }

    /// Writes `metrics.json`.
    pub fn write(&self, path: &Path) -> Result<()> {
        storage::write_text_file(path, &format!("{:#}\n", serde_json::json!(self)))
    }

    /// A table for people.
    pub fn print(&self) {
        let mut rows: Vec<(&str, String)> = Vec::new();
        let number = |value: f64| format!("{value:.5}");
        let percent = |value: f64| format!("{:.1} %", 100.0 * value);
        match &self.scores {
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
        let distance = self.distance.as_ref();
        for (name, value) in [
            ("MAE to true mean", distance.and_then(|d| d.mean_mae)),
            ("MAE to true std", distance.and_then(|d| d.std_mae)),
        ] {
            rows.extend(value.map(|value| (name, format!("{value:.6}"))));
        }
        table::print_pairs(&rows);
    }
}
