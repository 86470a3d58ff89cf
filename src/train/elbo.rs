//! Fitting by the evidence lower bound, as in the paper (Eq. 7):
//!
//! ```text
//! E_q[log p(y, x | θ)] + H[q],   H[q] = Σ log ξ + Σ log τ + log|det G̃| + ½ N (1 + log 2π)
//! ```
//!
//! Two estimators of the expectation: the paper's Gaussian samples, and one that takes the mean of
//! `q` exactly and random signs for the deviations, `E‖g(x)‖² = ‖g(ν)‖² + E‖G S r‖²`, with the
//! variance of the observed nodes in closed form for one layer in `G̃`. Both are unbiased, the
//! second has far less noise. Gradients are analytic; a step makes one reduction.

use super::adam::{self, Adam};
use super::fit::{Fit, Report};
use super::joint::{self, Columns, Joint, layer_gradient};
use super::linear::Linear;
use super::node_fields::Moving;
use super::smooth::Smooth;
use super::start::{Start, start};
use super::variational::Variational;
use super::{Parameters, Problem, Shape};
use crate::checkpoint::State;
use crate::error::{Error, Result};
use crate::field::{Draw, Engine};
use crate::model::LayerParameters;
use crate::random::{Purpose, Stream};
use std::f64::consts::PI;

words! {
    /// How expectations under `q` are estimated.
    pub enum Estimator {
        /// Mean part exact, random signs for the rest: far less noise.
        #[default]
        Rademacher = "rademacher",
        /// Gaussian samples, as in the paper.
        Gaussian = "gaussian",
    }
}

/// Settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Layers in `G̃`: 0 (mean field), 1 or 2.
    pub layers: usize,
    /// Samples or probes in a step.
    pub samples: usize,
    /// The estimator.
    pub estimator: Estimator,
    /// Step size and number of steps.
    pub adam: adam::Options,
    /// The fit ends when the smoothed ELBO has gained less than this per node over 1000 steps; 0:
    /// never before its last step.
    pub converge: f64,
    /// Every random number follows from it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            layers: 1,
            samples: 10,
            estimator: Estimator::Rademacher,
            adam: adam::Options::default(),
            converge: 0.0,
            seed: 1,
        }
    }
}

/// A fit under way.
pub struct Elbo<E: Engine> {
    options: Options,
    problem: Problem<E>,
    parameters: Parameters,
    q: Variational<E>,
    linear: Option<Linear<E>>,
    adam: Adam,
    step: u64,
    smooth: Smooth,
    best: Best<E>,
    joint: Joint<E>,
    x: E::Block,
    gx: E::Block,
    of_nu: E::Block,
    slots: Vec<f64>,
    /// `(θ, log σ | θ̃ | linear model)` as Adam sees them, and their gradient.
    vector: Vec<f64>,
    gradient: Vec<f64>,
}

/// The state at the best smoothed ELBO.
struct Best<E: Engine> {
    vector: Vec<f64>,
    /// `ν` and the raw values of `ξ` and `τ`.
    fields: [E::Block; 3],
}

/// What a fit ended with, besides the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Info {
    /// The best smoothed ELBO, in standardised units, all constants included.
    pub elbo: f64,
    /// Whether it ended because there was nothing left to gain.
    pub converged: bool,
}

impl<E: Engine> Elbo<E> {
    /// Ready to begin. All ranks call it.
    pub fn new(
        engine: &mut E,
        problem: Problem<E>,
        shape: &Shape,
        options: Options,
    ) -> Result<Self> {
        let parameters = start(engine, shape, options.seed, Start::Plain);
        let of_q = Shape { layers: options.layers.max(1), sigma: None, ..*shape };
        let of_q = Shape { gamma: crate::model::Gamma::Free, ..of_q };
        let mut layers = start(engine, &of_q, options.seed ^ 1, Start::Plain).model.layers;
        layers.truncate(options.layers);
        let linear = match &problem.features {
            Some(features) => Some(Linear::new(engine, features, &problem.data)?),
            None => None,
        };
        // ν begins at the data, without their linear part.
        let nu = match &linear {
            Some(linear) => engine.download(linear.target()),
            None => problem.data.y.clone(),
        };
        let nu: Vec<f64> =
            nu.iter().zip(&problem.data.observed).map(|(y, &o)| if o { *y } else { 0.0 }).collect();
        let samples = options.samples.max(1);
        let q = Variational::new(engine, layers, &nu, samples);
        let features = linear.as_ref().map_or(0, Linear::count);
        let length = parameters.len() + LayerParameters::COUNT * q.layers() + 2 * features;
        let slots = Joint::<E>::slots(parameters.model.layers.len())
            + LayerParameters::COUNT * q.layers()
            + 1
            + features;
        let mut fit = Elbo {
            adam: Adam::new(length),
            step: 0,
            smooth: Smooth::new(problem.nodes() as f64, options.converge),
            best: Best { vector: Vec::new(), fields: [0; 3].map(|_| engine.zeros(1)) },
            joint: Joint::new(engine, parameters.model.layers.len(), samples),
            x: engine.zeros(samples),
            gx: engine.zeros(samples),
            of_nu: engine.zeros(1),
            slots: vec![0.0; slots],
            vector: vec![0.0; length],
            gradient: vec![0.0; length],
            options: Options { samples, ..options },
            problem,
            parameters,
            q,
            linear,
        };
        fit.read_vector();
        fit.best.vector.clone_from(&fit.vector);
        fit.keep_fields(engine);
        Ok(fit)
    }

    /// The best parameters of the fit.
    pub fn finish(mut self) -> (Parameters, Info) {
        let found = Info { elbo: self.smooth.best(), converged: self.smooth.converged() };
        // A fit too short to have a best place ends where it is.
        if self.smooth.any_window() {
            self.vector = std::mem::take(&mut self.best.vector);
        }
        self.assign_vector();
        (self.parameters, found)
    }

    fn read_vector(&mut self) {
        let own = self.parameters.len();
        let of_q = LayerParameters::COUNT * self.q.layers();
        self.parameters.read_into(&mut self.vector[..own]);
        LayerParameters::write(&self.q.model.layers, &mut self.vector[own..own + of_q]);
        if let Some(linear) = &self.linear {
            linear.read_into(&mut self.vector[own + of_q..]);
        }
    }

    fn assign_vector(&mut self) {
        let own = self.parameters.len();
        let of_q = LayerParameters::COUNT * self.q.layers();
        self.parameters.assign(&self.vector[..own]);
        LayerParameters::read(&self.vector[own..own + of_q], &mut self.q.model.layers);
        if let Some(linear) = &mut self.linear {
            linear.assign(&self.vector[own + of_q..]);
        }
    }

    fn keep_fields(&mut self, engine: &E) {
        let fields = [&self.q.nu, &self.q.xi, &self.q.tau];
        for (to, from) in self.best.fields.iter_mut().zip(fields) {
            engine.copy_columns(&from.value, to, &[(0, 0)]);
        }
    }

    /// Local sums of the expected log-joint, gradients in `q`.
    fn expect(&mut self, engine: &mut E) {
        let p = &self.parameters;
        let precision = p.gaussian().precision();
        let stream = Stream::new(self.options.seed, Purpose::Variational, self.step);
        let data = match &mut self.linear {
            Some(linear) => linear.residual_data(engine, &self.problem.data.fields),
            None => &self.problem.data.fields,
        };
        self.joint.begin(engine, p);
        match self.options.estimator {
            Estimator::Gaussian => {
                self.q.draw(engine, Draw::Normal, stream, true, &mut self.x);
                let (x, gx) = (&mut self.x, &mut self.gx);
                let pull = Some(self.q.pull_back(true));
                self.joint.add(engine, p, Columns::Samples, Some(data), x, pull, gx);
                self.q.backward(engine, gx);
            }
            Estimator::Rademacher => {
                let (nu, of_nu) = (&mut self.q.nu.value, &mut self.of_nu);
                self.joint.add(engine, p, Columns::Mean, Some(data), nu, None, of_nu);
                self.q.draw(engine, Draw::Rademacher, stream, false, &mut self.x);
                let observed = (!self.q.knows_variance()).then_some(data);
                let (x, gx) = (&mut self.x, &mut self.gx);
                let pull = Some(self.q.pull_back(false));
                self.joint.add(engine, p, Columns::Deviations, observed, x, pull, gx);
                self.q.backward(engine, gx);
                let variance = self.q.add_variance(engine, precision, &data.mask);
                self.joint.add_misfit(variance);
            }
        }
    }
}

impl<E: Engine> Fit<E> for Elbo<E> {
    fn steps(&self) -> u64 {
        self.step
    }

    fn finished(&self) -> bool {
        self.step >= self.options.adam.iterations || self.smooth.converged()
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn step(&mut self, engine: &mut E) -> Result<Report> {
        self.expect(engine);
        let layers = self.parameters.model.layers.len();
        let of_joint = Joint::<E>::slots(layers);
        let of_q = LayerParameters::COUNT * self.q.layers();
        let (joint_slots, rest) = self.slots.split_at_mut(of_joint);
        let (q_slots, rest) = rest.split_at_mut(of_q);
        let (logs, of_linear) = rest.split_at_mut(1);
        self.joint.write(joint_slots);
        self.q.write(q_slots);
        if let Some(linear) = &mut self.linear {
            linear.project(engine, &self.problem.data.fields, &self.q.nu.value, of_linear);
        }
        // Node fields need no sums of other ranks: they move first, and the sum of the logarithms
        // of the old ones joins the reduction.
        let step = self.options.adam.step(self.step + 1);
        let exact = self.options.estimator == Estimator::Rademacher;
        logs[0] = self.q.update(engine, &step, exact.then_some(&self.of_nu));
        engine.world().sum(&mut self.slots);

        let (joint_slots, rest) = self.slots.split_at_mut(of_joint);
        let (q_slots, rest) = rest.split_at(of_q);
        let (spectrum, p, q) = (&self.problem.spectrum, &self.parameters, &self.q);
        let own = p.len();
        let (of_model, of_rest) = self.gradient.split_at_mut(own);
        let (of_layers, of_coefficients) = of_rest.split_at_mut(of_q);
        let mut linear_elbo = 0.0;
        if let Some(linear) = &self.linear {
            let precision = p.gaussian().precision();
            let misfit = &mut joint_slots[of_joint - 1];
            linear_elbo = linear.finish(precision, &rest[1..], misfit, of_coefficients);
        }
        let log_det = |l: usize| spectrum.log_det(&p.model.layers[l], p.model.gamma);
        let value = joint::finish(p, self.problem.data.count, joint_slots, log_det, of_model);
        let mut elbo = value.log_joint + rest[0] + linear_elbo;
        let per_layer = q_slots.as_chunks().0.iter().zip(of_layers.as_chunks_mut().0);
        for (l, (sums, gradient)) in per_layer.enumerate() {
            let log_det = spectrum.log_det(&q.model.layers[l], q.model.gamma);
            elbo += log_det.value;
            // The layers of q have no bias.
            let found = layer_gradient(&q.model, l, *sums, &log_det);
            *gradient = LayerParameters { bias: 0.0, ..found }.to_array();
        }
        let (n, m) = (self.problem.nodes() as f64, self.problem.data.count);
        elbo += 0.5 * n - 0.5 * m * (2.0 * PI).ln();

        self.read_vector();
        self.adam.update(&step, &self.gradient, &mut self.vector);
        self.assign_vector();
        self.step += 1;
        let judged = self.smooth.add(elbo);
        if judged.improved {
            self.best.vector.clone_from(&self.vector);
            self.keep_fields(engine);
        }
        if judged.diverged {
            return Err(Error::Numeric(format!(
                "the ELBO has fallen far below where it began, to {:.3e} per node: a smaller \
                 train.learning_rate may help",
                elbo / n
            )));
        }
        Ok(Report { objective: elbo, cg_iterations: None })
    }

    fn save(&self, engine: &E) -> State {
        let numbers = [
            ("vector", self.vector.clone()),
            ("adam.first", self.adam.first.clone()),
            ("adam.second", self.adam.second.clone()),
            ("best", self.best.vector.clone()),
            ("smooth", self.smooth.to_numbers()),
        ];
        let mut fields = std::collections::BTreeMap::new();
        for (name, field) in [("nu", &self.q.nu), ("xi", &self.q.xi), ("tau", &self.q.tau)] {
            for (part, block) in
                [("", &field.value), (".first", &field.first), (".second", &field.second)]
            {
                fields.insert(format!("{name}{part}"), engine.download(block));
            }
        }
        for (name, block) in ["best.nu", "best.xi", "best.tau"].into_iter().zip(&self.best.fields) {
            fields.insert(name.into(), engine.download(block));
        }
        let numbers = numbers.map(|(name, values)| (name.to_owned(), values)).into();
        State { step: self.step, numbers, fields }
    }

    fn restore(&mut self, engine: &mut E, state: State) -> Result<()> {
        let damaged = || Error::Data("the checkpoint does not fit this fit".into());
        let length = self.vector.len();
        let get = |name: &str| {
            let found = state.numbers.get(name).filter(|v| v.len() == length);
            found.cloned().ok_or_else(damaged)
        };
        self.vector = get("vector")?;
        self.adam = Adam { first: get("adam.first")?, second: get("adam.second")? };
        self.best.vector = get("best")?;
        let smooth = state.numbers.get("smooth").ok_or_else(damaged)?;
        self.smooth.restore(smooth).ok_or_else(damaged)?;
        self.step = state.step;
        self.assign_vector();
        let upload = |engine: &E, name: &str, block: &mut E::Block| -> Result<()> {
            let values = state.fields.get(name).ok_or_else(damaged)?;
            engine.upload(values, block);
            Ok(())
        };
        let q = &mut self.q;
        for (name, field) in [("nu", &mut q.nu), ("xi", &mut q.xi), ("tau", &mut q.tau)] {
            let Moving { value, first, second } = field;
            upload(engine, name, value)?;
            upload(engine, &format!("{name}.first"), first)?;
            upload(engine, &format!("{name}.second"), second)?;
        }
        let names = ["best.nu", "best.xi", "best.tau"];
        for (name, block) in names.into_iter().zip(&mut self.best.fields) {
            upload(engine, name, block)?;
        }
        self.q.refresh(engine);
        Ok(())
    }
}
