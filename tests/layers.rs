//! Layers, their transposes and gradients, against dense matrices built from the paper's
//! equation: on every engine, in every precision, on 1 to 4 ranks, on odd partitions too.

mod support;

use dgmrf::comm::World;
use dgmrf::field::LayerSums;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::model::{Gamma, LayerParameters, Model, Stack};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use proptest::prelude::*;
use std::rc::Rc;
use support::dense::{self, Layer};
use support::{graphs, on_ranks, relative_error};

/// The gradient in the parameters of all layers, from the local sums of the ranks.
fn gradient_of(world: &World, model: &Model, sums: &[LayerSums]) -> Vec<f64> {
    let of_layer = |(layer, sums): (&LayerParameters, &LayerSums)| {
        let mut all = [sums.alpha, sums.rho, sums.gamma, sums.bias];
        world.sum(&mut all);
        let [alpha, rho, gamma, bias] = all;
        layer.chain_rule(model.gamma, &LayerSums { alpha, rho, gamma, bias }).to_array()
    };
    model.layers.iter().zip(sums).flat_map(of_layer).collect()
}

/// A graph, who owns which node, a model and the width of the blocks.
#[derive(Clone)]
struct Case {
    graph: Graph,
    owner: Vec<u32>,
    layers: Vec<Layer>,
    gamma: Gamma,
    columns: usize,
    seed: u64,
}

impl Case {
    /// Random parameters; the nodes are divided by METIS.
    fn random(
        graph: Graph,
        parts: usize,
        depth: usize,
        gamma: Gamma,
        columns: usize,
        seed: u64,
    ) -> Self {
        let stream = Stream::new(seed, Purpose::Test, 2);
        let layers = (0..depth as u64)
            .map(|l| {
                let alpha = 0.5 + stream.uniform(l, 0);
                let rho = 1.9 * (stream.uniform(l, 1) - 0.5);
                let free = 0.05 + 0.9 * stream.uniform(l, 2);
                let gamma = if let Gamma::Fixed(value) = gamma { value } else { free };
                (alpha, rho * alpha, gamma, stream.uniform(l, 3) - 0.5)
            })
            .collect();
        let owner = partition::divide(&graph, parts, &Default::default()).expect("METIS");
        Case { graph, owner, layers, gamma, columns, seed }
    }

    fn part(&self, rank: usize, parts: usize) -> Part {
        let partition = Partition::new(&self.graph, self.owner.clone(), parts, Order::Locality);
        partition.expect("no empty part").part(rank)
    }

    fn values(&self, step: u64) -> Vec<f64> {
        let stream = Stream::new(self.seed, Purpose::Test, step);
        let cells = (0..self.graph.nodes() as u64)
            .flat_map(|i| (0..self.columns as u64).map(move |c| (i, c)));
        cells.map(|(i, c)| stream.normal(i, c)).collect()
    }

    /// `⟨w, g(x)⟩` computed densely, for other parameters than the case's.
    fn objective(&self, layers: &[Layer], x: &[f64], w: &[f64]) -> f64 {
        let z = dense::forward(&self.graph, layers, true, x, self.columns);
        z.iter().zip(w).map(|(z, w)| z * w).sum()
    }

    /// Derivative of the objective in the unconstrained parameters, by central differences of the
    /// dense computation.
    fn dense_gradient(&self, x: &[f64], w: &[f64]) -> Vec<f64> {
        let model = Model::from_coefficients(&self.layers, self.gamma).expect("a model");
        let mut gradient = Vec::new();
        for l in 0..model.layers.len() {
            let fields: [fn(&mut LayerParameters) -> &mut f64; 4] = [
                |p| &mut p.log_alpha,
                |p| &mut p.artanh_rho,
                |p| &mut p.logit_gamma,
                |p| &mut p.bias,
            ];
            for field in fields {
                let at = |step: f64| {
                    let mut moved = model.clone();
                    *field(&mut moved.layers[l]) += step;
                    let layers: Vec<Layer> = (0..moved.layers.len())
                        .map(|l| moved.coefficients(l))
                        .map(|c| (c.alpha, c.rho * c.alpha, c.gamma, c.bias))
                        .collect();
                    self.objective(&layers, x, w)
                };
                gradient.push((at(1e-5) - at(-1e-5)) / 2e-5);
            }
        }
        gradient
    }

    /// Runs everything on an engine, compares with the dense reference, and returns all results
    /// (original node order) for comparison between rank counts. Only rank 0 compares.
    fn check<E: Engine>(&self, engine: &mut E, tolerance: f64, what: &str) -> Vec<f64> {
        let world = engine.world().clone();
        let (columns, nodes) = (self.columns, self.graph.nodes());
        let ids = engine.part().owned_ids().to_vec();
        let (x, w) = (self.values(10), self.values(11));
        let model = Model::from_coefficients(&self.layers, self.gamma).expect("a model");
        let mut stack = Stack::new(engine, self.layers.len(), columns);
        stack.prepare(engine, &model);

        let place = |values: &[f64]| {
            let mut block = engine.zeros(columns);
            engine.upload(&world.scatter_rows(&ids, Some(values), columns), &mut block);
            block
        };
        let (mut bx, mut bw) = (place(&x), place(&w));
        let mut out = engine.zeros(columns);
        let fetch = |engine: &E, block: &E::Block| {
            let rows = engine.download(block);
            world.gather_rows(&ids, &rows, columns, nodes).expect("all rows").unwrap_or_default()
        };

        let kept = stack.forward(engine, true, &mut bx);
        let z = fetch(engine, kept);
        stack.apply(engine, true, &mut bx, &mut out);
        let z_again = fetch(engine, &out);
        stack.apply(engine, false, &mut bx, &mut out);
        let gx = fetch(engine, &out);
        let mut dots = vec![0.0; columns];
        engine.dots(&out, &bw, &mut dots);
        world.sum(&mut dots);
        stack.transpose(engine, &mut bw, &mut out);
        let gtw = fetch(engine, &out);
        let mut dots_transposed = vec![0.0; columns];
        engine.dots(&bx, &out, &mut dots_transposed);
        world.sum(&mut dots_transposed);
        let mut sums = vec![LayerSums::default(); model.layers.len()];
        stack.backward(engine, true, &bx, &mut bw, &mut out, &mut sums);
        let back = fetch(engine, &out);
        let gradient = gradient_of(&world, &model, &sums);
        // Without the biases the objective is <w, G x>: nothing depends on them.
        stack.forward(engine, false, &mut bx);
        let mut sums = vec![LayerSums::default(); model.layers.len()];
        stack.backward(engine, false, &bx, &mut bw, &mut out, &mut sums);
        let linear = gradient_of(&world, &model, &sums);
        if !world.is_root() {
            return Vec::new();
        }
        let close = |name: &str, value: &[f64], reference: &[f64], tolerance: f64| {
            let error = relative_error(value, reference);
            assert!(error <= tolerance, "{what}, {name}: relative error {error:.2e}");
        };
        let (graph, layers) = (&self.graph, &self.layers);
        close("g(x)", &z, &dense::forward(graph, layers, true, &x, columns), tolerance);
        assert_eq!(z, z_again, "{what}: forward and apply");
        close("G x", &gx, &dense::forward(graph, layers, false, &x, columns), tolerance);
        close("Gᵀ w", &gtw, &dense::transpose(graph, layers, &w, columns), tolerance);
        close("input gradient", &back, &gtw, tolerance);
        close("<Gx, w> = <x, Gᵀw>", &dots, &dots_transposed, 100.0 * tolerance);
        close("gradient", &gradient, &self.dense_gradient(&x, &w), (1e3 * tolerance).max(1e-6));
        let without =
            Case { layers: layers.iter().map(|l| (l.0, l.1, l.2, 0.0)).collect(), ..self.clone() };
        let mut reference = without.dense_gradient(&x, &w);
        reference.iter_mut().skip(3).step_by(4).for_each(|bias| *bias = 0.0);
        close("linear gradient", &linear, &reference, (1e3 * tolerance).max(1e-6));
        [z, gx, gtw, gradient, dots].concat()
    }

    /// The double-precision results come back, for comparison across rank counts.
    fn check_all_engines(&self, world: &Rc<World>) -> Vec<f64> {
        let parts = world.size();
        let part = || self.part(world.rank(), parts);
        let mut engine = Native::<f64>::new(world.clone(), part()).expect("an engine");
        let result = self.check(&mut engine, 1e-12, "native f64");
        let again = self.check(&mut engine, 1e-12, "native f64");
        assert_eq!(result, again, "the same computation twice must agree bit for bit");
        let mut engine = Native::<f32>::new(world.clone(), part()).expect("an engine");
        self.check(&mut engine, 2e-4, "native f32");
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let cpu = tch::Device::Cpu;
            let mut engine = Torch::<f64>::new(world.clone(), part(), cpu).expect("an engine");
            self.check(&mut engine, 1e-12, "torch f64");
            let mut engine = Torch::<f32>::new(world.clone(), part(), cpu).expect("an engine");
            self.check(&mut engine, 2e-4, "torch f32");
        }
        result
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_graphs_on_one_rank(
        nodes in 2usize..40,
        extra in 0usize..60,
        weighted: bool,
        depth in 1usize..=5,
        gamma in prop_oneof![Just(Gamma::Free), Just(Gamma::Fixed(0.0)), Just(Gamma::Fixed(1.0))],
        columns in prop_oneof![1usize..=20, Just(33)],
        seed: u64,
    ) {
        let graph = graphs::random(nodes, extra, weighted, seed);
        Case::random(graph, 1, depth, gamma, columns, seed).check_all_engines(&World::solo());
    }
}

#[test]
fn random_graphs_on_ranks() {
    let results = on_ranks("random_graphs_on_ranks", &[1, 2, 3, 4], |world| {
        let mut results = Vec::new();
        for seed in 0..12 {
            let weighted = seed % 2 == 1;
            let graph = graphs::random(40 + 5 * seed as usize, 60, weighted, seed);
            let gamma = [Gamma::Free, Gamma::Fixed(0.0), Gamma::Fixed(1.0)][seed as usize % 3];
            let (depth, columns) =
                (1 + seed as usize % 5, [1, 3, 8, 10, 16, 21][seed as usize % 6]);
            let case = Case::random(graph, world.size(), depth, gamma, columns, seed);
            results.extend(case.check_all_engines(world));
        }
        results
    });
    for (k, result) in results.iter().enumerate().skip(1) {
        let error = relative_error(result, &results[0]);
        assert!(error < 1e-12, "{} ranks differ from 1 by {error:.2e}", k + 1);
    }
}

#[test]
fn odd_partitions() {
    on_ranks("odd_partitions", &[3, 4], |world| {
        let parts = world.size();
        let case = |graph: Graph, owner: Vec<u32>| {
            let mut case = Case::random(graph, 1, 3, Gamma::Free, 5, 1);
            case.owner = owner;
            case.check_all_engines(world);
        };
        let round_robin = |n: usize| (0..n).map(|i| (i % parts) as u32).collect::<Vec<u32>>();
        let blocks = |n: usize| (0..n).map(|i| (i * parts / n) as u32).collect::<Vec<u32>>();
        // Every row is a boundary row on every rank.
        case(graphs::from_pairs(24, (0..24).map(|i| (i, (i + 1) % 24))), round_robin(24));
        // One component per rank: nobody has a neighbour.
        let triangles = (0..parts as u32)
            .flat_map(|p| [(3 * p, 3 * p + 1), (3 * p + 1, 3 * p + 2), (3 * p, 3 * p + 2)]);
        case(graphs::from_pairs(3 * parts, triangles), blocks(3 * parts));
        // A hub that everybody needs, in two shapes; divided by hand and by METIS.
        for graph in [graphs::star(30), graphs::wheel(30)] {
            case(graph.clone(), round_robin(30));
            case(graph.clone(), blocks(30));
            let metis = partition::divide(&graph, parts, &Default::default()).expect("METIS");
            case(graph, metis);
        }
        // One rank owns a single node.
        let mut lonely = vec![0; 20];
        (0..parts).for_each(|p| lonely[p] = p as u32);
        case(graphs::random(20, 30, true, 3), lonely);
        Vec::new()
    });
}

/// A pass over a block, and what it makes of each value.
type Operation<'a, E> = Box<dyn Fn(&mut <E as Engine>::Block) + 'a>;
type Pass<'a, E> = (&'static str, Operation<'a, E>, &'a dyn Fn(usize) -> f64);

/// Passes over whole blocks, one by one, against plain loops.
fn check_vector_operations<E: Engine>(engine: &E, tolerance: f64) {
    let (columns, part) = (7, engine.part());
    let owned = part.owned;
    let values = |step: u64, count: usize| {
        let stream = Stream::new(4, Purpose::Test, step);
        (0..count as u64).map(|i| stream.normal(i, 0)).collect::<Vec<f64>>()
    };
    let (x, y) = (values(0, owned * columns), values(1, owned * columns));
    let (a, w) = (values(2, columns), values(3, part.ids.len()));
    let rows = engine.rows(&w);
    let mut bx = engine.zeros(columns);
    engine.upload(&x, &mut bx);
    let passes: [Pass<E>; 4] = [
        ("axpy", Box::new(|b| engine.axpy(&a, &bx, b)), &|k| y[k] + a[k % columns] * x[k]),
        ("aypx", Box::new(|b| engine.aypx(&a, &bx, b)), &|k| x[k] + a[k % columns] * y[k]),
        ("scale", Box::new(|b| engine.scale_rows(&rows, &bx, b)), &|k| w[k / columns] * x[k]),
        ("add scaled", Box::new(|b| engine.add_scaled_rows(&rows, &bx, b)), &|k| {
            y[k] + w[k / columns] * x[k]
        }),
    ];
    for (name, pass, reference) in passes {
        let mut by = engine.zeros(columns);
        engine.upload(&y, &mut by);
        pass(&mut by);
        let expected: Vec<f64> = (0..x.len()).map(reference).collect();
        let error = relative_error(&engine.download(&by), &expected);
        assert!(error <= tolerance, "{name}: {error:.2e}");
    }
    let mut dots = vec![0.0; columns];
    engine.dots(&bx, &bx, &mut dots);
    let squares: Vec<f64> =
        (0..columns).map(|c| dense::column(&x, columns, c).iter().map(|v| v * v).sum()).collect();
    assert!(relative_error(&dots, &squares) <= tolerance, "dots");

    // A step of conjugate gradients, x for s and r.
    let z = values(4, owned * columns);
    let block = |values: &[f64]| {
        let mut block = engine.zeros(columns);
        engine.upload(values, &mut block);
        block
    };
    let (mut p, mut sum, mut r) = (block(&y), block(&z), block(&x));
    let mut dots = vec![0.0; 3 * columns];
    engine.step_dots(&rows, &p, &bx, &r, &mut dots);
    let mut expected = vec![0.0; 3 * columns];
    for k in 0..x.len() {
        let (w, c) = (w[k / columns], k % columns);
        for (at, term) in [y[k] * x[k], w * x[k] * x[k], w * x[k] * x[k]].into_iter().enumerate() {
            expected[at * columns + c] += term;
        }
    }
    assert!(relative_error(&dots, &expected) <= 100.0 * tolerance, "step dots");
    let b = values(5, columns);
    engine.step((&a, &b), &rows, &bx, &mut p, &mut sum, &mut r);
    let after = |f: &dyn Fn(usize) -> f64| (0..x.len()).map(f).collect::<Vec<f64>>();
    let residual = |k: usize| x[k] - a[k % columns] * x[k];
    for (name, block, expected) in [
        ("x of a step", &sum, after(&|k| z[k] + a[k % columns] * y[k])),
        ("r of a step", &r, after(&residual)),
        ("p of a step", &p, after(&|k| w[k / columns] * residual(k) + b[k % columns] * y[k])),
    ] {
        let error = relative_error(&engine.download(block), &expected);
        assert!(error <= tolerance, "{name}: {error:.2e}");
    }

    // Columns into a block of another width.
    let mut narrow = block(&x);
    engine.resize(&mut narrow, 5);
    assert_eq!(engine.columns(&narrow), 5);
    let five = &y[..owned * 5];
    engine.upload(five, &mut narrow);
    engine.copy_columns(&bx, &mut narrow, &[(6, 0), (1, 4), (1, 2)]);
    let place = |k: usize| match k % 5 {
        0 => x[k / 5 * columns + 6],
        2 | 4 => x[k / 5 * columns + 1],
        _ => five[k],
    };
    let expected: Vec<f64> = (0..five.len()).map(place).collect();
    assert!(relative_error(&engine.download(&narrow), &expected) <= tolerance, "columns copied");
    let mut other = engine.rows(&w);
    engine.set_rows(&vec![2.0; w.len()], &mut other);
    engine.scale_rows(&other, &bx, &mut p);
    let doubled: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
    assert!(relative_error(&engine.download(&p), &doubled) <= tolerance, "rows set");
}

#[test]
fn vector_operations_on_every_engine() {
    let world = World::solo();
    // Short, and long enough for several chunks and threads.
    for nodes in [30, 9_000] {
        let graph = graphs::random(nodes, nodes, false, 8);
        let partition = Partition::new(&graph, vec![0; nodes], 1, Order::Locality).unwrap();
        let part = || partition.part(0);
        check_vector_operations(&Native::<f64>::new(world.clone(), part()).unwrap(), 1e-14);
        check_vector_operations(&Native::<f32>::new(world.clone(), part()).unwrap(), 1e-6);
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let cpu = tch::Device::Cpu;
            check_vector_operations(&Torch::<f64>::new(world.clone(), part(), cpu).unwrap(), 1e-14);
            check_vector_operations(&Torch::<f32>::new(world.clone(), part(), cpu).unwrap(), 1e-6);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let graph = graphs::random(30_000, 60_000, true, 5);
    let case = Case::random(graph, 1, 2, Gamma::Free, 8, 5);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            let mut engine = Native::<f32>::new(World::solo(), case.part(0, 1)).expect("an engine");
            let model = Model::from_coefficients(&case.layers, case.gamma).expect("a model");
            let mut stack = Stack::new(&engine, 2, 8);
            stack.prepare(&engine, &model);
            let (mut x, mut w, mut out) = (engine.zeros(8), engine.zeros(8), engine.zeros(8));
            engine.fill_normal(Stream::new(1, Purpose::Test, 0), 0, &mut x);
            engine.fill_rademacher(Stream::new(1, Purpose::Test, 1), 0, &mut w);
            stack.forward(&mut engine, true, &mut x);
            let mut sums = vec![LayerSums::default(); model.layers.len()];
            stack.backward(&mut engine, true, &x, &mut w, &mut out, &mut sums);
            let mut dots = vec![0.0; 8];
            engine.dots(&out, &x, &mut dots);
            (engine.download(&out), sums, dots)
        })
    };
    let alone = run(1);
    for threads in [2, 3, 7] {
        assert!(run(threads) == alone, "{threads} threads");
    }
}
