//! Fitting by the marginal likelihood `log p(y | θ)`.
//!
//! The score comes from Fisher's identity with exact posterior samples ([`super::score`]); its
//! random signs are fixed, so this is the maximisation of a smooth function of `4L + 1` parameters.
//! Three phases: a few short ascents from different starts, of which the best by its evidence goes
//! on ([`super::start`]); Adam into the valley, with few signs and loose systems; and Newton's
//! method ([`super::newton`]) to its bottom. The fit ends when a Newton step, by second derivatives
//! made at that very place, promises less than what is statistically of no account.

mod descent;
mod state;

use super::adam::{self, Adam, Decay};
use super::evidence::{self, Evidence, evidence};
use super::fit::{Fit, Report};
use super::newton;
use super::score::{self, Score};
use super::start::{Start, start};
use super::{Parameters, Problem, Shape};
use crate::checkpoint::State;
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::model::LayerParameters;
use descent::{Anchor, Descent};

/// Settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Steps at most, of all kinds.
    pub iterations: u64,
    /// Starts that are tried.
    pub starts: u64,
    /// Steps of Adam from each of them; then Newton's method goes on with the best.
    pub adam_steps: u64,
    /// Step size of Adam.
    pub learning_rate: f64,
    /// Posterior deviations behind the score of Newton's method.
    pub probes: usize,
    /// Posterior deviations behind the score of Adam.
    pub few_probes: usize,
    /// Relative residual of conjugate gradients in Newton's method; ten times as much before.
    pub tolerance: f64,
    /// A Newton step that promises less gain of `log p(y)` than this, or than the noise of the
    /// score could as well, is not taken: the fit ends.
    pub gain: f64,
    /// Least gain per node, for graphs so large that `gain` is nothing.
    pub gain_per_node: f64,
    /// Newton's method.
    pub newton: newton::Options,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            iterations: 200,
            starts: 2,
            adam_steps: 30,
            learning_rate: 0.1,
            probes: 7,
            few_probes: 3,
            tolerance: 3e-4,
            gain: 0.1,
            gain_per_node: 1e-5,
            newton: newton::Options::default(),
            seed: 1,
        }
    }
}

/// What a fit ended with, besides the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// `log p(y | θ)` in standardised units.
    pub evidence: Evidence,
    /// Standard errors of the parameters from the curvature of the likelihood, in the order of
    /// [`Parameters`]; none where Newton's method was not reached.
    pub standard_errors: Option<Vec<f64>>,
    /// Whether it ended because there was nothing left to gain.
    pub converged: bool,
    /// Scores computed.
    pub evaluations: u64,
    /// Iterations of conjugate gradients in all.
    pub cg_iterations: u64,
}

/// A fit under way.
pub struct Marginal<E: Engine> {
    options: Options,
    shape: Shape,
    problem: Problem<E>,
    score: Score<E>,
    parameters: Parameters,
    adam: Adam,
    step: u64,
    /// The start at hand, and the best of those before it.
    start: u64,
    best: Option<Trial>,
    /// Steps of Adam done from this start.
    adam_done: u64,
    descent: Option<Descent>,
    /// The best of the places where second derivatives were made.
    anchor: Option<Anchor>,
    /// `log p(y)` along the way: what was gained since the anchor.
    objective: f64,
    converged: bool,
    /// Whether the surroundings cannot be explored any further.
    stuck: bool,
    evaluations: u64,
    cg_iterations: u64,
}

/// Where a trial has led to.
struct Trial {
    evidence: f64,
    vector: Vec<f64>,
}

impl<E: Engine> Marginal<E> {
    /// Ready to begin. All ranks call it.
    pub fn new(
        engine: &mut E,
        problem: Problem<E>,
        shape: &Shape,
        options: Options,
    ) -> Result<Self> {
        // One layer has one maximum, as far as we have seen.
        let starts = if shape.layers == 1 { 1 } else { options.starts.max(1) };
        let gain = options.gain.max(options.gain_per_node * problem.nodes() as f64);
        let options = Options { starts, gain, ..options };
        let parameters = begin(engine, shape, options.seed, 0);
        let score = new_score(engine, &problem, &parameters, options.few_probes, options.seed)?;
        Ok(Marginal {
            adam: Adam::new(parameters.len()),
            step: 0,
            start: 0,
            best: None,
            adam_done: 0,
            descent: None,
            anchor: None,
            objective: f64::NAN,
            converged: false,
            stuck: false,
            evaluations: 0,
            cg_iterations: 0,
            shape: *shape,
            options,
            problem,
            score,
            parameters,
        })
    }

    /// Ends the fit: what it has come to. All ranks call it.
    pub fn finish(mut self, engine: &mut E) -> Result<(Parameters, Info)> {
        let p = self.parameters.clone();
        self.evaluate(engine, &p, self.options.tolerance)?;
        let evidence = self.evidence(engine, &evidence::Options::default())?;
        let curvature = self.anchor.as_ref().map(|best| &best.curvature);
        let info = Info {
            evidence,
            standard_errors: curvature.map(|c| c.standard_errors(p.len())),
            converged: self.converged,
            evaluations: self.evaluations,
            cg_iterations: self.cg_iterations,
        };
        Ok((p, info))
    }

    fn evidence(&mut self, engine: &mut E, options: &evidence::Options) -> Result<Evidence> {
        let options = evidence::Options { seed: self.options.seed, ..options.clone() };
        evidence(engine, &self.problem, &mut self.score, &self.parameters, &options)
    }

    fn evaluate(&mut self, engine: &mut E, p: &Parameters, tolerance: f64) -> Result<usize> {
        let info = self.score.evaluate(engine, &self.problem, p, tolerance)?;
        self.evaluations += 1;
        self.cg_iterations += info.iterations as u64;
        let finite = self.score.gradient().iter().all(|g| g.is_finite());
        if !finite {
            return Err(Error::Numeric("the gradient of the likelihood is not finite".into()));
        }
        Ok(info.iterations)
    }

    fn vector(&self) -> Vec<f64> {
        let mut vector = vec![0.0; self.parameters.len()];
        self.parameters.read_into(&mut vector);
        vector
    }

    fn adam_step(&mut self, engine: &mut E) -> Result<usize> {
        let settings = adam::Options {
            learning_rate: self.options.learning_rate,
            decay: Decay::Cosine,
            iterations: self.options.adam_steps,
            beta2: 0.99,
            ..adam::Options::default()
        };
        let p = self.parameters.clone();
        let iterations = match self.evaluate(engine, &p, 10.0 * self.options.tolerance) {
            Ok(iterations) => iterations,
            Err(error) => {
                self.next_start(engine, Some(error))?;
                return Ok(0);
            }
        };
        let before = self.vector();
        let mut vector = before.clone();
        let mut gradient = self.score.gradient().to_vec();
        // A model that grows has its first layer fitted before the others join in.
        if which(self.start) == Start::Grown && 2 * self.adam_done < self.options.adam_steps {
            let others = LayerParameters::COUNT * (p.model.layers.len() - 1);
            gradient[..others].fill(0.0);
        }
        self.adam_done += 1;
        self.adam.update(&settings.step(self.adam_done), &gradient, &mut vector);
        self.objective += gain(&difference(&vector, &before), &gradient, &gradient);
        self.parameters.assign(&vector);
        if self.adam_done == self.options.adam_steps && self.options.starts > 1 {
            return Ok(iterations + self.end_trial(engine)?);
        }
        Ok(iterations)
    }

    /// Weighs a trial by its evidence; the next start, or the best of all, goes on.
    fn end_trial(&mut self, engine: &mut E) -> Result<usize> {
        let p = self.parameters.clone();
        let iterations = self.evaluate(engine, &p, 10.0 * self.options.tolerance)?;
        let evidence = self.evidence(engine, &ROUGH)?.value;
        if self.best.as_ref().is_none_or(|best| evidence > best.evidence) {
            self.best = Some(Trial { evidence, vector: self.vector() });
        }
        self.next_start(engine, None)?;
        Ok(iterations)
    }

    /// Goes on with the next start, or with the best of all. Where the systems of a start cannot be
    /// solved, that is its failure alone, unless there is no other.
    fn next_start(&mut self, engine: &mut E, failure: Option<Error>) -> Result<()> {
        self.start += 1;
        self.score.forget();
        if self.start < self.options.starts {
            self.parameters = begin(engine, &self.shape, self.options.seed, self.start);
            (self.adam, self.adam_done) = (Adam::new(self.parameters.len()), 0);
        } else if let Some(best) = self.best.take() {
            self.parameters.assign(&best.vector);
            (self.adam_done, self.objective) = (self.options.adam_steps, best.evidence);
        } else if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(())
    }
}

/// Parameters whose systems take more iterations of conjugate gradients are no place to be.
const MOST_ITERATIONS: usize = 5000;

/// An evidence that tells starts apart.
const ROUGH: evidence::Options = evidence::Options { probes: 4, tolerance: 1e-2, seed: 0 };
/// The starts in the order in which they are tried.
fn which(number: u64) -> Start {
    match number {
        0 => Start::Grown,
        1 => Start::Means,
        2 => Start::Plain,
        random => Start::Random(random),
    }
}

/// A start, of which only what the data determine will move.
fn begin<E: Engine>(engine: &E, shape: &Shape, seed: u64, number: u64) -> Parameters {
    Parameters { scales: false, ..start(engine, shape, seed, which(number)) }
}

/// What a step has gained: the trapezium rule for the gradients at both ends.
fn gain(step: &[f64], before: &[f64], after: &[f64]) -> f64 {
    let terms = step.iter().zip(before.iter().zip(after)).map(|(s, (a, b))| s * (a + b));
    -0.5 * terms.sum::<f64>()
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn new_score<E: Engine>(
    engine: &mut E,
    problem: &Problem<E>,
    p: &Parameters,
    probes: usize,
    seed: u64,
) -> Result<Score<E>> {
    let options =
        score::Options { probes, seed, max_iterations: MOST_ITERATIONS, ..Default::default() };
    Score::new(engine, problem, p, &options)
}

impl<E: Engine> Fit<E> for Marginal<E> {
    fn steps(&self) -> u64 {
        self.step
    }

    fn finished(&self) -> bool {
        self.converged || self.stuck || self.step >= self.options.iterations
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn step(&mut self, engine: &mut E) -> Result<Report> {
        if self.step == 0 {
            let p = self.parameters.clone();
            self.evaluate(engine, &p, 10.0 * self.options.tolerance)?;
            self.objective = self.evidence(engine, &ROUGH)?.value;
        }
        let objective = self.objective;
        let iterations = if self.adam_done < self.options.adam_steps {
            self.adam_step(engine)?
        } else {
            self.newton_step(engine)?
        };
        self.step += 1;
        Ok(Report { objective, cg_iterations: Some(iterations) })
    }

    fn save(&self, engine: &E) -> State {
        state::save(self, engine)
    }

    fn restore(&mut self, engine: &mut E, state: State) -> Result<()> {
        state::restore(self, engine, state)
    }
}
