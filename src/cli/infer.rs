//! `dgmrf infer`: predictions with error bars from a fitted model.

use super::engine::{Work, with_engine};
use super::{ranks, table, values};
use crate::comm::World;
use crate::config::{self, Config};
use crate::dataset::{Dataset, Header};
use crate::error::{Error, Result, WithPath};
use crate::field::Device;
use crate::field::rowwise::Rowwise;
use crate::likelihood::{Gaussian, Observations};
use crate::model::ModelFile;
use crate::partition;
use crate::posterior::{self, Choice, Estimate, PosteriorFile, Problem, Variance, Writer};
use crate::storage::{self, ArrayHasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

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
    #[arg(long, value_enum)]
    variance: Option<Variance>,
    /// Relative tolerance of conjugate gradients [default: posterior.tolerance]
    #[arg(long)]
    tolerance: Option<f64>,
    /// Preconditioner of conjugate gradients [default: posterior.preconditioner]
    #[arg(long, value_enum)]
    preconditioner: Option<Choice>,
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
    #[arg(long, value_enum)]
    engine: Option<config::Engine>,
    /// Device of the torch engine [default: run.device]
    #[arg(long, value_enum)]
    device: Option<Device>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

/// Everything that one inference needs to know.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    model: PathBuf,
    data: PathBuf,
    pub output: PathBuf,
    csv: bool,
    nodes: Option<String>,
    options: posterior::Options,
    engine: config::Engine,
    device: Device,
}

/// What came out, for people.
pub(super) struct Summary {
    nodes: usize,
    observed: usize,
    info: posterior::Info,
    seconds: f64,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    let json = args.json;
    let prepare = move || {
        let plan = plan(&mut args)?;
        Ok((args.ranks, plan))
    };
    ranks::run(prepare, |world, _, plan| {
        let summary = infer(world, &plan)?;
        if world.is_root() {
            match json {
                true => println!("{:#}", summary.json(&plan)),
                false => summary.print(&plan),
            }
        }
        Ok(())
    })
}

/// The settings of the run, where there is one, and what the command line says otherwise.
fn plan(args: &mut Args) -> Result<Plan> {
    let mut plan = match &args.run {
        Some(dir) => {
            let record = dir.join("config.toml");
            if !record.exists() {
                let why = "no run directory (no config.toml in it); `dgmrf run` makes one";
                return Err(Error::file(dir, why));
            }
            let config = Config::load::<&str>(&record, &[])?;
            args.ranks.threads = args.ranks.threads.or(config.run.threads);
            Plan::of_run(&config, dir)
        }
        None => Plan {
            model: PathBuf::new(),
            data: PathBuf::new(),
            output: "posterior.h5".into(),
            csv: false,
            nodes: None,
            options: posterior::Options::default(),
            engine: config::Engine::default(),
            device: Device::default(),
        },
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

impl Plan {
    /// The plan of a run: everything from its settings.
    pub fn of_run(config: &Config, dir: &Path) -> Self {
        let p = &config.posterior;
        let mut options = posterior::Options {
            samples: p.samples,
            variance: p.variance,
            seed: config.train.seed,
            preconditioner: p.preconditioner,
            ..posterior::Options::default()
        };
        options.cg.tolerance = p.tolerance;
        Plan {
            model: dir.join("model.json"),
            data: config.data.clone(),
            output: dir.join("posterior.h5"),
            csv: false,
            nodes: None,
            options,
            engine: config.run.engine,
            device: config.run.device,
        }
    }

    /// Hash of all that the result depends on.
    pub fn key(&self, header: &Header) -> Result<String> {
        let mut hasher = ArrayHasher::new("dgmrf posterior 1");
        hasher.array("data", header.hash.as_bytes());
        hasher.array("model", &std::fs::read(&self.model).with_path(&self.model, "")?);
        hasher.array("nodes", self.nodes.as_deref().unwrap_or("all").as_bytes());
        let o = &self.options;
        let words = format!("{:?} {:?} {}", o.variance, o.preconditioner, o.keep_samples);
        hasher.array("options", words.as_bytes());
        hasher.array("numbers", &[o.samples as u64, o.seed]);
        hasher.array("tolerances", &[o.cg.tolerance, o.cg.error]);
        Ok(hasher.finish())
    }
}

/// Computes and writes the posterior. All ranks call it.
pub(super) fn infer(world: &Rc<World>, plan: &Plan) -> Result<Summary> {
    let start = Instant::now();
    let header = world.agree(Dataset::read_header(&plan.data))?;
    let model = world.agree(read_model(plan, &header))?;
    let key = world.agree(plan.key(&header))?;
    let part = partition::load_or_make(world, &plan.data, None, &Default::default())?.part;
    let part = if model.weighted { part } else { part.without_weights() };
    let ids = part.owned_ids().to_vec();

    let data = values::read(world, &plan.data, &ids, model.features, Some(model.standardise))?;
    let nodes = world.agree(match &plan.nodes {
        Some(words) => parse_nodes(words, header.nodes).map(Some),
        None => Ok(None),
    })?;
    let observed = data.observed_count;
    let job =
        Job { world, plan, values: data, ids: &ids, nodes, header: &header, model: &model, key };
    let info = with_engine(world, part, plan.engine, plan.device, job)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Summary { nodes: header.nodes, observed, info, seconds })
}

fn read_model(plan: &Plan, header: &Header) -> Result<ModelFile> {
    let model = ModelFile::read(&plan.model)?;
    match model.graph_hash == header.graph_hash {
        true => Ok(model),
        false => Err(Error::file(
            &plan.model,
            format!("fitted on another graph than that of {}", plan.data.display()),
        )),
    }
}

/// `0,17,100-120`, or a file with one such word per line.
fn parse_nodes(words: &str, nodes: usize) -> Result<Vec<u32>> {
    let path = Path::new(words);
    let text = match path.is_file() {
        true => std::fs::read_to_string(path).with_path(path, "")?,
        false => words.to_owned(),
    };
    let mut ids = Vec::new();
    for word in text.split([',', '\n']).map(str::trim).filter(|w| !w.is_empty()) {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        let range = from.trim().parse::<u32>().ok().zip(to.trim().parse::<u32>().ok());
        let Some((from, to)) = range.filter(|(from, to)| from <= to) else {
            let why = "is neither an id, nor a range of ids, nor a file of them";
            return Err(Error::Setting(format!("--nodes: `{word}` {why}")));
        };
        if to as usize >= nodes {
            return Err(Error::Setting(format!("--nodes: {to} is not below {nodes}, the nodes")));
        }
        ids.extend(from..=to);
    }
    ids.sort_unstable();
    ids.dedup();
    match ids.is_empty() {
        true => Err(Error::Setting("--nodes: no node".into())),
        false => Ok(ids),
    }
}

/// The inference itself, on whatever engine.
struct Job<'a> {
    world: &'a Rc<World>,
    plan: &'a Plan,
    values: values::Values,
    ids: &'a [u32],
    nodes: Option<Vec<u32>>,
    header: &'a Header,
    model: &'a ModelFile,
    key: String,
}

impl Work for Job<'_> {
    type Output = posterior::Info;

    fn on<E: Rowwise>(self, mut engine: E) -> Result<posterior::Info> {
        let (world, plan, all) = (self.world, self.plan, self.header.nodes);
        let options = &plan.options;
        let kept = self.nodes.as_ref().map_or(all, Vec::len);
        let samples = if options.keep_samples { options.samples } else { 0 };
        let writer = world.agree(match world.is_root() {
            true => Writer::create(&plan.output, samples, kept).map(Some),
            false => Ok(None),
        })?;
        if let Some(bytes) = (kept * samples * 8 > 1 << 30).then_some(kept * samples * 8)
            && world.is_root()
        {
            let size = table::bytes(bytes);
            eprintln!("{samples} samples of {kept} nodes: {size} on disk, written batch by batch");
        }
        let (shift, scale) = (self.model.standardise.mean, self.model.standardise.scale);
        let mut keep = |first: usize, count: usize, rows: &[f64]| -> Result<()> {
            let Some(rows) = world.gather_rows(self.ids, rows, count, all)? else {
                return Ok(());
            };
            let writer = writer.as_ref().expect("rank 0 writes");
            for c in 0..count {
                let value = |i: usize| shift + scale * rows[i * count + c];
                let sample: Vec<f64> = match &self.nodes {
                    Some(nodes) => nodes.iter().map(|&i| value(i as usize)).collect(),
                    None => (0..all).map(value).collect(),
                };
                writer.sample(first + c, &sample)?;
            }
            Ok(())
        };
        let keep: Option<posterior::Keep> =
            if options.keep_samples { Some(&mut keep) } else { None };
        let noise = Gaussian::new(self.model.sigma / self.model.standardise.scale);
        let data = Observations::new(&engine, &self.values.y, &self.values.observed)?;
        let problem = Problem {
            model: &self.model.model,
            noise: world.agree(noise)?,
            data: &data,
            features: self.values.features.clone(),
        };
        let estimate = posterior::infer(&mut engine, &problem, options, keep)?;
        let info = estimate.info.clone();
        let gathered = world.agree(self.gather(&estimate))?;
        let written = match (gathered, writer) {
            (Some(content), Some(writer)) => self.write(writer, &content),
            _ => Ok(()),
        };
        world.agree(written)?;
        Ok(info)
    }
}

impl Job<'_> {
    /// The estimate in the units of `y`, by original id, on rank 0.
    fn gather(&self, estimate: &Estimate) -> Result<Option<PosteriorFile>> {
        let (shift, scale) = (self.model.standardise.mean, self.model.standardise.scale);
        let error = estimate.variance_error.as_ref();
        let rows: Vec<f64> = (0..self.ids.len())
            .flat_map(|i| {
                let variance = estimate.variance[i].max(0.0) * scale * scale;
                let std_x = variance.sqrt();
                // d std = d var / (2 std)
                let std_error = error.map_or(0.0, |e| e[i] * scale * scale / (2.0 * std_x));
                let std_y = (variance + self.model.sigma.powi(2)).sqrt();
                [shift + scale * estimate.mean[i], std_x, std_y, std_error]
            })
            .collect();
        let Some(all) = self.world.gather_rows(self.ids, &rows, 4, self.header.nodes)? else {
            return Ok(None);
        };
        let column = |c: usize| -> Vec<f64> {
            match &self.nodes {
                Some(nodes) => nodes.iter().map(|&i| all[4 * i as usize + c]).collect(),
                None => all.iter().skip(c).step_by(4).copied().collect(),
            }
        };
        Ok(Some(PosteriorFile {
            data_hash: self.header.hash.clone(),
            key: self.key.clone(),
            nodes: self.nodes.clone(),
            mean: column(0),
            std_x: column(1),
            std_y: column(2),
            std_x_error: error.map(|_| column(3)),
            coefficients: estimate.coefficients.iter().map(|c| c * scale).collect(),
            facts: self.facts(&estimate.info),
        }))
    }

    fn facts(&self, info: &posterior::Info) -> Vec<(String, String)> {
        let options = &self.plan.options;
        [
            ("name", self.header.name.clone()),
            ("variance", word(info.variance)),
            ("samples", info.samples.to_string()),
            ("seed", options.seed.to_string()),
            ("tolerance", format!("{:e}", options.cg.tolerance)),
            ("preconditioner", info.preconditioner.to_owned()),
            ("iterations", info.iterations.to_string()),
            ("residual", format!("{:.3e}", info.residual)),
            ("error", info.error.map_or("unknown".into(), |e| format!("{e:.3e}"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn write(&self, writer: Writer, content: &PosteriorFile) -> Result<()> {
        writer.finish(content)?;
        if self.plan.csv {
            storage::write_text_file(&self.plan.output.with_extension("csv"), &content.to_csv())?;
        }
        Ok(())
    }
}

/// A setting as it is written in a config.
fn word(variance: Variance) -> String {
    match variance {
        Variance::Rbmc => "rbmc",
        Variance::Mc => "mc",
        Variance::Exact => "exact",
    }
    .to_owned()
}

impl Summary {
    fn json(&self, plan: &Plan) -> serde_json::Value {
        let info = &self.info;
        serde_json::json!({
            "posterior": plan.output,
            "nodes": self.nodes,
            "observed": self.observed,
            "variance": word(info.variance),
            "samples": info.samples,
            "batch": info.batch,
            "preconditioner": info.preconditioner,
            "preconditioner_remark": info.refusal.map(|why| format!("no blocks: {why}")),
            "iterations": info.iterations,
            "column_products": info.column_products,
            "residual": info.residual,
            "error": info.error,
            "seconds": self.seconds,
        })
    }

    fn print(&self, plan: &Plan) {
        let info = &self.info;
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
            0 => word(info.variance),
            count => format!("{} from {count} samples", word(info.variance)),
        };
        let error = info.error.map_or("not bounded".into(), |e| format!("{e:.1e}"));
        table::print_pairs(&[
            (
                "nodes",
                format!(
                    "{}, {} observed",
                    table::grouped(self.nodes),
                    table::grouped(self.observed)
                ),
            ),
            ("variances", samples),
            ("preconditioner", info.preconditioner.to_owned()),
            ("iterations", format!("{} at most", info.iterations)),
            ("residual", format!("{:.1e} relative", info.residual)),
            ("error", format!("{error} posterior standard deviations at most")),
            ("seconds", format!("{:.2}", self.seconds)),
            ("result", plan.output.display().to_string()),
        ]);
    }
}
