//! `dgmrf infer`: predictions with error bars from a fitted model.

use super::words::words;
use super::{ranks, table};
use crate::config::{Config, Device, Engine, Preconditioner, Variance};
use crate::error::{Error, Result};
use crate::run::{Inferred, Plan, RunDir};
use std::path::PathBuf;

/// Predict every node, with its standard deviation.
///
/// Reads the model and the data of a run directory, or those given by --model and --data (the
/// same graph; y and mask may be others), and writes posterior.h5: mean, std_x and std_y by
/// original node id.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf infer runs/quickstart\n  \
    mpirun -n 2 dgmrf infer runs/quickstart --samples 400 --csv\n  \
    dgmrf infer --model runs/quickstart/model.json --data other-mask.h5 -o other.h5\n  \
    dgmrf infer runs/quickstart --nodes 0,17,100-120 --keep-samples -o few.h5")]
pub(super) struct Args {
    /// Run directory
    #[arg(required_unless_present_all = ["model", "data"])]
    run: Option<PathBuf>,
    /// Model file [default: RUN/model.json]
    #[arg(long)]
    model: Option<PathBuf>,
    /// Dataset file [default: that of the run]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where the result goes [default: RUN/posterior.h5, or posterior.h5]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Posterior samples behind the variances [default: posterior.samples]
    #[arg(long)]
    samples: Option<usize>,
    /// How variances are computed [default: posterior.variance]
    #[arg(long, value_parser = words::<Variance>())]
    variance: Option<Variance>,
    /// Relative tolerance of conjugate gradients [default: posterior.tolerance]
    #[arg(long)]
    tolerance: Option<f64>,
    /// Preconditioner of conjugate gradients [default: posterior.preconditioner]
    #[arg(long, value_parser = words::<Preconditioner>())]
    preconditioner: Option<Preconditioner>,
    /// Seed of the samples [default: train.seed]
    #[arg(long)]
    seed: Option<u64>,
    /// Columns solved for at once [default: what is fast and fits into memory]
    #[arg(long)]
    batch: Option<usize>,
    /// Only these nodes in the result: ids and ranges (0,17,100-120), or a file with one per line
    #[arg(long, value_name = "IDS")]
    nodes: Option<String>,
    /// Write the samples too, as `samples`
    #[arg(long)]
    keep_samples: bool,
    /// Write the result also as CSV, beside it
    #[arg(long)]
    csv: bool,
    /// Engine [default: run.engine]
    #[arg(long, value_parser = words::<Engine>())]
    engine: Option<Engine>,
    /// Device of the torch engine [default: run.device]
    #[arg(long, value_parser = words::<Device>())]
    device: Option<Device>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    let json_wanted = args.json;
    let prepare = move || {
        let plan = plan(&mut args)?;
        Ok((args.ranks, plan))
    };
    ranks::run(prepare, |world, _, plan| {
        let found = plan.infer(world)?;
        if world.is_root() {
            if json_wanted {
                println!("{:#}", json(&found, &plan));
            } else {
                print(&found, &plan);
            }
        }
        Ok(())
    })
}

/// The settings of the run, where there is one, and what the command line says otherwise.
fn plan(args: &mut Args) -> Result<Plan> {
    let mut plan = match &args.run {
        Some(dir) => {
            let dir = RunDir::new(dir);
            if !dir.config().exists() {
                let why = "no run directory (no config.toml in it); `dgmrf run` makes one";
                return Err(Error::file(dir.path(), why));
            }
            let config = Config::load::<&str>(&dir.config(), &[])?;
            args.ranks.threads = args.ranks.threads.or(config.run.threads);
            Plan::of_run(&config, &dir)
        }
        None => Plan::new("", ""),
    };
    let replaced = args.model.is_some() || args.data.is_some();
    if args.run.is_some() && replaced && args.output.is_none() {
        let why = "another model or dataset than the run's: say with -o where the result goes";
        return Err(Error::Setting(why.into()));
    }
    for (to, by) in [
        (&mut plan.model, &args.model),
        (&mut plan.data, &args.data),
        (&mut plan.output, &args.output),
    ] {
        if let Some(by) = by {
            to.clone_from(by);
        }
    }
    let options = &mut plan.options;
    options.samples = args.samples.unwrap_or(options.samples);
    options.variance = args.variance.unwrap_or(options.variance);
    options.cg.tolerance = args.tolerance.unwrap_or(options.cg.tolerance);
    options.preconditioner = args.preconditioner.unwrap_or(options.preconditioner);
    options.seed = args.seed.unwrap_or(options.seed);
    options.batch = args.batch.or(options.batch);
    options.keep_samples = args.keep_samples;
    if !(options.cg.tolerance > 0.0 && options.cg.tolerance < 1.0) {
        return Err(Error::Setting("--tolerance must lie between 0 and 1, both excluded".into()));
    }
    plan.engine = args.engine.unwrap_or(plan.engine);
    plan.device = args.device.unwrap_or(plan.device);
    (plan.nodes, plan.csv) = (args.nodes.clone(), args.csv);
    Ok(plan)
}

fn json(found: &Inferred, plan: &Plan) -> serde_json::Value {
    let info = &found.info;
    serde_json::json!({
        "posterior": plan.output,
        "nodes": found.nodes,
        "observed": found.observed,
        "variance": info.variance,
        "samples": info.samples,
        "batch": info.batch,
        "preconditioner": info.preconditioner,
        "preconditioner_remark": info.refusal.map(|why| format!("no blocks: {why}")),
        "iterations": info.iterations,
        "column_products": info.column_products,
        "residual": info.residual,
        "error": info.error,
        "seconds": found.seconds,
    })
}

fn print(found: &Inferred, plan: &Plan) {
    let info = &found.info;
    if info.variance != plan.options.variance {
        eprintln!(
            "warning: nodes reach too many others here for variance = \"rbmc\": plain Monte \
             Carlo was used"
        );
    }
    if let Some(why) = info.refusal {
        eprintln!("warning: no preconditioner \"schwarz\" here: {why}");
    }
    let samples = match info.samples {
        0 => info.variance.to_string(),
        count => format!("{} from {count} samples", info.variance),
    };
    let error = info.error.map_or("not bounded".into(), |e| format!("{e:.1e}"));
    table::print_pairs(&[
        (
            "nodes",
            format!("{}, {} observed", table::grouped(found.nodes), table::grouped(found.observed)),
        ),
        ("variances", samples),
        ("preconditioner", info.preconditioner.to_owned()),
        ("iterations", format!("{} at most", info.iterations)),
        ("residual", format!("{:.1e} relative", info.residual)),
        ("error", format!("{error} posterior standard deviations at most")),
        ("seconds", format!("{:.2}", found.seconds)),
        ("result", plan.output.display().to_string()),
    ]);
}
