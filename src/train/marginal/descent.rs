//! The second phase: Newton's method with second derivatives that follow along, checked by
//! evidence.

use super::{Marginal, difference, gain, new_score};
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::train::evidence;
use crate::train::newton::{Quadratic, Step};

/// A place of known evidence.
#[derive(Clone)]
pub(super) struct Anchor {
    pub evidence: f64,
    pub vector: Vec<f64>,
    pub curvature: Quadratic,
}

/// Newton's method under way.
pub(super) struct Descent {
    /// Gradient and second derivatives at the parameters.
    pub gradient: Vec<f64>,
    pub curvature: Quadratic,
    /// Whether the second derivatives were made here, and not followed along the last steps.
    pub fresh: bool,
    /// What a step may promise because of the choice of signs alone.
    pub noise: f64,
    pub radius: f64,
    /// Steps that were refused one after the other.
    pub refused: u32,
}

impl<E: Engine> Marginal<E> {
    /// Second derivatives by differences of gradients, around `base` with gradient `gradient`.
    fn curvature(
        &mut self,
        engine: &mut E,
        gradient: &[f64],
        iterations: &mut usize,
    ) -> Result<Quadratic> {
        let h = self.options.newton.difference;
        let base = self.vector();
        let free = self.parameters.free();
        let n = free.len();
        let mut second = vec![0.0; n * n];
        let mut trial = self.parameters.clone();
        for (row, &a) in second.chunks_exact_mut(n).zip(&free) {
            let mut vector = base.clone();
            vector[a] += h;
            trial.assign(&vector);
            *iterations += self.evaluate(engine, &trial, self.options.tolerance)?;
            let found = self.score.gradient();
            row.iter_mut().zip(&free).for_each(|(d, &b)| *d = (found[b] - gradient[b]) / h);
        }
        Quadratic::new(&free, &second)
            .ok_or_else(|| Error::Numeric("the curvature of the likelihood is not finite".into()))
    }

    /// Second derivatives, noise and evidence of this very place. Whether that has risen: the
    /// evidence has probes of its own, so what the fit has won from the chance of its signs is lost
    /// there.
    fn refresh(
        &mut self,
        engine: &mut E,
        now: &mut Descent,
        iterations: &mut usize,
    ) -> Result<bool> {
        let p = self.parameters.clone();
        *iterations += self.evaluate(engine, &p, self.options.tolerance)?;
        now.gradient = self.score.gradient().to_vec();
        let noise = self.score.noise(engine, &self.problem, &p);
        let evidence = self.evidence(engine, &CHECK)?.value;
        now.curvature = self.curvature(engine, &now.gradient, iterations)?;
        let newton = &self.options.newton;
        (now.fresh, now.noise) =
            (true, now.curvature.step(&noise, newton.radius, newton, true).gain);
        self.objective = evidence;
        let before = self.anchor.as_ref().map_or(f64::NEG_INFINITY, |best| best.evidence);
        if evidence > before {
            let (vector, curvature) = (self.vector(), now.curvature.clone());
            self.anchor = Some(Anchor { evidence, vector, curvature });
        }
        Ok(evidence > before + self.options.gain)
    }

    fn begin_descent(&mut self, engine: &mut E) -> Result<(Descent, usize)> {
        let (p, o) = (self.parameters.clone(), &self.options);
        self.score = new_score(engine, &self.problem, &p, o.probes, o.seed)?;
        let none = Quadratic::new(&[0], &[1.0]).expect("finite");
        let mut now = Descent {
            gradient: Vec::new(),
            curvature: none,
            fresh: false,
            noise: 0.0,
            radius: o.newton.radius,
            refused: 0,
        };
        let mut iterations = 0;
        self.refresh(engine, &mut now, &mut iterations)?;
        Ok((now, iterations))
    }

    /// Whether a step of the usual length, however short the last ones had to be, could gain more
    /// than is of no account.
    fn promising(&self, now: &Descent) -> bool {
        let o = &self.options;
        let proposed = now.curvature.step(&now.gradient, o.newton.radius, &o.newton, !now.fresh);
        proposed.gain >= o.gain.max(now.noise)
    }

    /// A step; or, where the surroundings cannot be explored, the end at the best place so far.
    pub(super) fn newton_step(&mut self, engine: &mut E) -> Result<usize> {
        match self.try_newton_step(engine) {
            Err(_) if self.anchor.is_some() => {
                self.stuck = true;
                self.take_best();
                Ok(0)
            }
            result => result,
        }
    }

    fn try_newton_step(&mut self, engine: &mut E) -> Result<usize> {
        let options = self.options.newton;
        let (mut now, mut iterations) = match self.descent.take() {
            Some(descent) => (descent, 0),
            None => self.begin_descent(engine)?,
        };
        for _ in 0..REJECTIONS {
            if !self.promising(&now) {
                // Nothing left, it seems: second derivatives made at this very place decide.
                let best = now.fresh || self.refresh(engine, &mut now, &mut iterations)?;
                if !best || !self.promising(&now) {
                    self.end(now);
                    return Ok(iterations);
                }
            }
            let proposed = now.curvature.step(&now.gradient, now.radius, &options, !now.fresh);
            match self.try_step(engine, &mut now, &proposed, &mut iterations)? {
                Tried::Taken => {
                    self.descent = Some(now);
                    return Ok(iterations);
                }
                Tried::Refused => {}
                Tried::NothingLeft => break,
            }
        }
        // No step helps: within the accuracy of the gradient this is the bottom.
        self.end(now);
        Ok(iterations)
    }

    /// The fit ends at the best place of known evidence.
    fn end(&mut self, now: Descent) {
        self.converged = true;
        self.descent = Some(now);
        self.take_best();
    }

    fn take_best(&mut self) {
        if let Some(best) = &self.anchor {
            self.parameters.assign(&best.vector);
        }
    }

    /// Tries a step. What it has shown of curvature and radius is kept, taken or not.
    fn try_step(
        &mut self,
        engine: &mut E,
        now: &mut Descent,
        proposed: &Step,
        iterations: &mut usize,
    ) -> Result<Tried> {
        let length = proposed.step.iter().map(|s| s * s).sum::<f64>().sqrt();
        let base = self.vector();
        let vector: Vec<f64> = base.iter().zip(&proposed.step).map(|(a, b)| a + b).collect();
        let mut trial = self.parameters.clone();
        trial.assign(&vector);
        // A place where the systems cannot be solved is a bad one, no more.
        match self.evaluate(engine, &trial, self.options.tolerance) {
            Ok(more) => *iterations += more,
            Err(_) => {
                self.score.forget();
                now.radius = 0.25 * length;
                return Ok(Tried::Refused);
            }
        }
        let found = self.score.gradient().to_vec();
        let gained = gain(&proposed.step, &now.gradient, &found);
        let ratio = gained / proposed.gain;
        now.curvature.update(&proposed.step, &difference(&found, &now.gradient));
        if ratio > 0.75 && ratio < 1.5 && proposed.cut {
            now.radius = (1.5 * now.radius).min(4.0 * self.options.newton.radius);
        } else if ratio < 0.25 {
            now.radius = 0.5 * length;
        }
        if ratio > 0.05 {
            (now.gradient, now.fresh, now.refused) = (found, false, 0);
            self.parameters = trial;
            self.objective += gained;
            return Ok(Tried::Taken);
        }
        now.refused += 1;
        // What the step has shown may be enough for a better one; not twice.
        let again = !now.fresh && now.refused > 1;
        let left = !again || self.refresh(engine, now, iterations)?;
        Ok(if left { Tried::Refused } else { Tried::NothingLeft })
    }
}

/// What became of a step that was tried.
enum Tried {
    /// The fit stands where the step led.
    Taken,
    /// The fit stands where it was; a better step may be found.
    Refused,
    /// The fit stands where it was, and second derivatives made there show no evidence gained.
    NothingLeft,
}

/// Steps that are tried before giving up.
const REJECTIONS: usize = 8;

/// An evidence that tells places of one fit apart: its probes are always the same.
const CHECK: evidence::Options = evidence::Options { probes: 8, tolerance: 3e-3, seed: 0 };
