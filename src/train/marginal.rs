//! Fitting by the marginal likelihood `log p(y | θ)` (DESIGN: "the fast road").
//!
//! The score comes from Fisher's identity with exact posterior samples ([`super::score`]); its
//! random signs are fixed, so this is the maximisation of a smooth function of `4L + 1` parameters:
//! a few dozen steps of Adam lead into the valley, Newton's method ([`super::newton`]) to its bottom.
//! It ends when a Newton step promises less than what is statistically of no account.

use super::adam::{self, Adam, Decay};
use super::evidence::{self, Evidence, evidence};
use super::fit::{Fit, Report};
use super::newton::{self, Quadratic};
use super::score::{self, Score};
use super::{Parameters, Problem, Shape, start};
use crate::checkpoint::State;
use crate::error::{Error, Result};
use crate::field::rowwise::Rowwise;

/// Settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Steps at most, of both kinds.
    pub iterations: u64,
    /// Steps of Adam before Newton's method; never more than half of all.
    pub adam_steps: u64,
    /// Step size of Adam.
    pub learning_rate: f64,
    /// Posterior deviations behind the score.
    pub probes: usize,
    /// Relative residual of conjugate gradients at the end; ten times as much at first.
    pub tolerance: f64,
    /// A Newton step that promises less gain of `log p(y)` than this is the last.
    pub gain: f64,
    /// Newton's method.
    pub newton: newton::Options,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            iterations: 100,
            adam_steps: 40,
            learning_rate: 0.1,
            probes: 15,
            tolerance: 3e-4,
            gain: 0.1,
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
pub struct Marginal<E: Rowwise> {
    options: Options,
    problem: Problem<E>,
    score: Score<E>,
    parameters: Parameters,
    adam: Adam,
    step: u64,
    /// Steps of Adam done; it may end early.
    adam_done: u64,
    rate: f64,
    /// Gradient at the parameters, once Newton's method has begun.
    gradient: Option<Vec<f64>>,
    curvature: Option<Quadratic>,
    radius: f64,
    /// `log p(y)` along the way: what was gained since the anchor.
    objective: f64,
    converged: bool,
    evaluations: u64,
    cg_iterations: u64,
}

impl<E: Rowwise> Marginal<E> {
    /// Ready to begin. All ranks call it.
    pub fn new(
        engine: &mut E,
        problem: Problem<E>,
        shape: &Shape,
        options: Options,
    ) -> Result<Self> {
        let parameters = start(engine, shape, options.seed, 0);
        let of_score =
            score::Options { probes: options.probes, seed: options.seed, ..Default::default() };
        let score = Score::new(engine, &problem, &parameters, &of_score)?;
        Ok(Marginal {
            adam: Adam::new(parameters.len()),
            step: 0,
            adam_done: 0,
            rate: options.learning_rate,
            gradient: None,
            curvature: None,
            radius: options.newton.radius,
            objective: f64::NAN,
            converged: false,
            evaluations: 0,
            cg_iterations: 0,
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
        let evidence = self.evidence(engine)?;
        let info = Info {
            evidence,
            standard_errors: self.curvature.as_ref().map(|c| c.standard_errors(p.len())),
            converged: self.converged,
            evaluations: self.evaluations,
            cg_iterations: self.cg_iterations,
        };
        Ok((p, info))
    }

    fn evidence(&mut self, engine: &mut E) -> Result<Evidence> {
        let options = evidence::Options { seed: self.options.seed, ..Default::default() };
        evidence(engine, &self.problem, &mut self.score, &self.parameters, &options)
    }

    fn evaluate(&mut self, engine: &mut E, p: &Parameters, tolerance: f64) -> Result<usize> {
        let info = self.score.evaluate(engine, &self.problem, p, tolerance)?;
        self.evaluations += 1;
        self.cg_iterations += info.iterations as u64;
        let finite = self.score.gradient().iter().all(|g| g.is_finite());
        match finite {
            true => Ok(info.iterations),
            false => Err(Error::Numeric("the gradient of the likelihood is not finite".into())),
        }
    }

    fn adam_steps(&self) -> u64 {
        self.options.adam_steps.min(self.options.iterations.div_ceil(2))
    }

    fn adam_step(&mut self, engine: &mut E) -> Result<usize> {
        let settings = adam::Options {
            learning_rate: self.rate,
            decay: Decay::Cosine,
            iterations: self.adam_steps(),
            beta2: 0.99,
            ..adam::Options::default()
        };
        let p = self.parameters.clone();
        let iterations = self.evaluate(engine, &p, 10.0 * self.options.tolerance)?;
        let mut vector = vec![0.0; p.len()];
        p.read_into(&mut vector);
        let before = vector.clone();
        let gradient = self.score.gradient().to_vec();
        self.adam_done += 1;
        self.adam.update(&settings.step(self.adam_done), &gradient, &mut vector);
        // The trapezium rule needs the next gradient; until then half of it is this one.
        let moved: f64 =
            vector.iter().zip(&before).zip(&gradient).map(|((a, b), g)| (a - b) * g).sum();
        self.objective -= moved;
        self.parameters.assign(&vector);
        Ok(iterations)
    }

    fn newton_step(&mut self, engine: &mut E) -> Result<usize> {
        let tolerance = self.options.tolerance;
        let o = self.options.newton;
        let p = self.parameters.clone();
        let mut iterations = 0;
        let gradient = match self.gradient.take() {
            Some(gradient) => gradient,
            None => {
                iterations += self.evaluate(engine, &p, tolerance)?;
                self.score.gradient().to_vec()
            }
        };
        let mut base = vec![0.0; p.len()];
        p.read_into(&mut base);
        let free = p.free();
        let n = free.len();
        let mut second = vec![0.0; n * n];
        let mut trial = p.clone();
        for (row, &a) in second.chunks_exact_mut(n).zip(&free) {
            let mut vector = base.clone();
            vector[a] += o.difference;
            trial.assign(&vector);
            iterations += self.evaluate(engine, &trial, tolerance)?;
            let found = self.score.gradient();
            row.iter_mut()
                .zip(&free)
                .for_each(|(h, &b)| *h = (found[b] - gradient[b]) / o.difference);
        }
        let Some(quadratic) = Quadratic::new(&free, &second) else {
            return Err(Error::Numeric("the curvature of the likelihood is not finite".into()));
        };
        for _ in 0..REJECTIONS {
            let proposed = quadratic.step(&gradient, self.radius, &o);
            let vector: Vec<f64> = base.iter().zip(&proposed.step).map(|(a, b)| a + b).collect();
            trial.assign(&vector);
            let length = proposed.step.iter().map(|s| s * s).sum::<f64>().sqrt();
            // A trial point where the systems cannot be solved is a bad one, no more.
            let tried = self.evaluate(engine, &trial, tolerance);
            if let Ok(more) = tried {
                iterations += more;
                let found = self.score.gradient();
                let gained: f64 = -0.5
                    * proposed
                        .step
                        .iter()
                        .zip(gradient.iter().zip(found))
                        .map(|(s, (a, b))| s * (a + b))
                        .sum::<f64>();
                if gained > -0.2 * self.options.gain {
                    let ratio = gained / proposed.gain.max(f64::MIN_POSITIVE);
                    if ratio > 0.75 && proposed.cut {
                        self.radius = (2.0 * self.radius).min(4.0 * o.radius);
                    } else if ratio < 0.25 {
                        self.radius = 0.5 * length;
                    }
                    self.gradient = Some(found.to_vec());
                    self.parameters = trial;
                    self.objective += gained;
                    self.converged = proposed.gain < self.options.gain;
                    self.curvature = Some(quadratic);
                    return Ok(iterations);
                }
            } else {
                self.score.forget();
            }
            self.radius = 0.25 * length;
        }
        // No step helps: within the accuracy of the gradient this is the bottom.
        self.converged = true;
        self.gradient = Some(gradient);
        self.curvature = Some(quadratic);
        Ok(iterations)
    }
}

/// Shorter and shorter steps that are tried before giving up.
const REJECTIONS: usize = 6;

impl<E: Rowwise> Fit<E> for Marginal<E> {
    fn steps(&self) -> u64 {
        self.step
    }

    fn finished(&self) -> bool {
        self.converged || self.step >= self.options.iterations
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn step(&mut self, engine: &mut E) -> Result<Report> {
        if self.step == 0 {
            let p = self.parameters.clone();
            self.evaluate(engine, &p, 10.0 * self.options.tolerance)?;
            self.objective = self.evidence(engine)?.value;
        }
        let objective = self.objective;
        let iterations = match self.adam_done < self.adam_steps() {
            true => self.adam_step(engine)?,
            false => self.newton_step(engine)?,
        };
        self.step += 1;
        Ok(Report { objective, cg_iterations: Some(iterations) })
    }

    fn save(&self, engine: &E) -> State {
        let mut vector = vec![0.0; self.parameters.len()];
        self.parameters.read_into(&mut vector);
        let counts = [self.adam_done, self.evaluations, self.cg_iterations].map(|n| n as f64);
        let flags = [f64::from(u8::from(self.converged))];
        let mut numbers = std::collections::BTreeMap::from([
            ("theta".to_owned(), vector),
            ("adam.first".into(), self.adam.first.clone()),
            ("adam.second".into(), self.adam.second.clone()),
            (
                "progress".into(),
                [&counts[..], &flags, &[self.rate, self.radius, self.objective]].concat(),
            ),
            ("gradient".into(), self.gradient.clone().unwrap_or_default()),
        ]);
        if let Some(curvature) = &self.curvature {
            numbers.insert("curvature".into(), curvature.to_numbers());
        }
        let (columns, values) = self.score.solutions(engine);
        let fields = (0..columns).map(|c| {
            (format!("x{c:04}"), values.iter().skip(c).step_by(columns).copied().collect())
        });
        State { step: self.step, numbers, fields: fields.collect() }
    }

    fn restore(&mut self, engine: &mut E, state: State) -> Result<()> {
        let damaged = || Error::Data("the checkpoint does not fit this fit".into());
        let get = |name: &str| state.numbers.get(name).cloned().ok_or_else(damaged);
        let theta = get("theta")?;
        let progress = get("progress")?;
        let (first, second, gradient) = (get("adam.first")?, get("adam.second")?, get("gradient")?);
        let length = self.parameters.len();
        if [&theta, &first, &second].iter().any(|v| v.len() != length) || progress.len() != 7 {
            return Err(damaged());
        }
        self.step = state.step;
        self.parameters.assign(&theta);
        self.adam = Adam { first, second };
        [self.adam_done, self.evaluations, self.cg_iterations] =
            [progress[0] as u64, progress[1] as u64, progress[2] as u64];
        self.converged = progress[3] == 1.0;
        (self.rate, self.radius, self.objective) = (progress[4], progress[5], progress[6]);
        self.gradient = Some(gradient).filter(|g| g.len() == length);
        self.curvature = state.numbers.get("curvature").and_then(|n| Quadratic::from_numbers(n));
        let columns: Vec<&Vec<f64>> = state.fields.values().collect();
        let rows = engine.part().owned;
        let values: Vec<f64> =
            (0..rows).flat_map(|i| columns.iter().map(move |column| column[i])).collect();
        self.score.set_solutions(engine, &values)
    }
}
