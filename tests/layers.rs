//! The core of an engine against plain loops, and layers, their transposes and gradients against
//! dense matrices built from the paper's equation: on every engine, in every precision, on 1 to 4
//! ranks, on odd partitions too.

#[macro_use]
mod support;

use dgmrf::comm::World;
use dgmrf::field::{Arithmetic, Coefficients, Draw, Engine, LayerSums, Pointwise, native::Native};
use dgmrf::graph::Graph;
use dgmrf::model::{Gamma, LayerParameters, Model, Stack};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use std::rc::Rc;
use support::dense::{self, Layer};
use support::engines::Kind;
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

    /// [`Case::check`] on a kind of engine, twice: the results must agree bit for bit.
    fn check_on<K: Kind>(&self, world: &Rc<World>) -> Vec<f64> {
        let mut engine = K::engine(world, self.part(world.rank(), world.size()));
        let result = self.check(&mut engine, 200.0 * K::ROUNDING, K::NAME);
        let again = self.check(&mut engine, 200.0 * K::ROUNDING, K::NAME);
        assert_eq!(result, again, "the same computation twice must agree bit for bit");
        result
    }
}

for_every_engine!(
    random_graphs_on_one_rank,
    random_graphs_on_ranks,
    odd_partitions,
    the_core,
    sums_of_neighbours,
);

fn random_graphs_on_one_rank<K: Kind>() {
    for seed in 0..24 {
        let stream = Stream::new(seed, Purpose::Test, 7);
        let pick = |k: u64, from: usize| (stream.uniform(k, 0) * from as f64) as usize;
        let graph = graphs::random(2 + pick(0, 38), pick(1, 60), seed % 2 == 1, seed);
        let gamma = [Gamma::Free, Gamma::Fixed(0.0), Gamma::Fixed(1.0)][pick(2, 3)];
        let columns = [1 + pick(3, 20), 33][usize::from(seed % 8 == 0)];
        let case = Case::random(graph, 1, 1 + pick(4, 5), gamma, columns, seed);
        case.check_on::<K>(&World::solo());
    }
}

fn random_graphs_on_ranks<K: Kind>() {
    let results = on_ranks(&K::path("random_graphs_on_ranks"), &[1, 2, 3, 4], |world| {
        let mut results = Vec::new();
        for seed in 0..12 {
            let weighted = seed % 2 == 1;
            let graph = graphs::random(40 + 5 * seed as usize, 60, weighted, seed);
            let gamma = [Gamma::Free, Gamma::Fixed(0.0), Gamma::Fixed(1.0)][seed as usize % 3];
            let (depth, columns) =
                (1 + seed as usize % 5, [1, 3, 8, 10, 16, 21][seed as usize % 6]);
            let case = Case::random(graph, world.size(), depth, gamma, columns, seed);
            results.extend(case.check_on::<K>(world));
        }
        results
    });
    for (k, result) in results.iter().enumerate().skip(1) {
        let error = relative_error(result, &results[0]);
        assert!(error < 100.0 * K::ROUNDING, "{} ranks differ from 1 by {error:.2e}", k + 1);
    }
}

fn odd_partitions<K: Kind>() {
    on_ranks(&K::path("odd_partitions"), &[3, 4], |world| {
        let parts = world.size();
        let case = |graph: Graph, owner: Vec<u32>| {
            let mut case = Case::random(graph, 1, 3, Gamma::Free, 5, 1);
            case.owner = owner;
            case.check_on::<K>(world);
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

/// An engine for a graph on one rank, and its kind's name for messages.
fn alone<K: Kind>(graph: &Graph) -> K::Engine {
    let partition = Partition::new(graph, vec![0; graph.nodes()], 1, Order::Locality).unwrap();
    K::engine(&World::solo(), partition.part(0))
}

fn normals(step: u64, count: usize) -> Vec<f64> {
    let stream = Stream::new(4, Purpose::Test, step);
    (0..count as u64).map(|i| stream.normal(i, 0)).collect()
}

fn block<E: Engine>(engine: &E, columns: usize, values: &[f64]) -> E::Block {
    let mut block = engine.zeros(columns);
    engine.upload(values, &mut block);
    block
}

/// `y = y x² + √x`, with `Σ log x`.
#[derive(Clone, Copy)]
struct Work;

impl Pointwise<1, 1> for Work {
    fn apply<V: Arithmetic>(&self, [y]: [V; 1], [x]: [V; 1]) -> [V; 1] {
        [y * x.copy() * x.copy() + x.sqrt()]
    }
    fn summand<V: Arithmetic>(&self, _: &[V; 1], [x]: &[V; 1]) -> Option<V> {
        Some(x.copy().ln())
    }
}

/// What an engine must bring, one by one, against plain loops.
fn the_core<K: Kind>() {
    // Short, and long enough for several chunks and threads.
    for nodes in [30, 9_000] {
        let engine = &alone::<K>(&graphs::random(nodes, nodes, false, 8));
        let (columns, cells) = (7, 7 * nodes);
        let close = |name: &str, found: &[f64], expected: &dyn Fn(usize) -> f64| {
            let expected: Vec<f64> = (0..found.len()).map(expected).collect();
            let error = relative_error(found, &expected);
            assert!(error <= 10.0 * K::ROUNDING, "{}, {name}: {error:.1e}", K::NAME);
        };
        let [x, y, z] = [0, 1, 2].map(|step| normals(step, cells));
        let [a, b, c] = [3, 4, 5].map(|step| normals(step, columns));
        let [v, w] = [6, 7].map(|step| normals(step, nodes));
        let (bx, by) = (block(engine, columns, &x), block(engine, columns, &y));
        let (bv, bw) = (block(engine, 1, &v), engine.node_field(&w));
        close("upload", &engine.download(&bx), &|k| x[k]);

        let mut out = block(engine, columns, &z);
        engine.combine(&a, &bx, &b, &by, &c, &mut out);
        let combined = |k: usize| {
            let column = k % columns;
            a[column] * x[k] + b[column] * y[k] + c[column] * z[k]
        };
        close("combine", &engine.download(&out), &combined);

        let row = |k: usize| k / columns;
        let one = |_: usize| 1.0;
        type Factor<'a> = &'a dyn Fn(usize) -> f64;
        let (fx, fy): (Factor, Factor) = (&|k| x[k], &|k| y[k]);
        let (fv, fw): (Factor, Factor) = (&|k| v[row(k)], &|k| w[row(k)]);
        let factors = [
            (&bx, fx, Some(&by), fy),
            (&bv, fv, Some(&by), fy),
            (&bx, fx, Some(&bw), fw),
            (&bv, fv, Some(&bw), fw),
            (&bx, fx, None, &one as Factor),
            (&bv, fv, None, &one as Factor),
        ];
        for (left, l, right, r) in factors {
            for (beta, alpha) in [(0.0, 1.5), (-0.5, 1.0)] {
                let mut out = block(engine, columns, &z);
                engine.product(beta, alpha, left, right, &mut out);
                let expected = |k: usize| beta * z[k] + alpha * l(k) * r(k);
                close("product", &engine.download(&out), &expected);
            }
        }

        let mut dots = vec![0.0; columns];
        engine.dots(&bx, &bx, &mut dots);
        let column = |c: usize| (0..nodes).map(move |i| i * columns + c);
        close("dots", &dots, &|c| column(c).map(|k| x[k] * x[k]).sum());
        let mut sums = engine.zeros(1);
        engine.row_sums(&bx, &mut sums);
        close("row sums", &engine.download(&sums), &|i| x[i * columns..][..columns].iter().sum());

        // Columns into a block that has become narrower.
        let mut narrow = block(engine, columns, &x);
        engine.resize(&mut narrow, 5);
        assert_eq!(engine.columns(&narrow), 5);
        engine.upload(&y[..5 * nodes], &mut narrow);
        engine.copy_columns(&bx, &mut narrow, &[(6, 0), (1, 4), (1, 2)]);
        close("columns", &engine.download(&narrow), &|k| match k % 5 {
            0 => x[k / 5 * columns + 6],
            2 | 4 => x[k / 5 * columns + 1],
            _ => y[k],
        });

        for draw in [Draw::Normal, Draw::Rademacher] {
            let stream = Stream::new(9, Purpose::Test, 1);
            let mut out = engine.zeros(columns);
            engine.fill(draw, stream, 61, &mut out);
            let ids = engine.part().owned_ids();
            close("fill", &engine.download(&out), &|k| {
                let (id, column) = (ids[row(k)].into(), 61 + (k % columns) as u64);
                match draw {
                    Draw::Normal => stream.normal(id, column),
                    Draw::Rademacher => stream.rademacher(id, column),
                }
            });
        }

        let positive: Vec<f64> = x.iter().map(|x| 0.5 + x.abs()).collect();
        let (mut changed, given) = (block(engine, columns, &y), block(engine, columns, &positive));
        let sum = engine.pointwise(&Work, [&mut changed], [&given]);
        let expected = |k: usize| y[k] * positive[k] * positive[k] + positive[k].sqrt();
        close("pointwise", &engine.download(&changed), &expected);
        close("its sum", &[sum], &|_| positive.iter().map(|x| x.ln()).sum());
    }
}

/// `A x` and `(A ∘ A) x`, on several ranks.
fn sums_of_neighbours<K: Kind>() {
    on_ranks(&K::path("sums_of_neighbours"), &[1, 2, 3], |world| {
        for weighted in [false, true] {
            let graph = graphs::random(60, 90, weighted, 3);
            let (parts, columns, nodes) = (world.size(), 3, graph.nodes());
            let case = Case::random(graph, parts, 1, Gamma::Free, columns, 3);
            let mut engine = K::engine(world, case.part(world.rank(), parts));
            let (x, ids) = (case.values(1), engine.part().owned_ids().to_vec());
            let mut bx = engine.zeros(columns);
            engine.upload(&world.scatter_rows(&ids, Some(&x), columns), &mut bx);
            for power in [1, 2] {
                let mut out = engine.zeros(columns);
                engine.neighbour_sums(power == 2, &mut bx, &mut out);
                let rows = engine.download(&out);
                let found = world.gather_rows(&ids, &rows, columns, nodes).expect("all rows");
                let sum = |k: usize| -> f64 {
                    let neighbours = case.graph.weighted_neighbours(k / columns);
                    neighbours
                        .map(|(j, w)| w.powi(power) * x[j as usize * columns + k % columns])
                        .sum()
                };
                let expected: Vec<f64> = (0..x.len()).map(sum).collect();
                if let Some(found) = found {
                    let error = relative_error(&found, &expected);
                    assert!(error < 10.0 * K::ROUNDING, "{}, power {power}: {error:.1e}", K::NAME);
                }
            }
        }
        Vec::new()
    });
}

/// A layer squared by one engine and applied by another, which has never squared its weights, once
/// read beyond the weights. It must do as the other engine does.
#[test]
fn a_layer_squared_by_another_engine() {
    let graph = graphs::random(50, 70, true, 6);
    let [mut first, mut second] = [0; 2].map(|_| alone::<support::engines::NativeF64>(&graph));
    let (mut layer, mut squared) = (first.new_layer(), first.new_layer());
    let c = Coefficients { alpha: 1.2, rho: 0.6, gamma: 0.4, bias: 0.3 };
    first.prepare(&c, &mut layer);
    first.square(&layer, &mut squared);
    let mut h = block(&first, 3, &normals(1, 150));
    let mut found = [first.zeros(3), first.zeros(3)];
    second.layer(&squared, false, &mut h, &mut found[1]);
    first.layer(&squared, false, &mut h, &mut found[0]);
    let [first, second] = [first.download(&found[0]), second.download(&found[1])];
    assert_eq!(first, second);
}

/// A layer or a block of another graph is refused before anything is read.
#[test]
fn layers_and_blocks_of_other_graphs_are_refused() {
    let engine = |nodes| alone::<support::engines::NativeF64>(&graphs::random(nodes, 40, true, 2));
    for others in [20, 60] {
        let (mut engine, other) = (engine(40), engine(others));
        let (mut own, mut foreign) = (engine.new_layer(), other.new_layer());
        let c = Coefficients { alpha: 1.2, rho: 0.6, gamma: 0.4, bias: 0.3 };
        engine.prepare(&c, &mut own);
        other.prepare(&c, &mut foreign);
        let mut run = |layer: &dgmrf::field::Layer<_>, strange: bool| {
            let mut h = if strange { other.zeros(3) } else { engine.zeros(3) };
            let mut out = engine.zeros(3);
            let apply = || engine.layer(layer, true, &mut h, &mut out);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(apply)).is_err()
        };
        assert!(!run(&own, false), "the engine's own layer");
        assert!(run(&foreign, false), "a layer for {others} nodes");
        assert!(run(&own, true), "a block of {others} nodes");
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
