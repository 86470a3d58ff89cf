//! `dgmrf train`: fitting the parameters of a model to the data of a config.

use super::engine::{Work, with_precision};
use super::values::{self, Values};
use super::{ranks, table};
use crate::comm::World;
use crate::config::{Config, Method, Precision};
use crate::dataset::{Dataset, Header};
use crate::error::{Error, Result};
use crate::field::rowwise::Rowwise;
use crate::likelihood::Observations;
use crate::logdet;
use crate::model::{ModelFile, Standardise};
use crate::partition;
use crate::storage::{self, ArrayHasher};
use crate::train::{
    Parameters, Problem, Shape, adam,
    elbo::{self, Elbo},
    marginal::{self, Marginal},
    session::{self, Objective, Resume},
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

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

/// `summary.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    /// `marginal` or `elbo`.
    pub method: String,
    /// Steps done.
    pub iterations: u64,
    /// Wall-clock time of this session, from the start of the stage.
    pub seconds: f64,
    /// `log p(y|θ)` or the ELBO, in the units of `y`.
    pub objective: f64,
    /// The same per node.
    pub objective_per_node: f64,
    /// Standard error of `objective_per_node`, where it is estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_stderr: Option<f64>,
    /// The ELBO per node as the paper tells it: without the constants `½ − (M/N) ½ log 2π`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elbo_without_constants: Option<f64>,
    /// MPI ranks.
    pub ranks: usize,
    /// Threads of each.
    pub threads: usize,
    /// Nodes and observed nodes.
    pub nodes: usize,
    /// Observed nodes.
    pub observed: usize,
    /// Whether the fit ended because there was nothing left to gain.
    pub converged: bool,
    /// Noise in the units of `y`.
    pub sigma: f64,
    /// Standard errors of `(log α, artanh β/α, logit γ, b)` of each layer and of `log σ`, in
    /// standardised units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_errors: Option<Vec<f64>>,
    /// Gradients computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<u64>,
    /// Iterations of conjugate gradients in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cg_iterations: Option<u64>,
    /// Step of the checkpoint this session began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<u64>,
    /// Hash of the data and the settings: the same key means that there is nothing to do.
    pub key: String,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    let Ok(resume) = args.resume.parse::<Resume>();
    let prepare = || {
        let config = Config::load(&args.config, &args.set)?;
        args.ranks.threads = args.ranks.threads.or(config.run.threads);
        Ok((args.ranks, config))
    };
    ranks::run(prepare, |world, threads, config| {
        super::run::check_engine(&config, world)?;
        super::run::on_root(world, || super::run::write_record(&config))?;
        let summary = train(world, &config, &resume, threads)?;
        if world.is_root() {
            match args.json {
                true => println!("{:#}", serde_json::json!(summary)),
                false => summary.print(&config.run_dir()),
            }
        }
        Ok(())
    })
}

/// Hash of all that a fit depends on.
pub(super) fn key(config: &Config, header: &Header) -> Result<String> {
    let mut hasher = ArrayHasher::new("dgmrf fit 1");
    hasher.array("data", header.hash.as_bytes());
    for (name, value) in config.about()? {
        hasher.array(&name, value.as_bytes());
    }
    hasher.array("iterations", &[config.train.iterations()]);
    Ok(hasher.finish())
}

/// Fits the model and writes the results into the run directory. All ranks call it.
pub(super) fn train(
    world: &Rc<World>,
    config: &Config,
    resume: &Resume,
    threads: usize,
) -> Result<Summary> {
    let start = Instant::now();
    let header = world.agree(Dataset::read_header(&config.data))?;
    let mut part = partition::load_or_make(world, &config.data, None, &Default::default())?.part;
    let weighted = world.agree(weighted(config, part.weights.is_some()))?;
    if !weighted {
        part = part.without_weights();
    }
    let ids = part.owned_ids().to_vec();
    let as_it_is = Standardise { mean: 0.0, scale: 1.0 };
    let units = (!config.train.standardise).then_some(as_it_is);
    let values = values::read(world, &config.data, &ids, config.model.features, units)?;
    let facts = Facts {
        key: world.agree(key(config, &header))?,
        standardise: values.standardise,
        observed: values.observed_count,
        weighted,
        threads,
        start,
    };
    let job = Job { world, config, resume, header: &header, values, facts };
    let precision = match config.train.method {
        Method::Marginal => Precision::Double,
        Method::Elbo => config.train.precision,
    };
    with_precision(world, part, config.run.engine, config.run.device, precision, job)
}

/// Whether weights are used; asking for what is not there is an error.
fn weighted(config: &Config, present: bool) -> Result<bool> {
    match config.model.weighted {
        Some(true) if !present => {
            Err(Error::file(&config.data, "model.weighted = true, but the graph has no weights"))
        }
        asked => Ok(asked.unwrap_or(present)),
    }
}

/// What the results say besides the fit itself.
struct Facts {
    key: String,
    standardise: Standardise,
    observed: usize,
    weighted: bool,
    threads: usize,
    start: Instant,
}

struct Job<'a> {
    world: &'a Rc<World>,
    config: &'a Config,
    resume: &'a Resume,
    header: &'a Header,
    values: Values,
    facts: Facts,
}

impl Work for Job<'_> {
    type Output = Summary;

    fn on<E: Rowwise>(self, mut engine: E) -> Result<Summary> {
        let Job { world, config, resume, header, values, facts } = self;
        let options = logdet_options(config, header.nodes);
        let compute = |options: &logdet::Options| logdet::compute(&mut engine, options);
        let spectrum =
            logdet::load_or_make(world, &config.data, facts.weighted, &options, compute)?.spectrum;
        let Values { y, observed, features, .. } = values;
        let data = Observations::new(&engine, &y, &observed)?;
        let problem = world.agree(Problem::new(data, features, spectrum))?;
        let shape = Shape {
            layers: config.model.layers,
            bias: config.model.bias,
            gamma: config.model.gamma,
            sigma: config.model.sigma.map(|sigma| sigma / facts.standardise.scale),
        };
        let objective = Objective {
            name: match config.train.method {
                Method::Marginal => "log p(y)",
                Method::Elbo => "ELBO",
            },
            // Densities of y and of (y − mean) / scale differ by the scale, once for each value.
            shift: -(facts.observed as f64) * facts.standardise.scale.ln(),
            nodes: header.nodes as f64,
            scale: facts.standardise.scale,
        };
        let mut about = config.about()?;
        about.insert("data".into(), header.hash.clone());
        let session = session::Options {
            dir: config.run_dir(),
            log_every: config.train.log_every,
            checkpoint_every: config.train.checkpoint_every,
            checkpoint_after: Duration::from_secs_f64(60.0 * config.train.checkpoint_minutes),
            resume: resume.clone(),
            about,
            iterations: config.train.iterations(),
            objective,
        };
        let (parameters, summary) = match config.train.method {
            Method::Marginal => {
                let fit = Marginal::new(
                    &mut engine,
                    problem,
                    &shape,
                    marginal_options(config, header.nodes),
                )?;
                let (fit, outcome) = run_session(&mut engine, fit, &session)?;
                let steps = crate::train::Fit::<E>::steps(&fit);
                let (parameters, info) = fit.finish(&mut engine)?;
                let summary = Summary {
                    objective_stderr: Some(info.evidence.stderr / objective.nodes),
                    converged: info.converged,
                    standard_errors: info.standard_errors,
                    evaluations: Some(info.evaluations),
                    cg_iterations: Some(info.cg_iterations),
                    resumed_at: outcome.resumed_at,
                    ..Summary::new("marginal", steps, info.evidence.value, &objective)
                };
                (parameters, summary)
            }
            Method::Elbo => {
                let fit = Elbo::new(&mut engine, problem, &shape, elbo_options(config))?;
                let (fit, outcome) = run_session(&mut engine, fit, &session)?;
                let steps = crate::train::Fit::<E>::steps(&fit);
                let (parameters, info) = fit.finish();
                let share = facts.observed as f64 / objective.nodes;
                let constants = 0.5 - 0.5 * share * (2.0 * std::f64::consts::PI).ln();
                let summary = Summary {
                    converged: info.converged,
                    elbo_without_constants: Some(objective.per_node(info.elbo) - constants),
                    resumed_at: outcome.resumed_at,
                    ..Summary::new("elbo", steps, info.elbo, &objective)
                };
                (parameters, summary)
            }
        };
        write(world, config, header, &facts, &parameters, summary)
    }
}

/// Takes a fit to its end; one that was asked to stop is no result.
fn run_session<E: Rowwise, F: crate::train::Fit<E>>(
    engine: &mut E,
    mut fit: F,
    options: &session::Options,
) -> Result<(F, session::Outcome)> {
    let outcome = session::run(engine, &mut fit, options)?;
    engine.world().agree(interrupted(&outcome))?;
    Ok((fit, outcome))
}

fn marginal_options(config: &Config, nodes: usize) -> marginal::Options {
    marginal::Options {
        starts: config.marginal.starts.unwrap_or(if nodes > 50_000 { 1 } else { 2 }),
        iterations: config.train.iterations(),
        learning_rate: config.train.learning_rate(),
        probes: config.marginal.probes.unwrap_or(if config.model.layers == 1 { 15 } else { 7 }),
        tolerance: config.marginal.tolerance,
        gain: config.marginal.gain,
        seed: config.train.seed,
        ..marginal::Options::default()
    }
}

fn elbo_options(config: &Config) -> elbo::Options {
    elbo::Options {
        layers: config.variational.layers,
        samples: config.variational.samples,
        estimator: config.variational.estimator,
        adam: adam::Options {
            learning_rate: config.train.learning_rate(),
            decay: config.train.decay,
            iterations: config.train.iterations(),
            ..adam::Options::default()
        },
        converge: config.train.converge,
        seed: config.train.seed,
    }
}

/// A fit that was asked to stop is no result; the next call goes on with it.
fn interrupted(outcome: &session::Outcome) -> Result<()> {
    match outcome.interrupted {
        true => Err(Error::Numeric(
            "training was interrupted by a signal; its checkpoint is written, and the same command \
             goes on from there"
                .into(),
        )),
        false => Ok(()),
    }
}

/// How the spectrum is made for a fit: on small graphs more probes cost nothing, and the error of
/// the whole log-determinant should be small against what likelihoods tell apart (one).
fn logdet_options(config: &Config, nodes: usize) -> logdet::Options {
    let c = &config.logdet;
    let default = logdet::Options::default();
    logdet::Options {
        method: c.method,
        power_series: logdet::power_series::Options {
            probes: c.probes,
            terms: c.terms,
            ..default.power_series
        },
        lanczos: logdet::lanczos::Options {
            probes: c.probes,
            steps: c.steps,
            tolerance: 0.2 / nodes as f64,
            most_probes: if nodes <= 50_000 { 400 } else { 100 },
            ..default.lanczos
        },
        progress: true,
        ..default
    }
}

/// Rank 0 writes the model and then the summary, which makes the stage complete.
fn write(
    world: &World,
    config: &Config,
    header: &Header,
    facts: &Facts,
    parameters: &Parameters,
    mut summary: Summary,
) -> Result<Summary> {
    let dir = config.run_dir();
    let model = ModelFile {
        graph_hash: header.graph_hash.clone(),
        weighted: facts.weighted,
        features: config.model.features,
        model: parameters.model.clone(),
        sigma: parameters.sigma() * facts.standardise.scale,
        standardise: facts.standardise,
    };
    summary.ranks = world.size();
    summary.threads = facts.threads;
    (summary.nodes, summary.observed) = (header.nodes, facts.observed);
    summary.sigma = parameters.sigma() * facts.standardise.scale;
    summary.key.clone_from(&facts.key);
    summary.seconds = facts.start.elapsed().as_secs_f64();
    super::run::on_root(world, || {
        model.write(&dir.join("model.json"))?;
        let text = format!("{:#}\n", serde_json::json!(summary));
        storage::write_text_file(&dir.join("summary.json"), &text)
    })?;
    Ok(summary)
}

impl Summary {
    /// What a method has to say; the rest is filled in when it is written.
    fn new(method: &str, iterations: u64, value: f64, objective: &Objective) -> Self {
        Summary {
            method: method.into(),
            iterations,
            objective: value + objective.shift,
            objective_per_node: objective.per_node(value),
            ..Summary::default()
        }
    }

    /// The summary in a run directory, if there is one that can be read.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join("summary.json")).ok()?).ok()
    }

    fn print(&self, dir: &Path) {
        let mut objective = match self.objective_stderr {
            Some(stderr) => format!("{:.5} ± {stderr:.5} per node", self.objective_per_node),
            None => format!("{:.5} per node", self.objective_per_node),
        };
        if let Some(value) = self.elbo_without_constants {
            objective += &format!(", {value:.5} without constants (as in the paper)");
        }
        let name = if self.method == "elbo" { "ELBO" } else { "log p(y)" };
        let ended = if self.converged { "nothing left to gain" } else { "as many as allowed" };
        table::print_pairs(&[
            ("method", self.method.clone()),
            (
                "nodes",
                format!(
                    "{}, {} observed",
                    table::grouped(self.nodes),
                    table::grouped(self.observed)
                ),
            ),
            ("steps", format!("{}, {ended}", self.iterations)),
            (name, objective),
            ("sigma", format!("{:.5}", self.sigma)),
            ("seconds", format!("{:.2}", self.seconds)),
            ("model", dir.join("model.json").display().to_string()),
        ]);
    }
}
