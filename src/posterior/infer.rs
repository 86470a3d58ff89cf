//! Mean, samples and marginal variances of the posterior, batch by batch.

use super::batch::Batch;
use super::conditional::{self, Conditionals};
use super::{Choice, Features, Precision, Variance, exact};
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::likelihood::{Curvature, Observations};
use crate::memory;
use crate::model::layer::LogScale;
use crate::model::{Model, columns};
use crate::partition::{Overlap, OverlapExchange};
use crate::progress::Progress;
use crate::solver::{Refusal, cg};

/// What is given, in the units that the layers work in.
pub struct Problem<'a, E: Engine> {
    /// The layers.
    pub model: &'a Model,
    /// What the data add to the precision.
    pub curvature: Curvature,
    /// The data that the posterior is conditioned on.
    pub data: &'a Observations<E>,
    /// Features for a linear part of the mean.
    pub features: Option<Features>,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Posterior samples behind the variances, at least 2.
    pub samples: usize,
    /// How marginal variances are computed.
    pub variance: Variance,
    /// Whether samples are drawn even where no variance needs them (they go to `keep`).
    pub keep_samples: bool,
    /// Every sample follows from it.
    pub seed: u64,
    /// Columns solved for at once; when absent, what is fast and fits into memory.
    pub batch: Option<usize>,
    /// Preconditioner of conjugate gradients.
    pub preconditioner: Choice,
    /// Conjugate gradients.
    pub cg: cg::Options,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            samples: 100,
            variance: Variance::Rbmc,
            keep_samples: false,
            seed: 1,
            batch: None,
            preconditioner: Choice::Auto,
            cg: cg::Options { error: 1e-3, verify: true, ..cg::Options::default() },
        }
    }
}

/// The posterior of `u = x + F c` (without features: of `x`), owned rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// `E[u_i | y]`.
    pub mean: Vec<f64>,
    /// `Var[u_i | y]`.
    pub variance: Vec<f64>,
    /// Standard error of the variance; none where it is exact.
    pub variance_error: Option<Vec<f64>>,
    /// `E[c | y]`.
    pub coefficients: Vec<f64>,
    /// How it was computed.
    pub info: Info,
}

/// How an estimate was computed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Info {
    /// The method behind the variances: another than was asked for where that did not fit.
    pub variance: Variance,
    /// Samples drawn.
    pub samples: usize,
    /// The preconditioner that was used in the end.
    pub preconditioner: &'static str,
    /// Why it was not blocks, where they were wanted.
    pub refusal: Option<Refusal>,
    /// Columns solved for at once.
    pub batch: usize,
    /// Iterations of the slowest column.
    pub iterations: usize,
    /// Products of `Q̃` with single columns.
    pub column_products: usize,
    /// Largest relative residual.
    pub residual: f64,
    /// Largest bound on the error of a column, in posterior standard deviations.
    pub error: Option<f64>,
}

/// Takes samples as they are drawn: the number of the first, how many, and the owned rows
/// `[owned, count]`, row-major.
pub type Keep<'k> = &'k mut dyn FnMut(usize, usize, &[f64]) -> Result<()>;

/// Entries of `G` that a rank keeps for Rao–Blackwellisation at most (1.2 GB).
const LIMIT: usize = 100_000_000;

/// Computes the posterior. All ranks call it.
pub fn infer<E: Engine>(
    engine: &mut E,
    problem: &Problem<E>,
    options: &Options,
    mut keep: Option<Keep>,
) -> Result<Estimate> {
    let world = engine.world().clone();
    let checked = check(options).and_then(|()| problem.curvature.check());
    world.agree(checked.and_then(|()| check_scales(engine, problem.model)))?;
    let mut precision = Precision::new(engine, problem.model.layers.len());
    precision.prepare(engine, problem.model, &problem.curvature);

    let mut conditionals = match options.variance {
        Variance::Rbmc => conditionals(engine, &precision),
        _ => None,
    };
    let variance = match (options.variance, &conditionals) {
        (Variance::Rbmc, None) => Variance::Mc,
        (asked, _) => asked,
    };
    let count = problem.features.as_ref().map_or(0, |f| f.count);
    let samples =
        if variance == Variance::Exact && !options.keep_samples { 0 } else { options.samples };
    let fixed = 1 + count; // the mean, and a column for each feature
    let total = fixed + samples;
    let batch = memory::batch(engine, options.batch, total)?.max(fixed);

    let first_samples = (batch - fixed).min(samples);
    let mut solver =
        Batch::new(engine, &precision, problem, options, batch.min(total), first_samples);
    let mut sums = vec![0.0; engine.part().owned];
    let mut estimate = Estimate {
        mean: Vec::new(),
        variance: Vec::new(),
        variance_error: None,
        coefficients: Vec::new(),
        info: Info { variance, samples, batch, ..Info::default() },
    };
    let mut progress = world.is_root().then(|| Progress::new("posterior", total as u64));
    let mut drawn = 0;
    let mut ghosts = Vec::new(); // right-hand sides of the rings
    while drawn < samples || estimate.mean.is_empty() {
        let first = estimate.mean.is_empty();
        let ahead = if first { fixed } else { 0 };
        let here = (batch - ahead).min(samples - drawn);
        let width = ahead + here;
        let data = &problem.data.fields;
        let (solved, u, b) = solver.solve(engine, &mut precision, data, first, drawn, here)?;
        estimate.info.add(&solved);
        if first {
            estimate.mean = u.iter().step_by(width).copied().collect();
            estimate.coefficients = solver.coefficients();
        }
        let (u, b) = (without(&u, width, ahead), without(&b, width, ahead));
        match &mut conditionals {
            _ if here == 0 => {}
            Some((exchange, conditionals)) => {
                ghosts.resize(exchange.ghosts() * here, 0.0);
                exchange.fetch(&b, here, &mut ghosts);
                conditionals.add_squares(&u, &b, &ghosts, here, &mut sums);
            }
            None => {
                for (sum, u) in sums.iter_mut().zip(u.chunks_exact(here)) {
                    *sum += u.iter().map(|u| u * u).sum::<f64>();
                }
            }
        }
        if let Some(keep) = &mut keep
            && here > 0
        {
            let mut field = u;
            for (row, mean) in field.chunks_exact_mut(here).zip(&estimate.mean) {
                row.iter_mut().for_each(|u| *u += mean);
            }
            world.agree(keep(drawn, here, &field))?;
        }
        drawn += here;
        if let Some(progress) = &mut progress {
            progress.advance(width as u64);
        }
    }

    (estimate.info.preconditioner, estimate.info.refusal) = (solver.name, solver.refusal);
    if variance == Variance::Exact {
        estimate.variance = exact::variances(engine, &precision)?;
        solver.add_variance(engine, &mut estimate.variance);
        return Ok(estimate);
    }
    // The variance of a mean of squares of Gaussians around a known mean is 2 v² / K.
    let share = 1.0 / samples as f64;
    let error = |sum: &f64| sum * share * (2.0 * share).sqrt();
    estimate.variance_error = Some(sums.iter().map(error).collect());
    let known = conditionals.map(|(_, conditionals)| conditionals.variance);
    let known = known.unwrap_or_else(|| vec![0.0; sums.len()]);
    estimate.variance = sums.iter().zip(known).map(|(sum, known)| known + sum * share).collect();
    Ok(estimate)
}

fn check(options: &Options) -> Result<()> {
    if options.samples < 2 && options.variance != Variance::Exact {
        return Err(Error::Setting("variances from samples need at least 2 of them".into()));
    }
    Ok(())
}

/// The diagonal of `GᵀG` is about `Π_l s_i²`: where that leaves double precision, nothing holds (or
/// everything pins) a node without data, and iterations on the others would not notice.
fn check_scales<E: Engine>(engine: &E, model: &Model) -> Result<()> {
    let scale = LogScale::of_all(&model.all_coefficients());
    let logarithm = |&d: &f64| 2.0 * scale.at(d);
    let part = engine.part();
    let within = |log: f64| log.abs() < 300.0 * std::f64::consts::LN_10;
    match part.degree[..part.owned].iter().map(logarithm).find(|&log| !within(log)) {
        None => Ok(()),
        Some(log) => Err(Error::Numeric(format!(
            "the posterior precision is not positive definite in double precision: the scales of the \
             layers multiply to 10^{:.0}",
            log / std::f64::consts::LN_10
        ))),
    }
}

/// What Rao–Blackwellisation needs, or nothing on graphs where `G` has too many entries.
fn conditionals<E: Engine>(
    engine: &E,
    precision: &Precision<E>,
) -> Option<(OverlapExchange, Conditionals)> {
    let (world, layers) = (engine.world(), precision.coefficients());
    let depth = conditional::RADIUS + layers.len() - 1;
    let overlap = Overlap::collect(world, engine.part(), depth, conditional::RADIUS);
    let rows = overlap.rings[conditional::RADIUS];
    let columns = columns::columns_of(&overlap, layers, rows, LIMIT);
    let missing = world.any(columns.is_err());
    let columns = columns.ok().filter(|_| !missing)?;
    let weight = precision.weight_within(engine, &overlap);
    let conditionals = Conditionals::new(&overlap, &columns, &weight);
    Some((OverlapExchange::new(world, &overlap), conditionals))
}

/// Columns `skip..` of row-major values.
fn without(values: &[f64], width: usize, skip: usize) -> Vec<f64> {
    values.chunks_exact(width).flat_map(|row| &row[skip..]).copied().collect()
}

impl Info {
    fn add(&mut self, solved: &cg::Info) {
        self.iterations = self.iterations.max(solved.iterations);
        self.column_products += solved.column_products;
        for column in &solved.columns {
            self.residual = self.residual.max(column.residual);
            let errors = [self.error, column.error];
            self.error = errors.into_iter().flatten().reduce(f64::max);
        }
    }
}
