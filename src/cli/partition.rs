//! `dgmrf partition`: divide a graph among ranks.

use super::table;
use super::words::words;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::partition::{self, Balance, Options, Quality, order::Order};
use std::path::PathBuf;

/// Divide the graph of a dataset among MPI ranks with METIS.
///
/// Under mpirun the other commands make and keep the partition they need; this one is for
/// choosing it beforehand, and for looking at its quality.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf partition mesh.h5 --parts 8\n  \
    dgmrf partition mesh.h5 --parts 64 --balance nodes -o partitions/mesh-p64.h5 --json")]
pub(super) struct Args {
    /// Dataset file
    data: PathBuf,
    /// Number of parts: the ranks that will work on them
    #[arg(long, short)]
    parts: usize,
    /// What to share out equally
    #[arg(long, value_parser = words::<Balance>(), default_value_t)]
    balance: Balance,
    /// How much larger than the mean a part may be
    #[arg(long, default_value_t = Options::default().tolerance)]
    tolerance: f64,
    /// Keep the original order of nodes inside the parts (for comparison; slower)
    #[arg(long)]
    original_order: bool,
    /// Seed of METIS
    #[arg(long, default_value_t = Options::default().seed)]
    seed: i32,
    /// Partition file [default: partitions/NAME-pPARTS.h5]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<()> {
    let data = Dataset::read(&args.data)?;
    let options = Options {
        balance: args.balance,
        tolerance: args.tolerance,
        order: if args.original_order { Order::Original } else { Order::Locality },
        seed: args.seed,
    };
    let output = args.output.unwrap_or_else(|| partition::default_path(&data.name, args.parts));
    let quality = partition::write(&output, &data, args.parts, &options)?;
    if args.json {
        let mut json = serde_json::json!(quality);
        json["output"] = output.to_string_lossy().into();
        println!("{json:#}");
    } else {
        print_quality(&quality);
        println!("\nwritten to {}", output.display());
    }
    Ok(())
}

fn print_quality(q: &Quality) {
    table::print_pairs(&[
        ("parts", q.parts.to_string()),
        ("edge cut", table::grouped(q.edge_cut)),
        ("imbalance", format!("{:.3} (entries), {:.3} (nodes)", q.imbalance, q.node_imbalance)),
        (
            "halo",
            format!("{:.2} % of the nodes, at most {} rows", 100.0 * q.halo_share, q.halo_max),
        ),
        (
            "neighbours",
            format!("{:.1} on average, at most {}", q.neighbours_mean, q.neighbours_max),
        ),
    ]);
}
