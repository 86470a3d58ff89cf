//! `dgmrf logdet`: the log-determinant of a graph by every method, side by side.

use super::words::words;
use super::{ranks, table};
use crate::comm::World;
use crate::config::{Device, Engine};
use crate::dataset::DatasetFile;
use crate::error::{Error, Result};
use crate::logdet::{self, Estimate, Method, Options, Source, lanczos, power_series};
use crate::partition;
use crate::run::engine::{Work, with_engine};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Compare ways to compute log-determinants: values, standard errors, bounds, seconds.
///
/// Prints Σ log(1 + ρ λ) over the spectrum λ of the normalised adjacency matrix, the part of
/// log|det G| that depends on the graph. What is computed is kept beside the dataset.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf logdet data.h5\n  \
    dgmrf logdet data.h5 --method all --rho -0.5 -0.9 -0.99\n  \
    mpirun -n 2 dgmrf logdet mesh.h5 --method lanczos --probes 100 --steps 50 --fixed --fresh --json")]
pub(super) struct Args {
    /// Dataset file
    data: PathBuf,
    /// Methods to compare
    #[arg(long, value_enum, default_value_t)]
    method: Choice,
    /// Values of ρ = β/α, between -1 and 1
    #[arg(long, num_args = 1.., allow_negative_numbers = true, value_name = "RHO",
          default_values_t = [-0.5, -0.9, -0.99])]
    rho: Vec<f64>,
    /// Probes [default: 1000 for the power series, 30 to begin with for Lanczos]
    #[arg(long)]
    probes: Option<usize>,
    /// Terms of the power series
    #[arg(long, default_value_t = power_series::Options::default().terms)]
    terms: usize,
    /// Steps of Lanczos
    #[arg(long, default_value_t = lanczos::Options::default().steps)]
    steps: usize,
    /// Lanczos takes more probes until the standard error per node is below this
    #[arg(long, default_value_t = lanczos::Options::default().tolerance)]
    tolerance: f64,
    /// No more probes than asked for, whatever the standard error
    #[arg(long)]
    fixed: bool,
    /// Exact moments of Lanczos come from walks of at most this many hops, of fewer where more
    /// would take over a tenth of the time of the probes
    #[arg(long, default_value_t = lanczos::Options::default().hops)]
    hops: usize,
    /// Seed of the probes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out the edge weights
    #[arg(long)]
    unweighted: bool,
    /// Memory limit of the dense solver in GB
    #[arg(long, default_value_t = 16.0)]
    memory: f64,
    /// Compute anew, neither reading nor keeping spectra
    #[arg(long)]
    fresh: bool,
    /// Engine
    #[arg(long, value_parser = words::<Engine>(), default_value_t)]
    engine: Engine,
    /// Device of the torch engine
    #[arg(long, value_parser = words::<Device>(), default_value_t)]
    device: Device,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Choice {
    /// Eigenvalues for small graphs, Lanczos otherwise
    #[default]
    Auto,
    /// All eigenvalues by a dense solver
    Eigenvalues,
    /// The paper's power series
    PowerSeries,
    /// Lanczos quadrature
    Lanczos,
    /// Every method; eigenvalues where memory allows
    All,
}

/// One method and what it found.
struct Outcome {
    method: Method,
    probes: Option<usize>,
    /// Powers whose traces are exact.
    exact_moments: Option<usize>,
    seconds: f64,
    kept: bool,
    estimates: Vec<Estimate>,
}

pub(super) fn run(args: Args) -> Result<()> {
    let prepare = || check(&args).map(|()| (args.ranks.clone(), ()));
    ranks::run(prepare, |world, _, ()| {
        let data = world.agree(DatasetFile::open(&args.data))?;
        let nodes = data.header().nodes;
        let methods = methods(&args, nodes, world.is_root());
        let mut outcomes = Vec::new();
        for method in methods {
            let options = options(&args, method);
            outcomes.push(one_method(&args, world, &data, options)?);
        }
        let mut peak = [peak_memory()];
        world.max(&mut peak);
        if world.is_root() {
            if args.json {
                print_json(&args, nodes, peak[0], &outcomes);
            } else {
                print_table(&args, nodes, &outcomes);
            }
        }
        Ok(())
    })
}

fn check(args: &Args) -> Result<()> {
    if let Some(rho) = args.rho.iter().find(|rho| !(-1.0 < **rho && **rho < 1.0)) {
        return Err(Error::Setting(format!("--rho {rho}: it must lie between -1 and 1")));
    }
    if args.probes == Some(0) || args.terms == 0 || args.steps == 0 || args.hops == 0 {
        return Err(Error::Setting("probes, terms, steps and hops must be at least 1".into()));
    }
    if args.tolerance.is_nan() || args.tolerance <= 0.0 {
        return Err(Error::Setting("--tolerance must be above 0".into()));
    }
    Ok(())
}

fn methods(args: &Args, nodes: usize, speak: bool) -> Vec<Method> {
    match args.method {
        Choice::Auto => vec![Options::default().method_for(nodes)],
        Choice::Eigenvalues => vec![Method::Eigenvalues],
        Choice::PowerSeries => vec![Method::PowerSeries],
        Choice::Lanczos => vec![Method::Lanczos],
        Choice::All => {
            let need = logdet::eigenvalues::memory(nodes) as f64 * 1e-9;
            let mut all = vec![Method::PowerSeries, Method::Lanczos];
            if need <= args.memory {
                all.insert(0, Method::Eigenvalues);
            } else if speak {
                eprintln!("warning: eigenvalues left out: they need {need:.1} GB (see --memory)");
            }
            all
        }
    }
}

fn options(args: &Args, method: Method) -> Options {
    let (series, lanczos) = (power_series::Options::default(), lanczos::Options::default());
    Options {
        method,
        eigenvalues: logdet::eigenvalues::Options { memory: (args.memory * 1e9) as u64 },
        power_series: power_series::Options {
            probes: args.probes.unwrap_or(series.probes),
            terms: args.terms,
            seed: args.seed,
        },
        lanczos: lanczos::Options {
            probes: args.probes.unwrap_or(lanczos.probes),
            steps: args.steps,
            tolerance: if args.fixed { f64::INFINITY } else { args.tolerance },
            hops: args.hops,
            seed: args.seed,
            ..lanczos
        },
    }
}

fn one_method(
    args: &Args,
    world: &Rc<World>,
    data: &DatasetFile,
    options: Options,
) -> Result<Outcome> {
    let method = options.method_for(data.header().nodes);
    let mut part = partition::load_or_make(world, data, None, &Default::default())?.part;
    let weighted = part.weights.is_some() && !args.unweighted;
    if !weighted {
        part = part.without_weights();
    }
    let work = Compare { world, data, weighted, options, fresh: args.fresh };
    let (loaded, seconds) = with_engine(world, part, args.engine, args.device, work)?;
    let spectrum = loaded.spectrum;
    Ok(Outcome {
        method,
        probes: match spectrum.source() {
            Source::Eigenvalues(_) => None,
            Source::PowerSeries(traces) => Some(traces.probes()),
            Source::Lanczos(rule) => Some(rule.probes()),
        },
        exact_moments: match spectrum.source() {
            Source::Eigenvalues(_) => None,
            Source::PowerSeries(_) => Some(2),
            Source::Lanczos(rule) => Some(rule.exact_moments()),
        },
        seconds,
        kept: !loaded.made,
        estimates: args.rho.iter().map(|&rho| spectrum.estimate(rho)).collect(),
    })
}

/// Computes or loads one spectrum, and takes the time of it.
struct Compare<'a> {
    world: &'a World,
    data: &'a DatasetFile,
    weighted: bool,
    options: Options,
    fresh: bool,
}

impl Work for Compare<'_> {
    type Output = (logdet::Loaded, f64);

    fn on<E: crate::field::Engine>(self, mut engine: E) -> Result<Self::Output> {
        let begun = Instant::now();
        let loaded = if self.fresh {
            let spectrum = logdet::compute(&mut engine, &self.options)?;
            logdet::Loaded { spectrum, path: PathBuf::new(), made: true }
        } else {
            let compute = |options: &Options| logdet::compute(&mut engine, options);
            logdet::load_or_make(self.world, self.data, self.weighted, &self.options, compute)?
        };
        Ok((loaded, begun.elapsed().as_secs_f64()))
    }
}

fn print_table(args: &Args, nodes: usize, outcomes: &[Outcome]) {
    println!("sum of log(1 + rho lambda) over {} nodes\n", table::grouped(nodes));
    println!(
        "{:<13} {:>8} {:>16} {:>11} {:>11} {:>7} {:>9}",
        "method", "rho", "value", "std. error", "bound", "probes", "seconds"
    );
    for (k, rho) in args.rho.iter().enumerate() {
        for o in outcomes {
            let e = &o.estimates[k];
            let probes = o.probes.map_or_else(|| "-".into(), |n| n.to_string());
            let seconds = if o.kept { "kept".into() } else { format!("{:.3}", o.seconds) };
            println!(
                "{:<13} {rho:>8} {:>16.6} {:>11.3e} {:>11.3e} {probes:>7} {seconds:>9}",
                o.method.name(),
                e.value,
                e.stderr,
                e.bound
            );
        }
    }
}

/// Bytes that this process has held at most, where the system tells; 0 elsewhere.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0
}

fn print_json(args: &Args, nodes: usize, peak: f64, outcomes: &[Outcome]) {
    let methods: Vec<_> = outcomes
        .iter()
        .map(|o| {
            let estimates: Vec<_> = args
                .rho
                .iter()
                .zip(&o.estimates)
                .map(|(rho, e)| {
                    serde_json::json!({
                        "rho": rho, "value": e.value, "derivative": e.derivative,
                        "stderr": e.stderr, "bound": e.bound,
                    })
                })
                .collect();
            serde_json::json!({
                "method": o.method.name(), "probes": o.probes, "seconds": o.seconds,
                "exact_moments": o.exact_moments, "kept": o.kept, "estimates": estimates,
            })
        })
        .collect();
    let ranks_peak = (peak > 0.0).then_some(peak);
    println!(
        "{:#}",
        serde_json::json!({
            "nodes": nodes, "methods": methods, "peak_memory_bytes": ranks_peak,
        })
    );
}
