//! The posterior against dense linear algebra: on every engine, on 1 to 4 ranks.

mod support;

use dgmrf::CgError;
use dgmrf::comm::World;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::likelihood::{Curvature, Gaussian, Observations};
use dgmrf::model::{Gamma, Model};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::posterior::{self, MeanSource, Precision, Preconditioner};
use dgmrf::random::{Purpose, Stream};
use dgmrf::solver::{Refusal, cg, schwarz};
use faer::Mat;
use std::rc::Rc;
use support::dense::{self, Layer};
use support::{graphs, on_ranks, relative_error};

/// A graph with data, a model, and how many samples to draw.
#[derive(Clone)]
struct Case {
    graph: Graph,
    layers: Vec<Layer>,
    sigma: f64,
    y: Vec<f64>,
    observed: Vec<bool>,
    samples: usize,
    seed: u64,
}

impl Case {
    fn random(nodes: usize, weighted: bool, depth: usize, samples: usize, seed: u64) -> Self {
        let graph = graphs::random(nodes, 2 * nodes, weighted, seed);
        let stream = Stream::new(seed, Purpose::Test, 2);
        let layer = |l: u64| {
            let alpha = 0.8 + stream.uniform(l, 0);
            let gamma = 0.1 + 0.8 * stream.uniform(l, 1);
            (alpha, -0.95 * alpha, gamma, stream.uniform(l, 2) - 0.5)
        };
        let y = (0..nodes as u64).map(|i| 1.0 + stream.normal(i, 3)).collect();
        let observed = (0..nodes as u64).map(|i| stream.uniform(i, 4) < 0.6).collect();
        let layers = (0..depth as u64).map(layer).collect();
        Case { graph, layers, sigma: 0.3, y, observed, samples, seed }
    }

    fn model(&self) -> Model {
        Model::from_coefficients(&self.layers, Gamma::Free).expect("a model")
    }

    fn noise(&self) -> Gaussian {
        Gaussian::new(self.sigma).expect("a positive number")
    }

    /// The data of the rows of an engine.
    fn data<E: Engine>(&self, engine: &E) -> Observations<E> {
        let ids = engine.part().owned_ids();
        let observed: Vec<bool> = ids.iter().map(|&i| self.observed[i as usize]).collect();
        let y: Vec<f64> = ids.iter().map(|&i| self.y[i as usize]).collect();
        Observations::new(engine, &y, &observed).expect("finite data")
    }

    fn part(&self, world: &World) -> Part {
        let parts = world.size();
        let owner = partition::divide(&self.graph, parts, &Default::default()).expect("METIS");
        let partition = Partition::new(&self.graph, owner, parts, Order::Locality);
        partition.expect("no empty part").part(world.rank())
    }

    /// Right-hand sides of the mean and the samples, row-major, from the definition: the mean
    /// solves `Q̃ μ = σ⁻² y_m − Gᵀ g(0)`.
    fn dense_rhs(&self, g: &Mat<f64>) -> Vec<f64> {
        let (n, columns) = (self.graph.nodes(), 1 + self.samples);
        let offset = dense::forward(&self.graph, &self.layers, true, &vec![0.0; n], 1);
        let streams = [0, 1].map(|k| Stream::new(self.seed, Purpose::Posterior, k));
        let mut rhs = vec![0.0; n * columns];
        for c in 0..columns {
            for i in 0..n {
                let w = |k: usize| match c {
                    0 => -offset[k],
                    _ => streams[0].normal(k as u64, c as u64 - 1),
                };
                let v = match c {
                    0 => self.y[i] / self.sigma,
                    _ => streams[1].normal(i as u64, c as u64 - 1),
                };
                let mine = if self.observed[i] { v / self.sigma } else { 0.0 };
                rhs[i * columns + c] = mine + (0..n).map(|k| g[(k, i)] * w(k)).sum::<f64>();
            }
        }
        rhs
    }

    /// Everything ready to be solved.
    fn system<E: Engine>(&self, engine: &mut E) -> System<E> {
        let data = self.data(engine);
        let mut precision = Precision::new(engine, self.layers.len());
        precision.prepare(engine, &self.model(), &self.noise().curvature(&data.observed));
        let columns = 1 + self.samples;
        let [mut w, mut v, mut b] = [0; 3].map(|_| engine.zeros(columns));
        let [mut drawn_w, mut drawn_v] = [0; 2].map(|_| engine.zeros(self.samples));
        posterior::draw(engine, self.seed, 0, &mut drawn_w, &mut drawn_v);
        let places: Vec<(usize, usize)> = (0..self.samples).map(|c| (c, c + 1)).collect();
        engine.copy_columns(&drawn_w, &mut w, &places);
        engine.copy_columns(&drawn_v, &mut v, &places);
        let mut mean = MeanSource::new(engine);
        mean.place(engine, &mut precision, &data.fields, (&mut w, &mut v), 0);
        precision.right_hand_side(engine, &mut w, &v, &mut b);
        System { precision, b, columns, nodes: self.graph.nodes() }
    }
}

struct System<E: Engine> {
    precision: Precision<E>,
    b: E::Block,
    columns: usize,
    nodes: usize,
}

impl<E: Engine> System<E> {
    fn solve(
        &mut self,
        engine: &mut E,
        preconditioner: &mut Preconditioner<E>,
        x: &mut E::Block,
        options: &cg::Options,
    ) -> Result<cg::Info, CgError> {
        let mut work = cg::Workspace::new(engine);
        cg::solve(engine, &mut self.precision, preconditioner, &self.b, x, options, &mut work)
    }

    /// All rows on rank 0, nothing elsewhere.
    fn gather(&self, engine: &E, block: &E::Block) -> Vec<f64> {
        let ids = engine.part().owned_ids().to_vec();
        let rows = engine.download(block);
        let gathered = engine.world().gather_rows(&ids, &rows, engine.columns(block), self.nodes);
        gathered.expect("all rows").unwrap_or_default()
    }
}

/// Blocks of which even small graphs have several.
const SMALL_BLOCKS: schwarz::Options =
    schwarz::Options { nodes: 12, overlap: Some(2), entries: [1 << 20, 1 << 20] };

/// Solves on an engine with every preconditioner and compares with the dense solution.
fn check_solutions<E: Engine>(case: &Case, engine: &mut E, what: &str, names: &[&str]) -> Vec<f64> {
    let mut system = case.system(engine);
    let (q, g) = dense::precision(&case.graph, &case.layers, &case.observed, case.sigma);
    let rhs = case.dense_rhs(&g);
    let reference = dense::solve(&q, &rhs, system.columns);
    let got_rhs = system.gather(engine, &system.b);
    let mut result = Vec::new();
    for &name in names {
        let mut preconditioner = match name {
            "none" => Preconditioner::none(engine),
            "schwarz" => Preconditioner::schwarz(engine, &system.precision, &SMALL_BLOCKS).unwrap(),
            _ => Preconditioner::jacobi(engine, &system.precision),
        };
        let mut x = engine.zeros(system.columns);
        let options = cg::Options { tolerance: 1e-12, verify: true, ..Default::default() };
        let info = system.solve(engine, &mut preconditioner, &mut x, &options).expect("solution");
        assert!(info.columns.iter().all(|c| c.residual <= 2e-12), "{what}, {name}: {info:?}");
        let got = system.gather(engine, &x);
        if engine.world().is_root() {
            let error = relative_error(&got_rhs, &rhs);
            assert!(error < 1e-12, "{what}: right-hand side {error:.1e}");
            let error = relative_error(&got, &reference);
            assert!(error < 1e-9, "{what}, {name}: {error:.1e}, {info:?}");
        }
        result.extend(got);

        // From the solution there is nothing left to do; from a poor guess there is.
        let warm = cg::Options { tolerance: 1e-9, warm_start: true, ..options };
        let info = system.solve(engine, &mut preconditioner, &mut x, &warm).expect("solution");
        assert_eq!(info.iterations, 0, "{what}, {name}: {info:?}");
        engine.axpy(&vec![0.5; system.columns], &system.b, &mut x);
        let info = system.solve(engine, &mut preconditioner, &mut x, &warm).expect("solution");
        assert!(info.iterations > 0);
        let got = system.gather(engine, &x);
        if engine.world().is_root() {
            let error = relative_error(&got, &reference);
            assert!(error < 1e-6, "{what}, {name}, warm: {error:.1e}");
        }
    }
    result
}

/// A check of a case on some engine.
trait Check {
    fn on<E: Engine>(&self, case: &Case, engine: &mut E, what: &str) -> Vec<f64>;
}

/// Checks the native engine; torch has to agree with it on `alike`, a shorter check (a tensor
/// operation on a small graph costs as much as on a large one).
fn on_all_engines(
    case: &Case,
    world: &Rc<World>,
    check: &impl Check,
    alike: &impl Check,
) -> Vec<f64> {
    let mut engine = Native::<f64>::new(world.clone(), case.part(world)).expect("an engine");
    let result = check.on(case, &mut engine, "native");
    let native = alike.on(case, &mut engine, "native");
    let again = alike.on(case, &mut engine, "native");
    assert_eq!(native, again, "the same computation twice must agree bit for bit");
    #[cfg(feature = "torch")]
    if world.size() < 3 {
        use dgmrf::field::torch::Torch;
        let cpu = tch::Device::Cpu;
        let mut engine = Torch::<f64>::new(world.clone(), case.part(world), cpu).expect("engine");
        let torch = alike.on(case, &mut engine, "torch");
        let error = relative_error(&torch, &native);
        assert!(native.is_empty() || error < 1e-8, "engines differ by {error:.1e}");
    }
    result
}

/// Solutions with some preconditioners.
struct Solutions(&'static [&'static str]);

impl Check for Solutions {
    fn on<E: Engine>(&self, case: &Case, engine: &mut E, what: &str) -> Vec<f64> {
        check_solutions(case, engine, what, self.0)
    }
}

#[test]
fn solutions_on_ranks() {
    let results = on_ranks("solutions_on_ranks", &[1, 2, 3, 4], |world| {
        (0..4)
            .flat_map(|seed| {
                let (depth, samples) = (1 + seed % 3, [1, 9, 15, 20][seed]);
                let case = Case::random(40 + 15 * seed, seed % 2 == 1, depth, samples, seed as u64);
                on_all_engines(
                    &case,
                    world,
                    &Solutions(&["none", "jacobi", "schwarz"]),
                    &Solutions(&["jacobi", "schwarz"]),
                )
            })
            .collect()
    });
    for (k, result) in results.iter().enumerate().skip(1) {
        let error = relative_error(result, &results[0]);
        assert!(error < 1e-9, "{} ranks differ from 1 by {error:.1e}", k + 1);
    }
}

fn native(case: &Case) -> Native<f64> {
    let world = World::solo();
    Native::new(world.clone(), case.part(&world)).expect("an engine")
}

/// Columns of very different difficulty: the easy ones must leave the work, and come out right.
#[test]
fn finished_columns_are_dropped() {
    let mut case = Case::random(300, false, 2, 15, 3);
    case.observed = (0..300).map(|i| i % 50 == 0).collect();
    let mut engine = native(&case);
    let mut system = case.system(&mut engine);
    let mut preconditioner = Preconditioner::jacobi(&engine, &system.precision);
    let options = cg::Options { tolerance: 1e-10, ..Default::default() };
    let mut exact = engine.zeros(16);
    system.solve(&mut engine, &mut preconditioner, &mut exact, &options).expect("solution");
    // Start column c from a solution that is 10^-c off.
    let mut x = engine.zeros(16);
    engine.copy_columns(&exact, &mut x, &(0..16).map(|c| (c, c)).collect::<Vec<_>>());
    let off: Vec<f64> = (0..16).map(|c| 10f64.powi(-c)).collect();
    engine.axpy(&off, &system.b, &mut x);
    let warm = cg::Options { warm_start: true, ..options };
    let info = system.solve(&mut engine, &mut preconditioner, &mut x, &warm).expect("solution");
    let each: Vec<usize> = info.columns.iter().map(|c| c.iterations).collect();
    assert!(each[0] > 2 * each[12], "{each:?}");
    assert!(info.column_products < 16 * info.products * 4 / 5, "{info:?}");
    let error = relative_error(&engine.download(&x), &engine.download(&exact));
    assert!(error < 1e-7, "{error:.1e}");
}

/// A lattice of 40 x 40 nodes, observed around a hole of 30 x 30.
fn lattice_with_hole(depth: usize, rho: f64) -> Case {
    let side = 40;
    let mut case = Case::random(side * side, false, depth, 2, 11);
    let right = (0..side * side).filter(|i| i % side + 1 < side).map(|i| (i, i + 1));
    let down = (0..side * (side - 1)).map(|i| (i, i + side));
    let pairs = right.chain(down).map(|(i, j)| (i as u32, j as u32));
    case.graph = graphs::from_pairs(side * side, pairs);
    let inside = |k: usize| (5..35).contains(&k);
    case.observed = (0..side * side).map(|i| !(inside(i % side) && inside(i / side))).collect();
    case.layers = vec![(1.0, rho, 0.3, 0.1); depth];
    case
}

/// Where nothing is observed the diagonal is of little use; blocks are, on any number of ranks.
#[test]
fn blocks_bridge_unobserved_regions() {
    let solutions = on_ranks("blocks_bridge_unobserved_regions", &[1, 2, 3, 4], |world| {
        let case = lattice_with_hole(2, -0.95);
        let mut engine = Native::<f64>::new(world.clone(), case.part(world)).expect("an engine");
        let mut system = case.system(&mut engine);
        let options = cg::Options { tolerance: 1e-10, verify: true, ..Default::default() };
        let [mut x, mut y] = [0; 2].map(|_| engine.zeros(3));
        let mut jacobi = Preconditioner::jacobi(&engine, &system.precision);
        let slow = system.solve(&mut engine, &mut jacobi, &mut x, &options).expect("solution");
        let settings = schwarz::Options { nodes: 200, ..Default::default() };
        let made = Preconditioner::schwarz(&engine, &system.precision, &settings);
        let mut blocks = made.expect("blocks");
        let fast = system.solve(&mut engine, &mut blocks, &mut y, &options).expect("solution");
        let (slow, fast) = (slow.iterations, fast.iterations);
        assert!(slow > 8 * fast && fast < 40, "{slow} and {fast} iterations");
        let error = relative_error(&engine.download(&y), &engine.download(&x));
        assert!(error < 1e-6, "{error:.1e}"); // the residual of the slow one says little

        // They follow the parameters: made for others they are poor, until they are told.
        let other = Model::from_coefficients(&[(3.0, -0.3, 0.3, 0.0); 2], Gamma::Free).unwrap();
        system.precision.prepare(
            &engine,
            &other,
            &Gaussian::new(0.01).unwrap().curvature(&case.data(&engine).observed),
        );
        blocks.follow(&engine, &system.precision);
        let mut system = case.system(&mut engine);
        let stale = system.solve(&mut engine, &mut blocks, &mut x, &options).expect("solution");
        blocks.follow(&engine, &system.precision);
        let again = system.solve(&mut engine, &mut blocks, &mut x, &options).expect("solution");
        assert_eq!(again.iterations, fast);
        assert!(stale.iterations > 2 * fast, "{} and {fast}", stale.iterations);
        assert_eq!(engine.download(&x), engine.download(&y), "bit for bit");
        system.gather(&engine, &x)
    });
    for (k, result) in solutions.iter().enumerate().skip(1) {
        let error = relative_error(result, &solutions[0]);
        assert!(error < 1e-8, "{} ranks differ from 1 by {error:.1e}", k + 1);
    }
}

/// The mean that blocks of a lattice with a hole lead to, and after how many iterations.
fn mean_by_blocks(case: &Case) -> (Vec<f64>, usize) {
    let mut engine = native(case);
    let mut system = case.system(&mut engine);
    let settings = schwarz::Options { nodes: 200, ..Default::default() };
    let mut blocks =
        Preconditioner::schwarz(&engine, &system.precision, &settings).expect("blocks");
    let mut x = engine.zeros(system.columns);
    let options = cg::Options { tolerance: 1e-10, verify: true, ..Default::default() };
    let info = system.solve(&mut engine, &mut blocks, &mut x, &options).expect("solution");
    let columns = system.columns;
    (engine.download(&x).into_iter().step_by(columns).collect(), info.iterations)
}

/// Factors of blocks are stored in single precision; the entries of `Q̃` may be far outside of it.
#[test]
fn blocks_take_any_units() {
    let case = lattice_with_hole(2, -0.95);
    let (mean, iterations) = mean_by_blocks(&case);
    for unit in [1e-40, 1e40] {
        // G becomes unit² G and 1/σ becomes unit²/σ: the mean stays.
        let mut other = case.clone();
        let layer = |(unit, bias), (alpha, beta, gamma, b): Layer| {
            (unit * alpha, unit * beta, gamma, bias * b)
        };
        other.layers[0] = layer((unit, unit), case.layers[0]);
        other.layers[1] = layer((unit, unit * unit), case.layers[1]);
        other.sigma = case.sigma / (unit * unit);
        let (same, again) = mean_by_blocks(&other);
        let error = relative_error(&same, &mean);
        assert!(error < 1e-8 && again.abs_diff(iterations) <= 1, "{unit:e}: {error:e}, {again}");
    }
}

/// Threads share the blocks among them, and change nothing.
#[test]
fn threads_leave_blocks_as_they_are() {
    let results = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| mean_by_blocks(&lattice_with_hole(2, -0.95)))
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

/// The bound on the error holds, and is not far from the error itself.
#[test]
fn the_error_is_bounded() {
    for (seed, tolerance) in [(1, 1e-2), (2, 1e-2), (3, 1e-3)] {
        let mut case = Case::random(400, seed == 2, 1 + seed as usize % 2, 3, seed);
        case.graph = graphs::from_pairs(400, (0..399).map(|i| (i, i + 1))); // a path: slow
        case.observed = (0..400).map(|i| i % 100 == 0).collect();
        let mut engine = native(&case);
        let mut system = case.system(&mut engine);
        let (q, g) = dense::precision(&case.graph, &case.layers, &case.observed, case.sigma);
        let reference = dense::solve(&q, &case.dense_rhs(&g), 4);
        let mut preconditioner = Preconditioner::jacobi(&engine, &system.precision);
        let mut x = engine.zeros(4);
        let options = cg::Options { tolerance, error: 1e-3, ..Default::default() };
        let info = system.solve(&mut engine, &mut preconditioner, &mut x, &options).expect("one");
        let got = system.gather(&engine, &x);
        for (c, told) in info.columns.iter().enumerate() {
            let column = |values: &[f64]| dense::column(values, 4, c);
            let off: Vec<f64> =
                column(&got).iter().zip(column(&reference)).map(|(a, b)| a - b).collect();
            let e = Mat::from_fn(400, 1, |i, _| off[i]);
            let energy = (e.transpose() * &q * &e)[(0, 0)].sqrt();
            let bound = told.error.expect("a bound");
            assert!(energy <= bound && bound <= 1e-3, "{energy:.1e} {bound:.1e}");
            assert!(bound < 100.0 * energy, "{energy:.1e} {bound:.1e}");
        }
        // The residual alone would have stopped earlier.
        let options = cg::Options { error: f64::INFINITY, ..options };
        let early = system.solve(&mut engine, &mut preconditioner, &mut x, &options).expect("one");
        assert!(early.iterations < info.iterations, "{early:?} {info:?}");
    }
}

#[test]
fn failures_say_how_far_it_got() {
    let case = Case::random(200, false, 2, 2, 5);
    let mut engine = native(&case);
    let mut system = case.system(&mut engine);
    let mut preconditioner = Preconditioner::none(&engine);
    let mut x = engine.zeros(3);
    let options = cg::Options { max_iterations: 3, ..Default::default() };
    let error = system.solve(&mut engine, &mut preconditioner, &mut x, &options).unwrap_err();
    let CgError::NoConvergence { iterations, residuals, .. } = &error else {
        panic!("{error}");
    };
    assert!(*iterations == 3 && residuals.len() == 3 && residuals.iter().all(|r| *r > 1e-7));
    assert!(error.to_string().contains("3 of 3 columns"), "{error}");

    // Not a number anywhere must not look like success.
    let infinite = vec![f64::INFINITY; engine.part().owned];
    let infinite = Curvature { diagonal: infinite.clone(), root: infinite };
    system.precision.prepare(&engine, &case.model(), &infinite);
    let error = system.solve(&mut engine, &mut preconditioner, &mut x, &Default::default());
    assert!(matches!(error, Err(CgError::Breakdown { .. })), "{error:?}");
}

/// Nothing to solve, and a matrix that is exactly its preconditioner.
#[test]
fn trivial_systems() {
    let mut case = Case::random(50, false, 1, 2, 6);
    case.layers = vec![(1.0, 1e-300, 0.5, 0.0)];
    let mut engine = native(&case);
    let mut system = case.system(&mut engine);
    let mut preconditioner = Preconditioner::jacobi(&engine, &system.precision);
    let mut x = engine.zeros(3);
    for error in [f64::INFINITY, 1e-8] {
        let options = cg::Options { error, ..Default::default() };
        let info = system.solve(&mut engine, &mut preconditioner, &mut x, &options).expect("one");
        assert!(info.iterations <= 4, "{info:?}");
    }
    engine.upload(&[0.0; 150], &mut system.b);
    for warm_start in [false, true] {
        let options = cg::Options { warm_start, ..Default::default() };
        system.solve(&mut engine, &mut preconditioner, &mut x, &options).expect("one");
        assert!(engine.download(&x).iter().all(|v| v.abs() < 1e-6));
    }
}

// ---- mean, variances and samples ------------------------------------------------------------

use dgmrf::posterior::{Choice, Features, Options, Problem, Variance, infer};

/// Tight enough for comparisons between engines and numbers of ranks.
fn tight(variance: Variance, samples: usize) -> Options {
    let cg = cg::Options { tolerance: 1e-12, verify: true, ..Default::default() };
    Options { samples, variance, seed: 5, cg, batch: Some(7), ..Options::default() }
}

/// `[N, count]` features: a constant and noise.
fn feature_values(nodes: usize, count: usize) -> Vec<f64> {
    let stream = Stream::new(3, Purpose::Test, 9);
    let value = |k: usize| match k % count {
        0 => 1.0,
        f => stream.normal((k / count) as u64, f as u64),
    };
    (0..nodes * count).map(value).collect()
}

/// `(mean, variance)` of `x + F c` by the dense joint precision of `(x, c)`.
fn dense_posterior(case: &Case, features: usize, prior_precision: f64) -> (Vec<f64>, Vec<f64>) {
    let n = case.graph.nodes();
    let (q, g) = dense::precision(&case.graph, &case.layers, &case.observed, case.sigma);
    let mean_only = Case { samples: 0, ..case.clone() };
    let rhs = mean_only.dense_rhs(&g);
    let f = feature_values(n, features.max(1));
    let weight = |i: usize| if case.observed[i] { case.sigma.powi(-2) } else { 0.0 };
    let value = |i: usize, k: usize| f[i * features + k];
    let joint = Mat::from_fn(n + features, n + features, |a, b| match (a < n, b < n) {
        (true, true) => q[(a, b)],
        (true, false) => weight(a) * value(a, b - n),
        (false, true) => weight(b) * value(b, a - n),
        (false, false) => {
            let sum: f64 = (0..n).map(|i| weight(i) * value(i, a - n) * value(i, b - n)).sum();
            sum + if a == b { prior_precision } else { 0.0 }
        }
    });
    let right: Vec<f64> = (0..n + features)
        .map(|a| match a.checked_sub(n) {
            None => rhs[a],
            Some(k) => (0..n).map(|i| weight(i) * value(i, k) * case.y[i]).sum(),
        })
        .collect();
    let solved = dense::solve(&joint, &right, 1);
    let identity: Vec<f64> = (0..(n + features).pow(2))
        .map(|k| f64::from(u8::from(k / (n + features) == k % (n + features))))
        .collect();
    let inverse = dense::solve(&joint, &identity, n + features);
    let at = |i: usize, a: usize| match a.checked_sub(n) {
        None => f64::from(u8::from(a == i)),
        Some(k) => value(i, k),
    };
    let touched = |i: usize| std::iter::once(i).chain(n..n + features);
    let mean = (0..n).map(|i| touched(i).map(|a| at(i, a) * solved[a]).sum()).collect();
    let variance = (0..n)
        .map(|i| {
            touched(i)
                .flat_map(|a| touched(i).map(move |b| (a, b)))
                .map(|(a, b)| at(i, a) * at(i, b) * inverse[a * (n + features) + b])
                .sum()
        })
        .collect();
    (mean, variance)
}

/// Posterior of a case on an engine, gathered on rank 0: mean, variance, its error, samples.
fn posterior_of<E: Engine>(
    case: &Case,
    engine: &mut E,
    features: usize,
    prior_precision: f64,
    options: &Options,
) -> [Vec<f64>; 4] {
    let ids = engine.part().owned_ids().to_vec();
    let all = feature_values(case.graph.nodes(), features.max(1));
    let values = ids.iter().flat_map(|&i| &all[i as usize * features..][..features]).copied();
    let model = case.model();
    let data = case.data(engine);
    let problem = Problem {
        model: &model,
        curvature: case.noise().curvature(&data.observed),
        data: &data,
        features: (features > 0).then(|| Features {
            count: features,
            values: values.collect(),
            prior_precision,
        }),
    };
    let (world, nodes) = (engine.world().clone(), case.graph.nodes());
    let gather = |rows: &[f64], columns: usize| {
        world.gather_rows(&ids, rows, columns, nodes).expect("rows").unwrap_or_default()
    };
    let mut samples = Vec::new();
    let mut keep = |_: usize, count: usize, rows: &[f64]| {
        let all = gather(rows, count);
        samples.extend((0..count).flat_map(|c| dense::column(&all, count, c)));
        Ok(())
    };
    let made = infer(engine, &problem, options, Some(&mut keep)).expect("a posterior");
    let error = made.variance_error.unwrap_or_else(|| vec![0.0; ids.len()]);
    [gather(&made.mean, 1), gather(&made.variance, 1), gather(&error, 1), samples]
}

/// Posteriors without and with features, by some methods.
struct Posteriors(&'static [(usize, f64)], &'static [Variance], usize);

impl Check for Posteriors {
    fn on<E: Engine>(&self, case: &Case, engine: &mut E, what: &str) -> Vec<f64> {
        let mut all = Vec::new();
        for &(features, prior_precision) in self.0 {
            let (mean, variance) = dense_posterior(case, features, prior_precision);
            for &method in self.1 {
                let what = format!("{what}, {features} features, {method:?}");
                let options = tight(method, self.2);
                let [got_mean, got, error, samples] =
                    posterior_of(case, engine, features, prior_precision, &options);
                if !engine.world().is_root() {
                    continue;
                }
                let off = relative_error(&got_mean, &mean);
                assert!(off < 1e-8, "{what}: mean {off:.1e}");
                if method == Variance::Exact {
                    let off = relative_error(&got, &variance);
                    assert!(off < 1e-8, "{what}: variance {off:.1e}");
                    assert!(samples.is_empty());
                } else if self.2 > 50 {
                    // In units of its standard error, the error of a variance is about one.
                    let misses = got.iter().zip(&variance).zip(&error);
                    let scores: Vec<f64> = misses.map(|((v, t), e)| (v - t) / e).collect();
                    let square = scores.iter().map(|s| s * s).sum::<f64>() / scores.len() as f64;
                    assert!((0.2..4.0).contains(&square), "{what}: {square}");
                }
                all.extend([got_mean, got, error, samples].concat());
            }
        }
        all
    }
}

#[test]
fn posteriors_on_ranks() {
    let results = on_ranks("posteriors_on_ranks", &[1, 2, 3, 4], |world| {
        let cases = [(90, false, 2), (50, true, 3), (70, true, 1)];
        let run = |(k, &(nodes, weighted, depth)): (usize, &(usize, bool, usize))| {
            let case = Case::random(nodes, weighted, depth, 0, 20 + k as u64);
            const ALL: &[Variance] = &[Variance::Exact, Variance::Rbmc, Variance::Mc];
            let alike = Posteriors(&[(3, 0.1)], &[Variance::Rbmc], 5);
            on_all_engines(&case, world, &Posteriors(&[(0, 0.0), (3, 0.1)], ALL, 60), &alike)
        };
        cases.iter().enumerate().flat_map(run).collect()
    });
    for (k, result) in results.iter().enumerate().skip(1) {
        let error = relative_error(result, &results[0]);
        assert!(error < 1e-8, "{} ranks differ from 1 by {error:.1e}", k + 1);
    }
}

/// Covariance of many samples against the inverse of the precision.
#[test]
fn samples_have_the_covariance_of_the_posterior() {
    let case = Case::random(12, true, 2, 0, 31);
    let mut engine = native(&case);
    let count = 20_000;
    let options = Options { batch: Some(500), ..tight(Variance::Mc, count) };
    let [mean, _, _, samples] = posterior_of(&case, &mut engine, 0, 0.0, &options);
    let (q, _) = dense::precision(&case.graph, &case.layers, &case.observed, case.sigma);
    let identity: Vec<f64> = (0..144).map(|k| f64::from(u8::from(k / 12 == k % 12))).collect();
    let inverse = dense::solve(&q, &identity, 12);
    for i in 0..12 {
        for j in 0..12 {
            let product = |s: &[f64]| (s[i] - mean[i]) * (s[j] - mean[j]);
            let got = samples.chunks_exact(12).map(product).sum::<f64>() / count as f64;
            let scale = (inverse[i * 13] * inverse[j * 13]).sqrt();
            let off = (got - inverse[i * 12 + j]) / scale;
            assert!(off.abs() < 5.0 / (count as f64).sqrt() * 1.5, "({i}, {j}): {off}");
        }
    }
}

/// `auto` turns to blocks where the diagonal is slow, and says why where there are none.
#[test]
fn slow_problems_are_given_blocks() {
    let posterior = |case: &Case, choice: Choice| {
        let (model, mut engine) = (case.model(), native(case));
        let data = case.data(&engine);
        let curvature = case.noise().curvature(&data.observed);
        let problem = Problem { model: &model, curvature, data: &data, features: None };
        let options = Options { preconditioner: choice, ..tight(Variance::Mc, 10) };
        infer(&mut engine, &problem, &options, None).expect("a posterior")
    };
    let case = lattice_with_hole(2, -0.98);
    let [auto, blocks] = [Choice::Auto, Choice::Schwarz].map(|choice| posterior(&case, choice));
    assert_eq!((auto.info.preconditioner, auto.info.refusal), ("schwarz", None));
    assert_eq!(auto, blocks, "the search for a preconditioner leaves no trace");
    let easy = posterior(&lattice_with_hole(1, -0.5), Choice::Auto);
    assert_eq!((easy.info.preconditioner, easy.info.refusal), ("jacobi", None));
    // Everybody knows everybody within two hops: no blocks by their size, or one of all nodes.
    let mut star = Case::random(300, false, 1, 0, 3);
    star.graph = graphs::from_pairs(300, (1..300).map(|i| (0, i)));
    let engine = native(&star);
    let mut precision = Precision::new(&engine, 1);
    precision.prepare(&engine, &star.model(), &Gaussian::new(0.1).unwrap().curvature(&[true; 300]));
    let few = schwarz::Options { entries: [1 << 20, 10_000], ..Default::default() };
    let refused = Preconditioner::schwarz(&engine, &precision, &few).err();
    assert_eq!(refused, Some(Refusal::Memory));
    let few = schwarz::Options { entries: [100, 1 << 20], ..Default::default() };
    let refused = Preconditioner::schwarz(&engine, &precision, &few).err();
    assert_eq!(refused, Some(Refusal::Entries));
    let (mean, _) = dense_posterior(&star, 0, 0.0);
    let made = posterior(&star, Choice::Schwarz);
    assert_eq!(made.info.preconditioner, "schwarz");
    let ids = engine.part().owned_ids();
    let expected: Vec<f64> = ids.iter().map(|&i| mean[i as usize]).collect();
    assert!(relative_error(&made.mean, &expected) < 1e-8);
}

#[test]
fn wrong_settings_are_refused() {
    let case = Case::random(30, false, 1, 0, 7);
    let mut engine = native(&case);
    let observed = vec![true; 30];
    for sigma in [0.0, -1.0, f64::NAN] {
        assert!(Gaussian::new(sigma).unwrap_err().to_string().contains("sigma ="), "{sigma}");
    }
    let missing = Observations::new(&engine, &[f64::NAN; 30], &observed).err();
    assert!(missing.expect("an error").to_string().contains("is observed, but its value is NaN"));

    let data = Observations::new(&engine, &case.y, &observed).unwrap();
    let (model, noise) = (case.model(), Gaussian::new(0.1).unwrap());
    let mut fails = |noise: Gaussian, options: &Options| {
        let curvature = noise.curvature(&data.observed);
        let problem = Problem { model: &model, curvature, data: &data, features: None };
        infer(&mut engine, &problem, options, None).unwrap_err().to_string()
    };
    let options = Options { preconditioner: Choice::None, ..tight(Variance::Mc, 10) };
    assert!(fails(Gaussian::new(1e-200).unwrap(), &options).contains("sigma"));
    assert!(fails(noise, &Options { samples: 1, ..options.clone() }).contains("at least 2"));
    let huge = Options { batch: Some(1 << 40), ..options.clone() };
    assert!(fails(noise, &huge).contains("GB"));
    // Layers that vanish in double precision leave nothing to hold unobserved nodes.
    let model = Model::from_coefficients(&[(1e-200, -1e-201, 0.5, 0.0)], Gamma::Free).unwrap();
    let observed: Vec<bool> = (0..30).map(|i| i > 10).collect();
    let data = Observations::new(&engine, &case.y, &observed).unwrap();
    for preconditioner in [Choice::None, Choice::Jacobi, Choice::Schwarz, Choice::Auto] {
        let curvature = noise.curvature(&data.observed);
        let problem = Problem { model: &model, curvature, data: &data, features: None };
        let options = Options { preconditioner, ..options.clone() };
        let error = infer(&mut engine, &problem, &options, None).unwrap_err().to_string();
        assert!(error.contains("not positive definite"), "{preconditioner:?}: {error}");
    }
}
