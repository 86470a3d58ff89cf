//! Marginal-likelihood fits: score and evidence against the dense `log p(y | θ)`, on every engine
//! and on 1 to 4 ranks; fits that end where they should, and go on after a break bit for bit.

mod support;

use dgmrf::comm::World;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::likelihood::Observations;
use dgmrf::logdet::{Source, Spectrum};
use dgmrf::model::{Gamma, Model};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::posterior::Features;
use dgmrf::random::{Purpose, Stream};
use dgmrf::train::evidence::{self, evidence};
use dgmrf::train::marginal::{self, Marginal};
use dgmrf::train::score::{self, Score};
use dgmrf::train::{Fit, Parameters, Problem, Shape};
use faer::{Mat, Side, linalg::solvers::Solve};
use std::rc::Rc;
use support::{dense, graphs, on_ranks, relative_error};

const NODES: usize = 100;
const PRIOR_PRECISION: f64 = 1e-4;

struct Case {
    graph: Graph,
    parameters: Parameters,
    y: Vec<f64>,
    observed: Vec<bool>,
    /// Row-major, two for each node.
    features: Option<Vec<f64>>,
}

impl Case {
    fn new(gamma: Gamma, weighted: bool, features: bool) -> Self {
        let graph = graphs::random(NODES, 120, weighted, 5);
        let g = |free: f64| if let Gamma::Fixed(value) = gamma { value } else { free };
        let layers = [(1.2, -0.9, g(0.3), 0.2), (0.7, 0.4, g(0.6), -0.4)];
        let model = Model::from_coefficients(&layers, gamma).unwrap();
        let parameters =
            Parameters { model, log_sigma: -0.9, bias: true, noise: true, scales: true };
        let draw = |step: u64, i: usize| Stream::new(4, Purpose::Test, step).normal(i as u64, 0);
        Case {
            graph,
            parameters,
            y: (0..NODES).map(|i| draw(0, i)).collect(),
            observed: (0..NODES).map(|i| draw(1, i) > -0.5).collect(),
            features: features.then(|| (0..2 * NODES).map(|k| draw(2, k)).collect()),
        }
    }

    /// `−log p(y | θ)`, all constants included, from the covariance of the observed values.
    fn loss(&self, vector: &[f64]) -> f64 {
        let mut p = self.parameters.clone();
        p.assign(vector);
        let layers: Vec<dense::Layer> = (0..p.model.layers.len())
            .map(|l| p.model.coefficients(l))
            .map(|c| (c.alpha, c.rho * c.alpha, c.gamma, c.bias))
            .collect();
        let (_, g) = dense::precision(&self.graph, &layers, &[false; NODES], 1.0);
        let prior = g.transpose() * &g;
        let covariance = prior.llt(Side::Lower).unwrap().solve(Mat::<f64>::identity(NODES, NODES));
        // E x = −G⁻¹ g(0).
        let at_zero = dense::forward(&self.graph, &layers, true, &[0.0; NODES], 1);
        let mean = g.partial_piv_lu().solve(Mat::from_fn(NODES, 1, |i, _| -at_zero[i]));
        let seen: Vec<usize> = (0..NODES).filter(|&i| self.observed[i]).collect();
        let m = seen.len();
        let v = Mat::from_fn(m, m, |a, b| {
            let (i, j) = (seen[a], seen[b]);
            let noise = if i == j { (2.0 * p.log_sigma).exp() } else { 0.0 };
            let linear = self.features.as_ref().map_or(0.0, |f| {
                (f[2 * i] * f[2 * j] + f[2 * i + 1] * f[2 * j + 1]) / PRIOR_PRECISION
            });
            covariance[(i, j)] + noise + linear
        });
        let r = Mat::from_fn(m, 1, |a, _| self.y[seen[a]] - mean[(seen[a], 0)]);
        let factor = v.llt(Side::Lower).unwrap();
        let log_det: f64 = (0..m).map(|i| 2.0 * factor.L()[(i, i)].ln()).sum();
        let square = (r.transpose() * factor.solve(&r))[(0, 0)];
        0.5 * (square + log_det + m as f64 * (2.0 * std::f64::consts::PI).ln())
    }

    /// By central differences.
    fn gradient(&self) -> Vec<f64> {
        let mut vector = vec![0.0; self.parameters.len()];
        self.parameters.read_into(&mut vector);
        let mut gradient = vec![0.0; vector.len()];
        for i in self.parameters.free() {
            let h = 1e-5;
            let at = |step: f64| {
                let mut moved = vector.clone();
                moved[i] += step;
                self.loss(&moved)
            };
            // Fourth order.
            gradient[i] = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
        }
        gradient
    }

    fn part(&self, world: &World) -> Part {
        let owner = partition::divide(&self.graph, world.size(), &Default::default()).unwrap();
        Partition::new(&self.graph, owner, world.size(), Order::Locality)
            .unwrap()
            .part(world.rank())
    }

    fn problem<E: Engine>(&self, engine: &E) -> Problem<E> {
        let degree = self.graph.degrees();
        let mut a = vec![vec![0.0; NODES]; NODES];
        for (i, row) in a.iter_mut().enumerate() {
            for (j, w) in self.graph.weighted_neighbours(i) {
                row[j as usize] = w / (degree[i] * degree[j as usize]).sqrt();
            }
        }
        let source = Source::Eigenvalues(dense::symmetric_eigenvalues(a));
        let spectrum = Spectrum::new(NODES, degree.iter().map(|d| d.ln()).sum(), source);
        let ids = engine.part().owned_ids();
        let features = self.features.as_ref().map(|f| Features {
            count: 2,
            values: ids.iter().flat_map(|&i| [f[2 * i as usize], f[2 * i as usize + 1]]).collect(),
            prior_precision: PRIOR_PRECISION,
        });
        let y: Vec<f64> = ids.iter().map(|&i| self.y[i as usize]).collect();
        let observed: Vec<bool> = ids.iter().map(|&i| self.observed[i as usize]).collect();
        let data = Observations::new(engine, &y, &observed).unwrap();
        Problem::new(data, features, spectrum).unwrap()
    }

    fn score<E: Engine>(&self, engine: &mut E, options: &score::Options) -> (Vec<f64>, Vec<f64>) {
        let problem = self.problem(engine);
        let p = &self.parameters;
        let mut score = Score::new(engine, &problem, p, options).unwrap();
        score.evaluate(engine, &problem, p, 1e-12).unwrap();
        let gradient = score.gradient().to_vec();
        (gradient, score.noise(engine, &problem, p))
    }
}

fn native(world: &Rc<World>, case: &Case) -> Native<f64> {
    Native::new(world.clone(), case.part(world)).unwrap()
}

#[test]
fn the_score_is_exact_with_all_unit_vectors() {
    let cases =
        [(Gamma::Free, false, false), (Gamma::Fixed(1.0), true, false), (Gamma::Free, true, true)];
    for (gamma, weighted, features) in cases {
        let case = Case::new(gamma, weighted, features);
        let exact = score::Options { exact: true, ..Default::default() };
        let (found, _) = case.score(&mut native(&World::solo(), &case), &exact);
        let error = relative_error(&found, &case.gradient());
        assert!(error < 1e-6, "{gamma:?}, weighted {weighted}, features {features}: {error:e}");
    }
}

#[test]
fn signs_give_the_score_on_average_and_know_their_noise() {
    let case = Case::new(Gamma::Free, true, true);
    let (mut engine, truth) = (native(&World::solo(), &case), case.gradient());
    let seeds = 200;
    let draws: Vec<(Vec<f64>, Vec<f64>)> = (0..seeds)
        .map(|seed| case.score(&mut engine, &score::Options { seed, ..Default::default() }))
        .collect();
    for i in case.parameters.free() {
        let mean = draws.iter().map(|d| d.0[i]).sum::<f64>() / seeds as f64;
        let spread =
            draws.iter().map(|d| (d.0[i] - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
        let told = draws.iter().map(|d| d.1[i].powi(2)).sum::<f64>() / seeds as f64;
        let error = (mean - truth[i]).abs();
        let rounding = 1e-7 * truth[i].abs().max(1.0);
        let limit = 4.0 * (spread / seeds as f64).sqrt() + rounding;
        assert!(error < limit, "parameter {i}: {mean} against {}, limit {limit}", truth[i]);
        // The mean of 200 squares is known to 10 %.
        let same = (told / spread - 1.0).abs() < 0.5 || spread < rounding * rounding;
        assert!(same, "parameter {i}: variance {spread}, told {told}");
    }
}

#[test]
fn the_evidence_is_that_of_the_dense_model() {
    for features in [false, true] {
        let case = Case::new(Gamma::Free, true, features);
        let mut engine = native(&World::solo(), &case);
        let problem = case.problem(&engine);
        let p = &case.parameters;
        let mut score = Score::new(&mut engine, &problem, p, &Default::default()).unwrap();
        score.evaluate(&mut engine, &problem, p, 1e-10).unwrap();
        let mut vector = vec![0.0; p.len()];
        p.read_into(&mut vector);
        let truth = -case.loss(&vector);
        let options = evidence::Options { probes: 200, ..Default::default() };
        let found = evidence(&mut engine, &problem, &mut score, p, &options).unwrap();
        assert!(
            (found.value - truth).abs() < 3.5 * found.stderr && found.stderr < 0.2,
            "features {features}: {found:?}, in truth {truth}"
        );
    }
}

/// Score, evidence and a few steps of a fit.
fn summary<E: Engine>(case: &Case, engine: &mut E) -> Vec<f64> {
    let (mut all, _) = case.score(engine, &Default::default());
    let problem = case.problem(engine);
    let shape = Shape { layers: 2, bias: true, gamma: Gamma::Free, sigma: None };
    let options =
        marginal::Options { iterations: 12, adam_steps: 4, tolerance: 1e-11, ..Default::default() };
    let mut fit = Marginal::new(engine, problem, &shape, options).unwrap();
    while !fit.finished() {
        all.push(fit.step(engine).unwrap().objective);
    }
    let mut vector = vec![0.0; fit.parameters().len()];
    fit.parameters().read_into(&mut vector);
    all.extend(vector);
    let (_, info) = fit.finish(engine).unwrap();
    all.extend([info.evidence.value, info.evidence.stderr]);
    all
}

#[test]
fn ranks_and_engines_agree() {
    let case = Case::new(Gamma::Free, true, true);
    let results = on_ranks("ranks_and_engines_agree", &[1, 2, 3, 4], |world| {
        let result = summary(&case, &mut native(world, &case));
        assert_eq!(result, summary(&case, &mut native(world, &case)), "bitwise the same again");
        #[cfg(feature = "torch")]
        if world.size() <= 2 {
            use dgmrf::field::torch::Torch;
            let part = case.part(world);
            let mut torch = Torch::<f64>::new(world.clone(), part, tch::Device::Cpu).unwrap();
            let error = relative_error(&summary(&case, &mut torch), &result);
            assert!(error < 1e-7, "torch on {} ranks: {error:e}", world.size());
        }
        result
    });
    for (k, result) in results.iter().enumerate().skip(1) {
        let error = relative_error(result, &results[0]);
        assert!(error < 1e-7, "{} ranks: {error:e}", k + 1);
    }
}

/// Scaling a layer with its bias, and taking it back in the next, is no change of the model.
#[test]
fn only_the_product_of_scales_is_determined() {
    let case = Case::new(Gamma::Free, true, false);
    let mut vector = vec![0.0; case.parameters.len()];
    case.parameters.read_into(&mut vector);
    let before = case.loss(&vector);
    vector[0] += 0.7;
    vector[3] *= 0.7_f64.exp();
    vector[4] -= 0.7;
    assert!((case.loss(&vector) - before).abs() < 1e-9 * before.abs());
}

/// A fit ends at a maximum of the exact likelihood, as far as signs can tell.
#[test]
fn a_fit_ends_at_the_maximum() {
    let case = Case::new(Gamma::Free, true, false);
    let mut engine = native(&World::solo(), &case);
    let shape = Shape { layers: 1, bias: true, gamma: Gamma::Free, sigma: None };
    let options = marginal::Options { probes: 64, gain: 1e-3, ..Default::default() };
    let problem = case.problem(&engine);
    let mut fit = Marginal::new(&mut engine, problem, &shape, options).unwrap();
    let mut first = vec![0.0; 5];
    fit.parameters().read_into(&mut first);
    while !fit.finished() {
        fit.step(&mut engine).unwrap();
    }
    let (p, info) = fit.finish(&mut engine).unwrap();
    assert!(info.converged && info.standard_errors.is_some());
    let one = Case { parameters: p.clone(), ..case };
    let mut best = vec![0.0; 5];
    p.read_into(&mut best);
    let lowest = one.loss(&best);
    assert!(lowest < one.loss(&first), "better than it began");
    for i in 0..5 {
        for step in [-0.3, 0.3] {
            let mut moved = best.clone();
            moved[i] += step;
            assert!(one.loss(&moved) > lowest - 0.1, "parameter {i} by {step}");
        }
    }
}
