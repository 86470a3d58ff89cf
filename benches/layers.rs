//! Layers on one rank and one thread: kernels, precisions and engines side by side.
//! (`cargo bench --bench layers`; ranks are compared in `ranks.rs`.)

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dgmrf::comm::World;
use dgmrf::field::{Coefficients, Engine, ForwardOutput, native::Native};
use dgmrf::graph::Graph;
use dgmrf::partition::{Part, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use dgmrf::synth;

const COEFFICIENTS: Coefficients = Coefficients { alpha: 1.2, rho: -0.8, gamma: 0.5, bias: 0.1 };

fn part(graph: &Graph, order: Order) -> Part {
    Partition::new(graph, vec![0; graph.nodes()], 1, order).unwrap().part(0)
}

fn passes<E: Engine>(c: &mut Criterion, what: &str, mut engine: E, columns: usize) {
    let mut layer = engine.new_layer();
    engine.prepare(&COEFFICIENTS, &mut layer);
    let mut blocks: Vec<E::Block> = (0..4).map(|_| engine.zeros(columns)).collect();
    let [x, y, g, out] = &mut blocks[..] else { unreachable!() };
    engine.fill_normal(Stream::new(1, Purpose::Test, 0), 0, x);
    engine.fill_normal(Stream::new(1, Purpose::Test, 1), 0, g);
    engine.layer(&layer, true, x, y);
    let mut group = c.benchmark_group(what);
    group.sample_size(20).throughput(Throughput::Elements((engine.part().owned * columns) as u64));
    let id = |pass| BenchmarkId::new(pass, columns);
    group.bench_function(id("layer"), |b| b.iter(|| engine.layer(&layer, true, x, out)));
    group.bench_function(id("adjoint"), |b| b.iter(|| engine.adjoint(&layer, g, out)));
    group.bench_function(id("gradient"), |b| {
        b.iter(|| engine.adjoint_with_sums(&layer, true, g, x, ForwardOutput::Block(y), out));
    });
    group.bench_function(id("signs"), |b| {
        let step = std::cell::Cell::new(0);
        b.iter_batched(
            || Stream::new(1, Purpose::Test, step.replace(step.get() + 1)),
            |stream| engine.fill_rademacher(stream, 0, out),
            BatchSize::SmallInput,
        );
    });
    let mut dots = vec![0.0; columns];
    group.bench_function(id("dots"), |b| b.iter(|| engine.dots(x, y, &mut dots)));
    group.finish();
}

fn layers(c: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().unwrap();
    let world = World::solo();
    let (_, mesh) = synth::random_graph(100_000, 1, Default::default()).unwrap();
    for columns in [1, 8, 10, 32] {
        let part = part(&mesh, Order::Locality);
        passes(c, "native f32", Native::<f32>::new(world.clone(), part).unwrap(), columns);
    }
    let double = Native::<f64>::new(world.clone(), part(&mesh, Order::Locality)).unwrap();
    passes(c, "native f64", double, 8);
    let scattered = Native::<f32>::new(world.clone(), part(&mesh, Order::Original)).unwrap();
    passes(c, "native f32, original order", scattered, 8);
    #[cfg(feature = "torch")]
    {
        use dgmrf::field::torch::Torch;
        let part = part(&mesh, Order::Locality);
        let torch = Torch::<f32>::new(world.clone(), part, tch::Device::Cpu).unwrap();
        passes(c, "torch f32", torch, 8);
    }
}

criterion_group!(benches, layers);
criterion_main!(benches);
