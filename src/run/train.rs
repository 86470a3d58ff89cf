//! The stage that fits: from the data and the settings to `model.json` and `summary.json`.

use super::engine::{Work, with_precision};
use super::values::{self, Values};
use super::{RunDir, Summary, settings};
use crate::comm::World;
use crate::config::{Config, Method, Precision};
use crate::dataset::{DatasetFile, Header};
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::likelihood::Observations;
use crate::logdet;
use crate::model::{ModelFile, Standardise};
use crate::partition;
use crate::storage::ArrayHasher;
use crate::train::session::{self, Resume};
use crate::train::{Fit, Parameters, Problem, elbo::Elbo, marginal::Marginal};
use std::rc::Rc;
use std::time::Instant;

/// Hash of all that a fit depends on: equal keys, equal results.
pub fn key(config: &Config, header: &Header) -> Result<String> {
    let mut hasher = ArrayHasher::new("dgmrf fit 1");
    hasher.array("data", header.hash.as_bytes());
    for (name, value) in config.fingerprint()? {
        hasher.array(&name, value.as_bytes());
    }
    hasher.array("iterations", &[config.train.iterations()]);
    Ok(hasher.finish())
}

/// Fits the model of a config to its data and writes the results into the run directory, the
/// summary last: it makes the stage complete. All ranks call it.
pub fn train(
    world: &Rc<World>,
    config: &Config,
    data: &DatasetFile,
    resume: &Resume,
) -> Result<Summary> {
    let start = Instant::now();
    let mut part = partition::load_or_make(world, data, None, &Default::default())?.part;
    let weighted = world.agree(weighted(config, part.weights.is_some()))?;
    if !weighted {
        part = part.without_weights();
    }
    let units = (!config.train.standardise).then(Standardise::default);
    let ids = part.owned_ids().to_vec();
    let values = values::read(world, data, &ids, config.model.features, units)?;
    let (standardise, observed) = (values.standardise, values.observed_count);
    let precision = match config.train.method {
        Method::Marginal => Precision::Double,
        Method::Elbo => config.train.precision,
    };
    let job = Job { world, config, data, resume, weighted, values };
    let (run, header) = (&config.run, data.header());
    let key = world.agree(key(config, header))?;
    let fitted = with_precision(world, part, run.engine, run.device, precision, job)?;
    let sigma = fitted.parameters.sigma() * standardise.scale;
    let model = ModelFile {
        graph_hash: header.graph_hash.clone(),
        weighted,
        features: config.model.features,
        model: fitted.parameters.model,
        sigma,
        standardise,
    };
    let summary = Summary {
        ranks: world.size(),
        threads: rayon::current_num_threads(),
        nodes: header.nodes,
        observed,
        sigma,
        key,
        seconds: start.elapsed().as_secs_f64(),
        ..fitted.summary
    };
    let dir = RunDir::new(config.run_dir());
    world.on_root(|| {
        model.write(&dir.model())?;
        summary.write(&dir.summary())
    })?;
    Ok(summary)
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

/// The fit itself, on whatever engine.
struct Job<'a> {
    world: &'a World,
    config: &'a Config,
    data: &'a DatasetFile,
    resume: &'a Resume,
    weighted: bool,
    values: Values,
}

/// What a fit has come to, in standardised units, and what its method has to say.
struct Fitted {
    parameters: Parameters,
    summary: Summary,
}

impl Work for Job<'_> {
    type Output = Fitted;

    fn on<E: Engine>(self, mut engine: E) -> Result<Fitted> {
        let Job { world, config, data, resume, weighted, values } = self;
        let header = data.header();
        let options = settings::logdet(config, header.nodes);
        let compute = |options: &logdet::Options| logdet::compute(&mut engine, options);
        let spectrum = logdet::load_or_make(world, data, weighted, &options, compute)?.spectrum;
        let Values { y, observed, features, observed_count, standardise } = values;
        let session = settings::session(config, header, observed_count, &standardise, resume)?;
        let data = Observations::new(&engine, &y, &observed)?;
        let problem = world.agree(Problem::new(data, features, spectrum))?;
        match config.train.method {
            Method::Marginal => by_marginal(&mut engine, config, problem, &standardise, &session),
            Method::Elbo => {
                let share = observed_count as f64 / header.nodes as f64;
                by_elbo(&mut engine, config, problem, &standardise, &session, share)
            }
        }
    }
}

fn by_marginal<E: Engine>(
    engine: &mut E,
    config: &Config,
    problem: Problem<E>,
    standardise: &Standardise,
    session: &session::Options,
) -> Result<Fitted> {
    let shape = settings::shape(config, standardise);
    let options = settings::marginal(config, problem.nodes());
    let mut fit = Marginal::new(engine, problem, &shape, options)?;
    let outcome = session::run(engine, &mut fit, session)?;
    let (steps, objective) = (Fit::<E>::steps(&fit), &session.objective);
    let (parameters, info) = fit.finish(engine)?;
    let summary = Summary {
        objective_stderr: Some(info.evidence.stderr / objective.nodes),
        converged: info.converged,
        standard_errors: info.standard_errors,
        evaluations: Some(info.evaluations),
        cg_iterations: Some(info.cg_iterations),
        resumed_at: outcome.resumed_at,
        ..Summary::new(config.train.method.name(), steps, info.evidence.value, objective)
    };
    Ok(Fitted { parameters, summary })
}

/// A fit where the share `M/N` of the nodes is observed.
fn by_elbo<E: Engine>(
    engine: &mut E,
    config: &Config,
    problem: Problem<E>,
    standardise: &Standardise,
    session: &session::Options,
    share: f64,
) -> Result<Fitted> {
    let shape = settings::shape(config, standardise);
    let mut fit = Elbo::new(engine, problem, &shape, settings::elbo(config))?;
    let outcome = session::run(engine, &mut fit, session)?;
    let (steps, objective) = (Fit::<E>::steps(&fit), &session.objective);
    let (parameters, info) = fit.finish();
    let constants = 0.5 - 0.5 * share * (2.0 * std::f64::consts::PI).ln();
    let summary = Summary {
        converged: info.converged,
        elbo_without_constants: Some(objective.per_node(info.elbo) - constants),
        resumed_at: outcome.resumed_at,
        ..Summary::new(config.train.method.name(), steps, info.elbo, objective)
    };
    Ok(Fitted { parameters, summary })
}
