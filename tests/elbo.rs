//! The ELBO and its gradient against dense matrices and finite differences, its two estimators
//! against each other, and fits on several ranks, with breaks.
//!
//! The gradient of a step is read from the first moments that the step leaves in the state of a
//! fit: from moments of zero they are `(1 − β₁)` times the gradient.

mod support;

use dgmrf::checkpoint::{self, State};
use dgmrf::comm::World;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::likelihood::Observations;
use dgmrf::logdet::{Source, Spectrum};
use dgmrf::model::{Gamma, LayerParameters};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::posterior::Features;
use dgmrf::random::{Purpose, Stream};
use dgmrf::train::elbo::{Elbo, Estimator, Options};
use dgmrf::train::{Fit, Problem, Shape};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use support::dense::{self, Matrix};
use support::{graphs, on_ranks, relative_error};

/// Parameters of a layer.
const PER_LAYER: usize = LayerParameters::COUNT;
const NODES: usize = 26;
const LAYERS: usize = 2;
const FEATURES: usize = 2;
const PRIOR: f64 = 1e-2;
const SEED: u64 = 5;

#[derive(Debug, Clone, Copy)]
struct Case {
    weighted: bool,
    gamma: Gamma,
    bias: bool,
    sigma: Option<f64>,
    features: bool,
    of_q: usize,
    estimator: Estimator,
    samples: usize,
}

const PLAIN: Case = Case {
    weighted: false,
    gamma: Gamma::Free,
    bias: true,
    sigma: None,
    features: false,
    of_q: 1,
    estimator: Estimator::Rademacher,
    samples: 3,
};

/// `(θ, log σ | θ̃ | m, log s)`, `ν`, and the raw values of `ξ` and `τ`, all in one vector.
type Point = Vec<f64>;

fn noise(step: u64, length: usize) -> Vec<f64> {
    let stream = Stream::new(9, Purpose::Test, step);
    (0..length as u64).map(|k| stream.normal(k, 0)).collect()
}

fn softplus(a: f64) -> f64 {
    a.max(0.0) + (-a.abs()).exp().ln_1p()
}

/// Where the dense ELBO takes its expectations from.
#[derive(Clone, Copy, PartialEq)]
enum Expectation {
    /// The numbers that the fit draws in its first step.
    Drawn,
    /// `q` itself.
    Exact,
}

struct Dense {
    case: Case,
    graph: Graph,
    y: Vec<f64>,
    observed: Vec<bool>,
    features: Vec<f64>,
}

impl Dense {
    fn new(case: Case) -> Self {
        Dense {
            case,
            graph: graphs::random(NODES, 30, case.weighted, 3),
            y: noise(1, NODES),
            observed: noise(2, NODES).iter().map(|v| *v > -0.3).collect(),
            features: noise(3, NODES * FEATURES),
        }
    }

    /// Length of the vector that all ranks have.
    fn common(&self) -> usize {
        let linear = if self.case.features { 2 * FEATURES } else { 0 };
        PER_LAYER * (LAYERS + self.case.of_q) + 1 + linear
    }

    /// A point with nothing special about it.
    fn point(&self) -> Point {
        let mut point: Point =
            noise(4, self.common() + 3 * NODES).iter().map(|v| 0.4 * v).collect();
        for l in 0..LAYERS {
            point[PER_LAYER * l + 1] = [-0.9, 0.4][l];
            if !self.case.bias {
                point[PER_LAYER * l + 3] = 0.0;
            }
        }
        point[PER_LAYER * LAYERS] = self.case.sigma.unwrap_or(0.6).ln();
        for l in 0..self.case.of_q {
            point[PER_LAYER * (LAYERS + l) + 4] = 0.0; // G̃ has no biases
        }
        point
    }

    fn layers(&self, thetas: &[f64], gamma: Gamma) -> Vec<dense::Layer> {
        let layer = |t: &[f64]| {
            let gamma = match gamma {
                Gamma::Free => 1.0 / (1.0 + (-t[2]).exp()),
                Gamma::Fixed(value) => value,
            };
            (t[0].exp(), t[0].exp() * t[1].tanh(), gamma, t[3])
        };
        thetas.chunks_exact(PER_LAYER).map(layer).collect()
    }

    /// The ELBO from its definition, constants included.
    fn elbo(&self, point: &[f64], expectation: Expectation) -> f64 {
        let n = NODES;
        let (common, fields) = point.split_at(self.common());
        let (own, rest) = common.split_at(PER_LAYER * LAYERS + 1);
        let (of_q, linear) = rest.split_at(PER_LAYER * self.case.of_q);
        let layers = self.layers(&own[..PER_LAYER * LAYERS], self.case.gamma);
        let of_q = self.layers(of_q, Gamma::Free);
        let log_sigma = own[PER_LAYER * LAYERS];
        let nu = &fields[..n];
        let xi: Vec<f64> = fields[n..2 * n].iter().map(|&a| softplus(a)).collect();
        let tau: Vec<f64> = fields[2 * n..].iter().map(|&a| softplus(a)).collect();

        // S as a matrix.
        let identity = |d: &[f64]| -> Vec<f64> {
            (0..n * n).map(|k| if k / n == k % n { d[k / n] } else { 0.0 }).collect()
        };
        let mean_field = of_q.is_empty();
        let inner = if mean_field { identity(&vec![1.0; n]) } else { identity(&tau) };
        let mut s = dense::forward(&self.graph, &of_q, false, &inner, n);
        (0..n * n).for_each(|k| s[k] *= xi[k / n]);
        let rows: Matrix = s.chunks_exact(n).map(<[f64]>::to_vec).collect();
        let row_squares: Vec<f64> = rows.iter().map(|r| r.iter().map(|v| v * v).sum()).collect();

        let squares = |z: &[f64]| z.iter().map(|z| z * z).sum::<f64>();
        let target: Vec<f64> = (0..n)
            .map(|i| {
                let f = &self.features[i * FEATURES..][..FEATURES];
                let shift: f64 = f.iter().zip(linear).map(|(f, m)| f * m).sum();
                self.y[i] - shift
            })
            .collect();
        let misfit = |x: &dyn Fn(usize) -> f64, target: &dyn Fn(usize) -> f64| -> f64 {
            (0..n).filter(|&i| self.observed[i]).map(|i| (x(i) - target(i)).powi(2)).sum()
        };
        let of_nu = || {
            let z = dense::forward(&self.graph, &layers, true, nu, 1);
            (squares(&z), misfit(&|i| nu[i], &|i| target[i]))
        };
        let (energy, mut observed_misfit) = match (expectation, self.case.estimator) {
            (Expectation::Exact, _) => {
                let (energy, misfit_of_nu) = of_nu();
                let gs = dense::forward(&self.graph, &layers, false, &s, n);
                let variance: f64 =
                    (0..n).filter(|&i| self.observed[i]).map(|i| row_squares[i]).sum();
                (energy + squares(&gs), misfit_of_nu + variance)
            }
            (Expectation::Drawn, estimator) => {
                let stream = Stream::new(SEED, Purpose::Variational, 0);
                let (mut energy, mut data) = (0.0, 0.0);
                for c in 0..self.case.samples as u64 {
                    let r: Vec<f64> = (0..n as u64)
                        .map(|i| match estimator {
                            Estimator::Gaussian => stream.normal(i, c),
                            Estimator::Rademacher => stream.rademacher(i, c),
                        })
                        .collect();
                    let d = dense::times(&rows, &r);
                    match estimator {
                        Estimator::Gaussian => {
                            let x: Vec<f64> = nu.iter().zip(&d).map(|(m, d)| m + d).collect();
                            energy += squares(&dense::forward(&self.graph, &layers, true, &x, 1));
                            data += misfit(&|i| x[i], &|i| target[i]);
                        }
                        Estimator::Rademacher => {
                            energy += squares(&dense::forward(&self.graph, &layers, false, &d, 1));
                            data += misfit(&|i| d[i], &|_| 0.0);
                        }
                    }
                }
                (energy, data) =
                    (energy / self.case.samples as f64, data / self.case.samples as f64);
                if estimator == Estimator::Rademacher {
                    let (more, misfit_of_nu) = of_nu();
                    energy += more;
                    if self.case.of_q == 1 {
                        data = (0..n).filter(|&i| self.observed[i]).map(|i| row_squares[i]).sum();
                    }
                    data += misfit_of_nu;
                }
                (energy, data)
            }
        };
        let log_det = |layers: &[dense::Layer]| -> f64 {
            layers.iter().map(|l| dense::log_abs_det(&dense::layer(&self.graph, l))).sum()
        };
        let mut elbo = 0.0;
        if !linear.is_empty() {
            let (mean, log_std) = linear.split_at(FEATURES);
            for k in 0..FEATURES {
                let variance = (2.0 * log_std[k]).exp();
                for i in (0..n).filter(|&i| self.observed[i]) {
                    observed_misfit += variance * self.features[i * FEATURES + k].powi(2);
                }
                // Entropy and prior, each with its ½ log 2π.
                elbo += log_std[k] + 0.5 + 0.5 * PRIOR.ln();
                elbo -= 0.5 * PRIOR * (mean[k] * mean[k] + variance);
            }
        }
        let log_2pi = (2.0 * std::f64::consts::PI).ln();
        let m = self.observed.iter().filter(|&&o| o).count() as f64;
        elbo += -0.5 * energy + log_det(&layers) - 0.5 * n as f64 * log_2pi;
        elbo += -0.5 * observed_misfit * (-2.0 * log_sigma).exp() - m * log_sigma;
        elbo -= 0.5 * m * log_2pi;
        let logs = |v: &[f64]| v.iter().map(|v| v.ln()).sum::<f64>();
        elbo += logs(&xi) + log_det(&of_q) + 0.5 * n as f64 * (1.0 + log_2pi);
        if !mean_field { elbo + logs(&tau) } else { elbo }
    }

    /// `−∂ELBO` by central differences, zero for what stays.
    fn slopes(&self, point: &[f64], expectation: Expectation) -> Vec<f64> {
        let last = PER_LAYER * LAYERS;
        let stays = |k: usize| {
            let of_own = k < last;
            let of_q = k > last && k <= last + PER_LAYER * self.case.of_q;
            (of_own && k % PER_LAYER == 3 && !self.case.bias)
                || (of_own && k % PER_LAYER == 2 && self.case.gamma != Gamma::Free)
                || (k == last && self.case.sigma.is_some())
                || (of_q && (k - last - 1) % PER_LAYER == 3)
        };
        let slope = |k: usize| {
            let at = |h: f64| {
                let mut moved = point.to_vec();
                moved[k] += h;
                self.elbo(&moved, expectation)
            };
            let h = 1e-5;
            -(at(h) - at(-h)) / (2.0 * h)
        };
        (0..point.len()).map(|k| if stays(k) { 0.0 } else { slope(k) }).collect()
    }

    fn part(&self, world: &World) -> Part {
        part_of(&self.graph, world)
    }

    fn fit<E: Engine>(&self, engine: &mut E) -> Elbo<E> {
        let ids = engine.part().owned_ids().to_vec();
        let pick = |values: &[f64], columns: usize| -> Vec<f64> {
            let rows = ids.iter().map(|&i| &values[i as usize * columns..][..columns]);
            rows.flatten().copied().collect()
        };
        let observed: Vec<bool> = ids.iter().map(|&i| self.observed[i as usize]).collect();
        let features = self.case.features.then(|| Features {
            count: FEATURES,
            values: pick(&self.features, FEATURES),
            prior_precision: PRIOR,
        });
        let spectrum = spectrum(&self.graph);
        let data = Observations::new(engine, &pick(&self.y, 1), &observed).unwrap();
        let problem = Problem::new(data, features, spectrum).unwrap();
        let Case { gamma, bias, sigma, .. } = self.case;
        let shape = Shape { layers: LAYERS, bias, gamma, sigma };
        let options = Options {
            layers: self.case.of_q,
            samples: self.case.samples,
            estimator: self.case.estimator,
            seed: SEED,
            ..Options::default()
        };
        Elbo::new(engine, problem, &shape, options).unwrap()
    }

    /// ELBO and gradient of minus it at a point, as the fit has them: in step `step`, which
    /// decides about the random numbers.
    fn evaluate<E: Engine>(&self, engine: &mut E, point: &[f64], step: u64) -> (f64, Vec<f64>) {
        let mut fit = self.fit(engine);
        let ids = engine.part().owned_ids().to_vec();
        let (common, fields) = point.split_at(self.common());
        let mut state = fit.save(engine);
        state.step = step;
        state.numbers.insert("vector".into(), common.to_vec());
        for (name, values) in ["nu", "xi", "tau"].into_iter().zip(fields.chunks_exact(NODES)) {
            let mine = ids.iter().map(|&i| values[i as usize]).collect();
            state.fields.insert(name.into(), mine);
        }
        fit.restore(engine, state).unwrap();
        let report = fit.step(engine).unwrap();
        let after = fit.save(engine);
        let moment = 1.0 - Options::default().adam.beta1;
        let mut gradient: Vec<f64> =
            after.numbers["adam.first"].iter().map(|m| m / moment).collect();
        for name in ["nu.first", "xi.first", "tau.first"] {
            let mine = &after.fields[name];
            let all = engine.world().gather_rows(&ids, mine, 1, NODES).unwrap();
            gradient.extend(all.unwrap_or_default().iter().map(|m| m / moment));
        }
        (report.objective, gradient)
    }

    fn check<E: Engine>(&self, engine: &mut E, tolerance: f64, what: &str) {
        let point = self.point();
        let (value, gradient) = self.evaluate(engine, &point, 0);
        let expected = self.elbo(&point, Expectation::Drawn);
        let error = ((value - expected) / expected).abs();
        assert!(error < tolerance, "{what}, {:?}: {value} instead of {expected}", self.case);
        if engine.world().is_root() {
            let mut slopes = self.slopes(&point, Expectation::Drawn);
            if self.case.features {
                // The mean of the coefficients always takes the expectation of x, which is known.
                let first = self.common() - 2 * FEATURES;
                let exact = self.slopes(&point, Expectation::Exact);
                slopes[first..first + FEATURES].copy_from_slice(&exact[first..first + FEATURES]);
            }
            let error = relative_error(&gradient, &slopes);
            let worst = gradient.iter().zip(&slopes).map(|(g, s)| (g - s).abs());
            let worst = worst.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            assert!(error < 30.0 * tolerance, "{what}, {:?}: {error:.1e} {worst:?}", self.case);
        }
    }

    fn check_all_engines(&self, world: &Rc<World>) {
        let mut engine = Native::<f64>::new(world.clone(), self.part(world)).unwrap();
        self.check(&mut engine, 1e-9, "native");
        let mut engine = Native::<f32>::new(world.clone(), self.part(world)).unwrap();
        self.check(&mut engine, 2e-6, "native f32");
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let device = tch::Device::Cpu;
            let mut engine = Torch::<f64>::new(world.clone(), self.part(world), device).unwrap();
            self.check(&mut engine, 1e-9, "torch");
        }
    }
}

fn part_of(graph: &Graph, world: &World) -> Part {
    let owner = partition::divide(graph, world.size(), &Default::default()).unwrap();
    Partition::new(graph, owner, world.size(), Order::Locality).unwrap().part(world.rank())
}

/// Eigenvalues of `D^-½ A D^-½`, from the dense matrix by Jacobi rotations.
fn spectrum(graph: &Graph) -> Spectrum {
    let (n, degree) = (graph.nodes(), graph.degrees());
    let mut a = vec![vec![0.0; n]; n];
    for (i, row) in a.iter_mut().enumerate() {
        for (j, w) in graph.weighted_neighbours(i) {
            row[j as usize] = w / (degree[i] * degree[j as usize]).sqrt();
        }
    }
    let logs = degree.iter().map(|d| d.ln()).sum();
    Spectrum::new(n, logs, Source::Eigenvalues(dense::symmetric_eigenvalues(a)))
}

#[test]
fn gradient_is_that_of_the_dense_elbo() {
    on_ranks("gradient_is_that_of_the_dense_elbo", &[1, 3], |world| {
        for estimator in [Estimator::Gaussian, Estimator::Rademacher] {
            for case in [
                Case { of_q: 0, ..PLAIN },
                PLAIN,
                Case { of_q: 2, weighted: true, ..PLAIN },
                Case { weighted: true, features: true, ..PLAIN },
                Case { gamma: Gamma::Fixed(1.0), bias: false, samples: 10, ..PLAIN },
                Case { gamma: Gamma::Fixed(0.0), weighted: true, sigma: Some(0.3), ..PLAIN },
                Case { of_q: 2, features: true, sigma: Some(0.5), bias: false, ..PLAIN },
            ] {
                Dense::new(Case { estimator, ..case }).check_all_engines(world);
            }
        }
        Vec::new()
    });
}

/// Means over many draws are within five standard errors of value and gradient of the exact ELBO,
/// for both estimators; the one that takes the mean exactly has the smaller errors.
#[test]
fn estimators_agree_in_expectation() {
    let world = World::solo();
    for of_q in 0..=2 {
        let mut errors = Vec::new();
        for estimator in [Estimator::Gaussian, Estimator::Rademacher] {
            let case = Case { estimator, of_q, samples: 50, features: true, ..PLAIN };
            let dense = Dense::new(case);
            let mut engine = Native::<f64>::new(world.clone(), dense.part(&world)).unwrap();
            let point = dense.point();
            let mut exact = vec![dense.elbo(&point, Expectation::Exact)];
            exact.extend(dense.slopes(&point, Expectation::Exact));
            let (steps, mut sums) = (200, vec![[0.0; 2]; exact.len()]);
            for step in 0..steps {
                let (value, gradient) = dense.evaluate(&mut engine, &point, step);
                let deviations = std::iter::once(&value).chain(&gradient).zip(&exact);
                for (sum, (found, exact)) in sums.iter_mut().zip(deviations) {
                    let d = found - exact;
                    (sum[0], sum[1]) = (sum[0] + d, sum[1] + d * d);
                }
            }
            let steps = steps as f64;
            for (k, (sum, exact)) in sums.iter().zip(&exact).enumerate() {
                let variance = (sum[1] / steps - (sum[0] / steps).powi(2)).max(0.0);
                let error = (variance / (steps - 1.0)).sqrt();
                let slack = 5.0 * error + 1e-6 * exact.abs().max(1.0);
                let off = (sum[0] / steps).abs();
                assert!(off <= slack, "{estimator:?}, {of_q} layers, {k}: {off} > {slack}");
            }
            errors.push(sums.iter().map(|s| s[1]).sum::<f64>().sqrt());
        }
        assert!(errors[1] < 0.8 * errors[0], "{of_q} layers: {errors:?}");
    }
}

// ---- fits ---------------------------------------------------------------------------------------

const STEPS: u64 = 200;

/// A directory that all worlds of one test share.
fn shared() -> PathBuf {
    let result = std::env::var_os("DGMRF_TEST_RESULT").expect("set by on_ranks");
    Path::new(&result).parent().unwrap().to_owned()
}

/// Fits with a break after each of `legs`: the state goes to disk, and a new fit takes it up.
fn fit_in_legs<E: Engine>(
    dense: &Dense,
    engine: &mut E,
    dir: &Path,
    begin: Option<&Path>,
    legs: &[u64],
) -> (f64, State) {
    let world = engine.world().clone();
    let mut path = begin.map(Path::to_owned);
    let mut last = (f64::NAN, State::default());
    for &steps in legs {
        let mut fit = dense.fit(engine);
        if let Some(path) = &path {
            let loaded = checkpoint::load(&world, path, engine.part()).unwrap();
            fit.restore(engine, loaded.state).unwrap();
        }
        let mut elbo = f64::NAN;
        for _ in 0..steps {
            elbo = fit.step(engine).unwrap().objective;
        }
        let state = fit.save(engine);
        let about = Default::default();
        path = Some(checkpoint::save(&world, dir, engine.part(), &about, &state).unwrap());
        last = (elbo, state);
    }
    last
}

fn bits(state: &State) -> Vec<u64> {
    let all = state.numbers.values().chain(state.fields.values());
    all.flatten().map(|v| v.to_bits()).collect()
}

/// The same case on any number of ranks: with and without breaks, and taken up from the middle of a
/// fit on another number of ranks.
fn fit_with_breaks<E: Engine>(dense: &Dense, engine: &mut E, name: &str) -> Vec<f64> {
    let size = engine.world().size();
    let dir = |what: &str| shared().join(format!("{name}-{what}-{size}"));
    let (whole, state) = fit_in_legs(dense, engine, &dir("whole"), None, &[STEPS]);
    let legs = [33, 1, 66, 50, 30, 20];
    let (broken, again) = fit_in_legs(dense, engine, &dir("broken"), None, &legs);
    assert_eq!(whole.to_bits(), broken.to_bits(), "{name} on {size} ranks");
    assert!(bits(&state) == bits(&again), "{name} on {size} ranks: the states differ");
    // Half of it on one rank, for those who come after.
    let half = shared().join(format!("{name}-half"));
    if size == 1 {
        fit_in_legs(dense, engine, &half, None, &[STEPS / 2]);
    }
    let middle = half.join(format!("step-{:09}", STEPS / 2));
    let (taken_up, _) = fit_in_legs(dense, engine, &dir("taken-up"), Some(&middle), &[STEPS / 2]);
    vec![whole, taken_up]
}

#[test]
fn fits_do_not_depend_on_ranks_or_breaks() {
    let mut results = on_ranks("fits_do_not_depend_on_ranks_or_breaks", &[1, 2, 3, 4], |world| {
        let mut found = Vec::new();
        let gaussian = Estimator::Gaussian;
        for case in [
            Case { weighted: true, samples: 10, ..PLAIN },
            Case { estimator: gaussian, features: true, of_q: 2, ..PLAIN },
            Case { estimator: gaussian, of_q: 0, samples: 4, ..PLAIN },
        ] {
            let dense = Dense::new(case);
            let name = format!("{}-{:?}", case.of_q, case.estimator);
            let mut engine = Native::<f64>::new(world.clone(), dense.part(world)).unwrap();
            found.extend(fit_with_breaks(&dense, &mut engine, &name));
            let mut engine = Native::<f32>::new(world.clone(), dense.part(world)).unwrap();
            fit_with_breaks(&dense, &mut engine, &format!("{name}-single"));
            #[cfg(feature = "torch")]
            if case.of_q == 1 && world.size() < 3 {
                use dgmrf::field::torch::Torch;
                let device = tch::Device::Cpu;
                let mut engine =
                    Torch::<f64>::new(world.clone(), dense.part(world), device).unwrap();
                let on_torch = fit_with_breaks(&dense, &mut engine, &format!("{name}-torch"));
                assert!(relative_error(&on_torch, &found[..2]) < 1e-8, "{on_torch:?}, {found:?}");
            }
        }
        found
    });
    let alone = results.remove(0);
    for (k, found) in results.iter().enumerate() {
        for (a, b) in alone.iter().zip(found) {
            let error = ((a - b) / a).abs();
            assert!(error < 1e-8, "{} ranks: {b} instead of {a}, {error:.1e}", k + 2);
        }
    }
    for pair in alone.chunks_exact(2) {
        assert_eq!(pair[0].to_bits(), pair[1].to_bits(), "taken up on the same number of ranks");
    }
}
