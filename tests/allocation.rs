//! Steps of ELBO training allocate nothing after the first: counted by the allocator of this
//! program, which is therefore a test of its own.

mod support;

use dgmrf::comm::World;
use dgmrf::field::{Scalar, native::Native};
use dgmrf::likelihood::Observations;
use dgmrf::logdet::{Source, Spectrum};
use dgmrf::model::Gamma;
use dgmrf::partition::{self, Partition, order::Order};
use dgmrf::posterior::Features;
use dgmrf::random::{Purpose, Stream};
use dgmrf::train::elbo::{Elbo, Estimator, Options};
use dgmrf::train::{Fit, Problem, Shape};
use std::rc::Rc;
use support::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 5000;
/// More than a window of the smoothed ELBO.
const STEPS: usize = 110;

/// Allocations in the steps after the first.
fn count<T: Scalar>(world: &Rc<World>, of_q: usize, estimator: Estimator, features: bool) -> usize {
    let graph = support::graphs::random(NODES, 7_000, true, 1);
    let owner = partition::divide(&graph, world.size(), &Default::default()).unwrap();
    let partition = Partition::new(&graph, owner, world.size(), Order::Locality).unwrap();
    let mut engine = Native::<T>::new(world.clone(), partition.part(world.rank())).unwrap();
    let ids = partition.part(world.rank()).owned_ids().to_vec();
    let draws = |column: u64| -> Vec<f64> {
        let stream = Stream::new(1, Purpose::Test, column);
        ids.iter().map(|&id| stream.normal(id.into(), 0)).collect()
    };
    let logs = graph.degrees().iter().map(|d| d.ln()).sum();
    let eigenvalues = (0..NODES).map(|k| (k as f64 * 3.0 / NODES as f64).cos()).collect();
    let spectrum = Spectrum::new(NODES, logs, Source::Eigenvalues(eigenvalues));
    let observed: Vec<bool> = draws(2).iter().map(|v| *v > 0.0).collect();
    let features = features.then(|| Features { count: 1, values: draws(3), prior_precision: 1e-8 });
    let data = Observations::new(&engine, &draws(1), &observed).unwrap();
    let problem = Problem::new(data, features, spectrum).unwrap();
    let shape = Shape { layers: 3, bias: true, gamma: Gamma::Free, sigma: None };
    let options = Options { layers: of_q, estimator, converge: 1e-9, ..Options::default() };
    let mut fit = Elbo::new(&mut engine, problem, &shape, options).unwrap();
    fit.step(&mut engine).unwrap();
    let before = allocations();
    for _ in 0..STEPS {
        fit.step(&mut engine).unwrap();
    }
    allocations() - before
}

fn check(world: &Rc<World>, what: &str) {
    for estimator in [Estimator::Gaussian, Estimator::Rademacher] {
        for (of_q, features) in [(0, false), (1, true), (2, false)] {
            let found = count::<f64>(world, of_q, estimator, features);
            assert_eq!(found, 0, "{what}: {estimator:?}, {of_q} layers, features {features}");
        }
        let found = count::<f32>(world, 1, estimator, false);
        assert_eq!(found, 0, "{what}: single precision, {estimator:?}");
    }
}

#[test]
fn steps_allocate_nothing() {
    support::on_ranks("steps_allocate_nothing", &[1, 2], |world| {
        match world.size() {
            1 => check(world, "one thread"),
            _ => assert_eq!(count::<f64>(world, 1, Estimator::Rademacher, true), 0, "two ranks"),
        }
        Vec::new()
    });
    // Two threads: the fit runs on one of the pool, so that handing out work needs no queue.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        let world = World::solo();
        assert_eq!(count::<f64>(&world, 1, Estimator::Rademacher, true), 0, "two threads");
        assert_eq!(count::<f64>(&world, 1, Estimator::Gaussian, false), 0, "two threads");
    });
}
