//! The score `∇ log p(y | θ)` by Fisher's identity.
//!
//! ```text
//! ∇ log p(y | θ) = E[∇ log p(y, x | θ) | y]
//! ```
//!
//! The right-hand side is the expected log-joint ([`super::joint`]) under the exact posterior
//! `N(μ, Q̃⁻¹)`: its mean `μ`, and second moments of the deviations from it. Perturbation would
//! sample these, `Q̃ d_k = Gᵀ w_k + σ⁻¹ I_m v_k` with white noise `w_k`, `v_k`. All that is needed,
//! however, is `E[(G d) dᵀ] = G Q̃⁻¹ = E[w dᵀ]`, in which the noise `v` has no part; so it is left
//! out,
//!
//! ```text
//! Q̃ x_k = Gᵀ w_k,   E ⟨G d, ∂G d⟩ = E ⟨w_k, ∂G x_k⟩,   σ⁻² E Σ m d² = N − E ⟨w_k, G x_k⟩,
//! ```
//!
//! and with random signs `w_k` the variance is several times smaller than that of samples (where a
//! node is not observed, `G Q̃⁻¹ Gᵀ` is close to the identity, whose trace signs give exactly). All
//! are columns of one block and one solve. The signs stay the same over a fit, so the score is a
//! smooth function of `θ`, and the solutions of the last `θ` are a first guess for the next.
//!
//! With features the posterior is that of `(x, c)`, `y = x + F c + ε`; see
//! [`crate::posterior::Features`].

use super::joint::{self, Columns, Joint};
use super::{Parameters, Problem};
use crate::error::{Error, Result};
use crate::field::{Engine, Residual};
use crate::likelihood::{Curvature, Observations, ObservedFields};
use crate::partition::Part;
use crate::posterior::{Linear, MeanSource, Precision, Preconditioner};
use crate::random::{Purpose, Stream};
use crate::solver::cg;

/// Settings of a score.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Signs `w_k`, at least 1.
    pub probes: usize,
    /// The signs follow from it.
    pub seed: u64,
    /// Unit vectors of all nodes (times `√N`) in place of signs: exact, for small graphs.
    pub exact: bool,
    /// More iterations of conjugate gradients than this are an error.
    pub max_iterations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { probes: 7, seed: 1, exact: false, max_iterations: 20_000 }
    }
}

/// How a score was computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Info {
    /// Iterations of conjugate gradients, of the slowest column.
    pub iterations: usize,
    /// Products of `Q̃` with single columns.
    pub column_products: usize,
}

/// The score at one `θ` after the other; owns all blocks that takes.
pub struct Score<E: Engine> {
    options: Options,
    precision: Precision<E>,
    curvature: Curvature,
    preconditioner: Preconditioner<E>,
    mean_source: MeanSource<E>,
    linear: Option<Linear<E>>,
    /// `[mean | features | deviations]`: sources, right-hand sides and solutions.
    w: E::Block,
    v: E::Block,
    b: E::Block,
    x: E::Block,
    /// Whether `x` holds solutions of an earlier `θ`.
    warm: bool,
    work: cg::Workspace<E>,
    joint: Joint<E>,
    mean: E::Block,
    /// `w` and `x` of the deviations.
    signs: E::Block,
    deviations: E::Block,
    cotangent: [E::Block; 2],
    /// `u = x + F c` of all columns, and room; empty without features.
    with_features: [E::Block; 2],
    /// Where the deviations are in `x`, and where in their own block.
    places: Vec<(usize, usize)>,
    slots: Vec<f64>,
    gradient: Vec<f64>,
}

impl<E: Engine> Score<E> {
    /// Room for a model of `layers` layers. All ranks call it.
    pub fn new(
        engine: &mut E,
        problem: &Problem<E>,
        p: &Parameters,
        options: &Options,
    ) -> Result<Self> {
        let layers = p.model.layers.len();
        let probes = if options.exact { problem.nodes() } else { options.probes.max(1) };
        let linear = problem.features.as_ref().map(|f| Linear::new(engine, f, probes, |_, _| 0.0));
        let fixed = 1 + linear.as_ref().map_or(0, Linear::count);
        let mut precision = Precision::new(engine, layers);
        let curvature = p.gaussian().curvature(&problem.data.observed);
        precision.prepare(engine, &p.model, &curvature);
        let preconditioner = Preconditioner::jacobi(engine, &precision);
        let columns = fixed + probes;
        let [mut w, v, b, x] = [0; 4].map(|_| engine.zeros(columns));
        // The signs, in the columns behind those of the mean and the features.
        let places: Vec<(usize, usize)> = (0..probes).map(|k| (k, fixed + k)).collect();
        let mut signs = engine.zeros(probes);
        if options.exact {
            engine.upload(&unit_vectors(engine.part(), probes), &mut signs);
        } else {
            let stream = Stream::new(options.seed, Purpose::Score, 0);
            engine.fill_rademacher(stream, 0, &mut signs);
        }
        engine.copy_columns(&signs, &mut w, &places);
        let slots = Joint::<E>::slots(layers);
        Ok(Score {
            options: Options { probes, ..options.clone() },
            mean_source: MeanSource::new(engine),
            precision,
            curvature,
            preconditioner,
            linear,
            w,
            v,
            b,
            x,
            warm: false,
            work: cg::Workspace::new(engine),
            joint: Joint::new(engine, layers, probes),
            mean: engine.zeros(1),
            deviations: engine.zeros(probes),
            signs,
            cotangent: [engine.zeros(1), engine.zeros(probes)],
            with_features: [engine.zeros(0), engine.zeros(0)],
            places: places.iter().map(|&(k, place)| (place, k)).collect(),
            slots: vec![0.0; slots],
            gradient: vec![0.0; p.len()],
        })
    }

    /// Computes the score at `p`, with systems solved to the relative residual `tolerance`. All
    /// ranks call it.
    pub fn evaluate(
        &mut self,
        engine: &mut E,
        problem: &Problem<E>,
        p: &Parameters,
        tolerance: f64,
    ) -> Result<Info> {
        let info = self.solve(engine, &problem.data, p, tolerance)?;
        if let Some(linear) = &mut self.linear {
            let [u, room] = &mut self.with_features;
            let columns = engine.columns(&self.x);
            engine.resize(u, columns);
            engine.resize(room, columns);
            let sources = (&self.v, &self.b);
            linear.eliminate(engine, &mut self.precision, sources, &mut self.x, u, room)?;
            // The next systems are for x₀ again, which is in `room`; x goes there.
            std::mem::swap(&mut self.x, &mut self.with_features[1]);
        }
        self.expect(engine, problem, p, self.options.probes);
        Ok(info)
    }

    /// A draw from the noise that the choice of signs leaves in the gradient of the last
    /// evaluation: from the difference that half of the signs makes. Zero for a single sign. All
    /// ranks call it.
    pub fn noise(&mut self, engine: &mut E, problem: &Problem<E>, p: &Parameters) -> Vec<f64> {
        let (all, half) = (self.options.probes, self.options.probes / 2);
        let whole = self.gradient.clone();
        if half == 0 {
            return vec![0.0; whole.len()];
        }
        self.expect(engine, problem, p, half);
        // Var(mean of half − mean of all) = (1/half − 1/all) against 1/all.
        let scale = (half as f64 / (all - half) as f64).sqrt();
        let noise = self.gradient.iter().zip(&whole).map(|(h, w)| scale * (h - w)).collect();
        self.gradient = whole;
        noise
    }

    /// The gradient of `−log p(y | θ)` of the last evaluation.
    pub fn gradient(&self) -> &[f64] {
        &self.gradient
    }

    /// `log p(y, μ)` at the posterior mean of the last evaluation (with features `log p(y, μ, c)`
    /// less `½ log det S`), without `2π`. All ranks call it.
    pub(super) fn log_joint_at_mean(
        &mut self,
        engine: &mut E,
        problem: &Problem<E>,
        p: &Parameters,
    ) -> f64 {
        self.joint.begin(engine, p);
        let of_mean = &mut self.cotangent[0];
        let data = &problem.data.fields;
        let (mut field, mut linear) = (0.0, 0.0);
        match &self.linear {
            None => {
                engine.copy_columns(&self.x, &mut self.mean, &[(0, 0)]);
                self.joint.add(engine, p, Columns::Mean, Some(data), &mut self.mean, None, of_mean);
            }
            Some(terms) => {
                let [u, x] = &self.with_features;
                engine.copy_columns(x, &mut self.mean, &[(0, 0)]);
                self.joint.add(engine, p, Columns::Mean, None, &mut self.mean, None, of_mean);
                engine.copy_columns(u, &mut self.mean, &[(0, 0)]);
                field = misfit_of(engine, data, &self.mean, of_mean);
                linear = terms.log_density();
            }
        }
        self.joint.add_misfit(field);
        self.joint.write(&mut self.slots);
        engine.world().sum(&mut self.slots);
        let log_det = |l: usize| problem.spectrum.log_det(&p.model.layers[l], p.model.gamma);
        let mut unused = vec![0.0; p.len()];
        let count = problem.data.count;
        joint::finish(p, count, &self.slots, log_det, &mut unused).log_joint + linear
    }

    /// The precision at the parameters of the last evaluation.
    pub(super) fn precision(&mut self) -> &mut Precision<E> {
        &mut self.precision
    }

    /// The solutions behind the last evaluation, `[owned, columns]`: with them the next one begins.
    pub(super) fn solutions(&self, engine: &E) -> (usize, Vec<f64>) {
        let columns = if self.warm { engine.columns(&self.x) } else { 0 };
        (columns, if self.warm { engine.download(&self.x) } else { Vec::new() })
    }

    /// Takes solutions over.
    pub(super) fn set_solutions(&mut self, engine: &E, values: &[f64]) -> Result<()> {
        self.warm = !values.is_empty();
        let expected = engine.part().owned * engine.columns(&self.x);
        if self.warm && values.len() != expected {
            return Err(Error::Data("the checkpoint is of another number of probes".into()));
        }
        if self.warm {
            engine.upload(values, &mut self.x);
        }
        Ok(())
    }

    /// Forgets the solutions: the next evaluation begins from nothing.
    pub(super) fn forget(&mut self) {
        self.warm = false;
    }

    /// Solves for the posterior mean and the deviations.
    fn solve(
        &mut self,
        engine: &mut E,
        data: &Observations<E>,
        p: &Parameters,
        tolerance: f64,
    ) -> Result<Info> {
        p.gaussian().curvature_into(&data.observed, &mut self.curvature);
        self.precision.prepare(engine, &p.model, &self.curvature);
        self.preconditioner.follow(engine, &self.precision);
        let sources = (&mut self.w, &mut self.v);
        self.mean_source.place(engine, &mut self.precision, &data.fields, sources, 0);
        if let Some(linear) = &mut self.linear {
            linear.place(engine, &self.precision, &mut self.v);
        }
        self.precision.right_hand_side(engine, &mut self.w, &self.v, &mut self.b);
        let options = cg::Options {
            tolerance,
            max_iterations: self.options.max_iterations,
            warm_start: self.warm,
            ..cg::Options::default()
        };
        let solved = cg::solve(
            engine,
            &mut self.precision,
            &mut self.preconditioner,
            &self.b,
            &mut self.x,
            &options,
            &mut self.work,
        )?;
        self.warm = true;
        Ok(Info { iterations: solved.iterations, column_products: solved.column_products })
    }

    /// The gradient from the mean and the first `probes` deviations.
    fn expect(&mut self, engine: &mut E, problem: &Problem<E>, p: &Parameters, probes: usize) {
        let data = &problem.data.fields;
        let blocks = [&mut self.signs, &mut self.deviations, &mut self.cotangent[1]];
        blocks.into_iter().for_each(|block| engine.resize(block, probes));
        let places = &self.places[..probes];
        let x = if self.linear.is_some() { &self.with_features[1] } else { &self.x };
        engine.copy_columns(&self.w, &mut self.signs, places);
        engine.copy_columns(x, &mut self.deviations, places);
        engine.copy_columns(x, &mut self.mean, &[(0, 0)]);

        self.joint.begin(engine, p);
        let [of_mean, room] = &mut self.cotangent;
        // With features the data are compared with `u = x + F c`.
        let of_field = self.linear.is_none().then_some(data);
        self.joint.add(engine, p, Columns::Mean, of_field, &mut self.mean, None, of_mean);
        let energy = self.joint.add_pairs(engine, &mut self.signs, &mut self.deviations, room);
        let mut freedom = engine.part().owned as f64 - energy;
        if let Some(linear) = &self.linear {
            engine.copy_columns(&self.with_features[0], &mut self.mean, &[(0, 0)]);
            let misfit = misfit_of(engine, data, &self.mean, of_mean);
            self.joint.add_misfit(misfit);
            // Once, and not on every rank.
            freedom += if engine.world().is_root() { linear.known_misfit() } else { 0.0 };
        }
        self.joint.add_misfit((2.0 * p.log_sigma).exp() * freedom);

        self.joint.write(&mut self.slots);
        engine.world().sum(&mut self.slots);
        let log_det = |l: usize| problem.spectrum.log_det(&p.model.layers[l], p.model.gamma);
        joint::finish(p, problem.data.count, &self.slots, log_det, &mut self.gradient);
    }
}

/// The local `Σ m (y − x)²`; `scratch` is as wide as `x`.
fn misfit_of<E: Engine>(
    engine: &E,
    data: &ObservedFields<E::Block>,
    x: &E::Block,
    scratch: &mut E::Block,
) -> f64 {
    let residual = Residual { precision: 0.0, mask: &data.mask, target: Some(&data.y) };
    engine.residual(&residual, x, scratch)
}

/// `√N e_i` in column `i`: the mean over columns of `wᵀ M w` is then the trace of `M`.
fn unit_vectors(part: &Part, nodes: usize) -> Vec<f64> {
    let mut values = vec![0.0; part.owned * nodes];
    for (row, &id) in values.chunks_exact_mut(nodes).zip(part.owned_ids()) {
        row[id as usize] = (nodes as f64).sqrt();
    }
    values
}
