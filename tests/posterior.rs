//! The posterior against dense linear algebra: on every engine, on 1 to 4 ranks.

mod support;

use dgmrf::CgError;
use dgmrf::comm::World;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::model::{Gamma, Model};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::posterior::{self, Observations, Precision, Preconditioner, cg};
use dgmrf::random::{Purpose, Stream};
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
        let ids = engine.part().owned_ids().to_vec();
        let observed: Vec<bool> = ids.iter().map(|&i| self.observed[i as usize]).collect();
        let y: Vec<f64> = ids.iter().map(|&i| self.y[i as usize]).collect();
        let mut precision = Precision::new(engine, self.layers.len(), &observed);
        precision.prepare(engine, &self.model(), self.sigma);
        let columns = 1 + self.samples;
        let [mut w, mut v, mut b] = [0; 3].map(|_| engine.zeros(columns));
        let [mut drawn_w, mut drawn_v] = [0; 2].map(|_| engine.zeros(self.samples));
        posterior::draw(engine, self.seed, 0, &mut drawn_w, &mut drawn_v);
        let places: Vec<(usize, usize)> = (0..self.samples).map(|c| (c, c + 1)).collect();
        engine.copy_columns(&drawn_w, &mut w, &places);
        engine.copy_columns(&drawn_v, &mut v, &places);
        let mut data = Observations::new(engine, &y);
        data.place_mean(engine, &mut precision, &mut w, &mut v, 0);
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

/// Solves on an engine with every preconditioner and compares with the dense solution.
fn check_solutions<E: Engine>(case: &Case, engine: &mut E, what: &str) -> Vec<f64> {
    let mut system = case.system(engine);
    let (q, g) = dense::precision(&case.graph, &case.layers, &case.observed, case.sigma);
    let rhs = case.dense_rhs(&g);
    let reference = dense::solve(&q, &rhs, system.columns);
    let got_rhs = system.gather(engine, &system.b);
    let mut result = Vec::new();
    for (name, mut preconditioner) in [
        ("none", Preconditioner::none(engine)),
        ("jacobi", Preconditioner::jacobi(engine, &system.precision)),
    ] {
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

/// The results of all double-precision engines must agree; those of the native one come back.
fn on_all_engines(case: &Case, world: &Rc<World>, check: &impl Check) -> Vec<f64> {
    let part = || case.part(world);
    let mut engine = Native::<f64>::new(world.clone(), part()).expect("an engine");
    let native = check.on(case, &mut engine, "native");
    let again = check.on(case, &mut engine, "native");
    assert_eq!(native, again, "the same computation twice must agree bit for bit");
    #[cfg(feature = "torch")]
    {
        use dgmrf::field::torch::Torch;
        let cpu = tch::Device::Cpu;
        let mut engine = Torch::<f64>::new(world.clone(), part(), cpu).expect("an engine");
        let torch = check.on(case, &mut engine, "torch");
        let error = relative_error(&torch, &native);
        assert!(native.is_empty() || error < 1e-8, "engines differ by {error:.1e}");
    }
    native
}

struct Solutions;

impl Check for Solutions {
    fn on<E: Engine>(&self, case: &Case, engine: &mut E, what: &str) -> Vec<f64> {
        check_solutions(case, engine, what)
    }
}

#[test]
fn solutions_on_ranks() {
    let results = on_ranks("solutions_on_ranks", &[1, 2, 3, 4], |world| {
        (0..4)
            .flat_map(|seed| {
                let (depth, samples) = (1 + seed % 3, [1, 9, 15, 20][seed]);
                let case = Case::random(40 + 15 * seed, seed % 2 == 1, depth, samples, seed as u64);
                on_all_engines(&case, world, &Solutions)
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
    system.precision.prepare(&engine, &case.model(), 0.0);
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
