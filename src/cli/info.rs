//! `dgmrf info`: what is in a dataset.

use super::table;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::graph;
use std::path::PathBuf;

/// Describe a dataset: nodes, edges, degrees, components, what is observed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf info chameleon.h5\n  dgmrf info chameleon.h5 --json")]
pub(super) struct Args {
    /// Dataset file
    data: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<()> {
    let data = Dataset::read(&args.data)?;
    let n = data.nodes();
    let edges = data.graph.edges();
    let density = 2.0 * edges as f64 / (n as f64 * (n as f64 - 1.0)).max(1.0);
    let components = graph::components(&data.graph);
    let diameter = graph::diameter_estimate(&data.graph, 4);
    let degrees = Summary::of((0..n).map(|i| data.graph.neighbour_count(i) as f64).collect());
    let weights = data.graph.weights().map(|w| Summary::of(w.to_vec()));
    let observed = data.observed_count();
    let evaluation = data.evaluation_nodes().count();
    let feature_names = data.features.as_ref().map_or(&[][..], |f| &f.names);
    // Engines hold the CSR once and two blocks of 8 single-precision columns while training.
    let memory = data.graph.bytes() + n * 2 * 8 * 4;
    if args.json {
        let json = serde_json::json!({
            "name": data.name,
            "nodes": n,
            "edges": edges,
            "density": density,
            "observed": observed,
            "evaluation": evaluation,
            "features": feature_names.len(),
            "feature_names": feature_names,
            "weighted": data.graph.is_weighted(),
            "weights": weights.as_ref().map(Summary::json),
            "components": components.count(),
            "diameter_at_least": diameter,
            "degree": degrees.json(),
            "position": data.position.is_some(),
            "truth": data.truth.iter().flat_map(|t| t.arrays()).map(|(k, _)| k).collect::<Vec<_>>(),
            "memory_bytes": memory,
            "hash": data.hash(),
            "graph_hash": data.graph_hash(),
        });
        println!("{json:#}");
        return Ok(());
    }
    let yes = |there: bool| if there { "yes" } else { "no" }.to_owned();
    let share = |count: usize| {
        format!("{} ({:.1} %)", table::grouped(count), 100.0 * count as f64 / n as f64)
    };
    let mut rows = vec![
        ("name", data.name.clone()),
        ("nodes", table::grouped(n)),
        ("edges", table::grouped(edges)),
        ("density", format!("{density:.3e}")),
        (
            "components",
            match components.count() {
                1 => "1".into(),
                k => format!("{k} ({})", components.describe(5)),
            },
        ),
        ("diameter", format!("at least {diameter}")),
        ("neighbours", degrees.text()),
        ("weights", weights.map_or("none".into(), |w| w.text())),
        ("observed", share(observed)),
        ("to predict", share(n - observed)),
        ("of these with y", share(evaluation)),
        (
            "features",
            match feature_names.len() {
                0 => "none".into(),
                k => format!("{k}: {}", feature_names.join(", ")),
            },
        ),
        ("positions", yes(data.position.is_some())),
        ("truth", yes(data.truth.is_some())),
        ("memory", format!("{} for the graph and two blocks of 8 columns", table::bytes(memory))),
        ("hash", data.hash()[..16].to_owned()),
    ];
    if evaluation == n - observed {
        rows.retain(|(name, _)| *name != "of these with y");
    }
    table::print_pairs(&rows);
    Ok(())
}

/// Five numbers that describe many.
struct Summary {
    min: f64,
    median: f64,
    mean: f64,
    max: f64,
}

impl Summary {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Summary {
            min: values[0],
            median: values[values.len() / 2],
            mean: values.iter().sum::<f64>() / values.len() as f64,
            max: values[values.len() - 1],
        }
    }

    fn text(&self) -> String {
        let Summary { min, median, mean, max } = self;
        format!("min {min:.4}, median {median:.4}, mean {mean:.4}, max {max:.4}")
            .replace(".0000", "")
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "min": self.min, "median": self.median, "mean": self.mean, "max": self.max
        })
    }
}
