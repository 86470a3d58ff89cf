//! Layers fused with the passes of training that come before or after them, against dense matrices: on
//! every engine, for all kinds of widths, on 1 to 4 ranks.

mod support;

use dgmrf::comm::World;
use dgmrf::field::rowwise::{Pull, Residual, Rowwise};
use dgmrf::field::{Coefficients, Engine, LayerSums, Output, native::Native};
use dgmrf::graph::Graph;
use dgmrf::partition::{self, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use std::rc::Rc;
use support::{dense, graphs, on_ranks, relative_error};

const LAYER: dense::Layer = (1.3, -0.9, 0.4, 0.7);
const PRECISION: f64 = 2.5;

struct Case {
    graph: Graph,
    columns: usize,
    seed: u64,
}

impl Case {
    /// Normal numbers for every node and column; `node(k)` makes a positive node field.
    fn values(&self, step: u64) -> Vec<f64> {
        let stream = Stream::new(self.seed, Purpose::Test, step);
        let cells = 0..self.graph.nodes() * self.columns;
        cells.map(|k| stream.normal((k / self.columns) as u64, (k % self.columns) as u64)).collect()
    }

    fn node(&self, step: u64) -> Vec<f64> {
        let stream = Stream::new(self.seed, Purpose::Test, step);
        (0..self.graph.nodes() as u64).map(|i| 0.2 + stream.uniform(i, 0)).collect()
    }

    /// `Σ_c a_ic b_ic` of every row.
    fn dots(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let rows = a.chunks_exact(self.columns).zip(b.chunks_exact(self.columns));
        rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum()).collect()
    }

    fn check<E: Rowwise>(&self, engine: &mut E, tolerance: f64, what: &str) {
        let (world, columns, nodes) = (engine.world().clone(), self.columns, self.graph.nodes());
        let ids = engine.part().owned_ids().to_vec();
        let place = |engine: &E, values: &[f64], columns: usize| {
            let mut block = engine.zeros(columns);
            engine.upload(&world.scatter_rows(&ids, Some(values), columns), &mut block);
            block
        };
        let fetch = |engine: &E, block: &E::Block| {
            let (rows, columns) = (engine.download(block), engine.columns(block));
            world.gather_rows(&ids, &rows, columns, nodes).expect("all rows").unwrap_or_default()
        };
        let close = |name: &str, value: &[f64], reference: &[f64]| {
            if world.is_root() {
                let error = relative_error(value, reference);
                assert!(error <= tolerance, "{what}, {columns} columns, {name}: {error:.2e}");
            }
        };
        let total = |sums: LayerSums, more: f64| {
            let mut all = [sums.alpha, sums.rho, sums.gamma, sums.bias, more];
            world.sum(&mut all);
            all
        };
        let (alpha, beta, gamma, bias) = LAYER;
        let mut layer = engine.new_layer();
        engine.prepare(&Coefficients { alpha, rho: beta / alpha, gamma, bias }, &mut layer);

        let [x, g, y] = [1, 2, 3].map(|step| self.values(step));
        let [mask, target, mean, scale] = [4, 5, 6, 7].map(|step| self.node(step));
        let mut bx = place(engine, &x, columns);
        let (mut bg, by) = (place(engine, &g, columns), place(engine, &y, columns));
        let [m, t, nu, xi] = [&mask, &target, &mean, &scale].map(|v| place(engine, v, 1));
        let mut out = engine.zeros(columns);
        let mut fields = [engine.zeros(1), engine.zeros(1)];

        // x = mean + scale ∘ G h, with a mean and without.
        let gx = dense::forward(&self.graph, &[LAYER], false, &x, columns);
        for with_mean in [true, false] {
            engine.layer_located(&layer, &mut bx, with_mean.then_some(&nu), &xi, &mut out);
            let own = |i: usize| if with_mean { mean[i] } else { 0.0 };
            let located = |k: usize| own(k / columns) + scale[k / columns] * gx[k];
            let located: Vec<f64> = (0..x.len()).map(located).collect();
            close("located", &fetch(engine, &out), &located);
        }

        // Back, with the residual and the pull, with one of them, and with neither.
        let back = dense::transpose(&self.graph, &[LAYER], &g, columns);
        let plain =
            engine.adjoint_with_sums(&layer, true, &mut bg, &bx, Output::Block(&by), &mut out);
        let plain = total(plain, 0.0);
        for (with_residual, with_pull) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let residual = with_residual.then_some(Residual {
                precision: PRECISION,
                mask: &m,
                target: Some(&t),
            });
            let [of_mean, of_scale] = &mut fields;
            let pull = with_pull.then_some(Pull { mean: Some(&nu), scale: &xi, of_mean, of_scale });
            let output = Output::Block(&by);
            let (sums, misfit) =
                engine.adjoint_pulled(&layer, true, &mut bg, &bx, output, residual, pull, &mut out);
            let sums = total(sums, misfit);
            close("sums", &sums[..4], &plain[..4]);
            let (mut gradient, mut expected) = (back.clone(), 0.0);
            for k in (0..x.len()).filter(|_| with_residual) {
                let difference = x[k] - target[k / columns];
                gradient[k] += PRECISION * mask[k / columns] * difference;
                expected += mask[k / columns] * difference * difference;
            }
            close("misfit", &[sums[4] + 1.0], &[expected + 1.0]);
            if with_pull {
                let deviation = |k: usize| (x[k] - mean[k / columns]) / scale[k / columns];
                let deviations: Vec<f64> = (0..x.len()).map(deviation).collect();
                let ones = vec![1.0; x.len()];
                close("of mean", &fetch(engine, &fields[0]), &self.dots(&gradient, &ones));
                close("of scale", &fetch(engine, &fields[1]), &self.dots(&gradient, &deviations));
                gradient.iter_mut().enumerate().for_each(|(k, g)| *g *= scale[k / columns]);
            }
            close("gradient", &fetch(engine, &out), &gradient);
        }

        // Only the dots with the input; the output known, or its dots with the cotangent.
        let bgx = place(engine, &gx, columns);
        let product = self.dots(&g, &gx);
        let factor: Vec<f64> = product.iter().zip(&scale).map(|(p, s)| p / s).collect();
        let factor = place(engine, &factor, 1);
        let expected: Vec<f64> =
            self.dots(&back, &x).iter().zip(&scale).map(|(dot, s)| dot / s).collect();
        let mut sums = Vec::new();
        for known in [true, false] {
            let output = if known { Output::Block(&bgx) } else { Output::Dots(&xi, &factor) };
            let found = engine.adjoint_dotted(&layer, &mut bg, &bx, output, &xi, &mut fields[0]);
            close("dotted", &fetch(engine, &fields[0]), &expected);
            sums.push(total(found, 0.0));
        }
        close("sums from dots", &sums[1], &sums[0]);
        // Σ g u = Σ h (Gᵀ g), both sides from dense matrices.
        close("Σ g u", &sums[0][..1], &[product.iter().sum()]);
    }

    /// `z = D⁻¹A x`, then a turn: `x' = a z + b x` and `z' = D⁻¹A x' + c x`, with their sums.
    fn check_krylov<E: Rowwise>(&self, engine: &mut E, tolerance: f64, what: &str) {
        const WALK: dense::Layer = (0.0, 1.0, 0.0, 0.0);
        let (world, columns, nodes) = (engine.world().clone(), self.columns, self.graph.nodes());
        let ids = engine.part().owned_ids().to_vec();
        let degree = self.graph.degrees();
        let factors: [Vec<f64>; 3] =
            [0.5, -0.3, 0.8].map(|f| (0..columns).map(|c| f + 0.1 * c as f64).collect());
        let mut reference = [self.values(1), vec![]];
        let (mut x, mut z) = (engine.zeros(columns), engine.zeros(columns));
        engine.upload(&world.scatter_rows(&ids, Some(&reference[0]), columns), &mut x);
        for turned in [false, true, true] {
            let turn = turned.then_some(factors.each_ref().map(|f| &f[..]));
            let mut sums = vec![0.0; 3 * columns];
            engine.krylov(turn, &mut x, &mut z, &mut sums);
            world.sum(&mut sums);

            let [direction, product] = &reference;
            let next: Vec<f64> = match turned {
                true => (0..direction.len())
                    .map(|k| {
                        let c = k % columns;
                        factors[0][c] * product[k] + factors[1][c] * direction[k]
                    })
                    .collect(),
                false => direction.clone(),
            };
            let mut walked = dense::forward(&self.graph, &[WALK], false, &next, columns);
            if turned {
                let before = direction.iter().enumerate();
                before.for_each(|(k, x)| walked[k] += factors[2][k % columns] * x);
            }
            let sum = |a: &[f64], b: &[f64], c: usize| -> f64 {
                (0..nodes).map(|i| degree[i] * a[i * columns + c] * b[i * columns + c]).sum()
            };
            let expected: Vec<f64> = [(&next, &next), (&next, &walked), (&walked, &walked)]
                .iter()
                .flat_map(|(a, b)| (0..columns).map(|c| sum(a, b, c)))
                .collect();
            let found = [&x, &z].map(|block| {
                let rows = engine.download(block);
                world.gather_rows(&ids, &rows, columns, nodes).expect("all rows")
            });
            if world.is_root() {
                let [x, z] = found.map(|rows| rows.expect("all rows"));
                let errors = [(&x, &next), (&z, &walked), (&sums, &expected)]
                    .map(|(found, expected)| relative_error(found, expected));
                let worst = errors.into_iter().fold(0.0, f64::max);
                assert!(worst <= tolerance, "{what}, {columns} columns, krylov: {errors:?}");
            }
            reference = [next, walked];
        }
    }

    fn check_all_engines(&self, world: &Rc<World>) {
        let owner =
            partition::divide(&self.graph, world.size(), &Default::default()).expect("METIS");
        let parts =
            Partition::new(&self.graph, owner, world.size(), Order::Locality).expect("parts");
        let part = || parts.part(world.rank());
        let native = |world: &Rc<World>| (world.clone(), part());
        let (w, p) = native(world);
        let mut engine = Native::<f64>::new(w, p).expect("an engine");
        self.check(&mut engine, 1e-11, "native f64");
        self.check_krylov(&mut engine, 1e-13, "native f64");
        let (w, p) = native(world);
        let mut engine = Native::<f32>::new(w, p).expect("an engine");
        self.check(&mut engine, 3e-4, "native f32");
        self.check_krylov(&mut engine, 1e-5, "native f32");
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let cpu = tch::Device::Cpu;
            let mut engine = Torch::<f64>::new(world.clone(), part(), cpu).expect("an engine");
            self.check(&mut engine, 1e-11, "torch f64");
            self.check_krylov(&mut engine, 1e-13, "torch f64");
        }
    }
}

#[test]
fn every_width() {
    for columns in (1..=18).chain([24, 33]) {
        for weighted in [false, true] {
            // More rows than are gathered together, and not a multiple of them.
            let graph = graphs::random(150, 200, weighted, columns as u64);
            Case { graph, columns, seed: columns as u64 }.check_all_engines(&World::solo());
        }
    }
}

#[test]
fn on_several_ranks() {
    on_ranks("on_several_ranks", &[1, 2, 3, 4], |world| {
        for (columns, weighted) in [(1, true), (6, false), (10, true), (17, false)] {
            let graph = graphs::random(90, 120, weighted, 5);
            Case { graph, columns, seed: 9 }.check_all_engines(world);
        }
        Vec::new()
    });
}

/// Steps of a Krylov recurrence on more rows than one thread takes at a time: `x`, `z` and the sums after each.
fn steps(graph: &Graph, columns: usize) -> Vec<Vec<f64>> {
    let parts = Partition::new(graph, vec![0; graph.nodes()], 1, Order::Locality).expect("a part");
    let mut engine = Native::<f64>::new(World::solo(), parts.part(0)).expect("an engine");
    let (mut x, mut z) = (engine.zeros(columns), engine.zeros(columns));
    engine.fill_normal(Stream::new(3, Purpose::Test, 0), 0, &mut x);
    let [a, b, c] = [0.7, -0.2, 0.4].map(|f| vec![f; columns]);
    let mut found = Vec::new();
    for turn in [None, Some([&a[..], &b, &c]), Some([&b[..], &a, &c])] {
        // The same in single passes, which are tested elsewhere.
        let mut expected = [engine.zeros(columns), engine.zeros(columns)];
        let (zero, one) = (vec![0.0; columns], vec![1.0; columns]);
        let [a, b, c] = turn.unwrap_or([&zero, &one, &zero]);
        engine.combine(a, &z, b, &x, &zero, &mut expected[0]);
        let walk = engine.random_walk();
        let [direction, product] = &mut expected;
        engine.layer(&walk, false, direction, product);
        engine.axpy(c, &x, product);

        let mut sums = vec![0.0; 3 * columns];
        engine.krylov(turn, &mut x, &mut z, &mut sums);
        for (found, expected) in [&x, &z].into_iter().zip(&expected) {
            let error = relative_error(&engine.download(found), &engine.download(expected));
            assert!(error < 1e-14, "{columns} columns: {error:.2e}");
        }
        let degree = engine.rows(&engine.part().degree.clone());
        let [mut weighted_x, mut weighted_z] = [engine.zeros(columns), engine.zeros(columns)];
        engine.scale_rows(&degree, &x, &mut weighted_x);
        engine.scale_rows(&degree, &z, &mut weighted_z);
        let mut dots = vec![0.0; 3 * columns];
        for (k, (a, b)) in
            [(&weighted_x, &x), (&weighted_x, &z), (&weighted_z, &z)].into_iter().enumerate()
        {
            engine.dots(a, b, &mut dots[k * columns..][..columns]);
        }
        assert!(relative_error(&sums, &dots) < 1e-13, "{columns} columns: sums");
        found.extend([engine.download(&x), engine.download(&z), sums]);
    }
    found
}

/// Directions run ahead of products: by little on a mesh, by all rows where there is a hub. The same numbers
/// come out, bit for bit, on any number of threads.
#[test]
fn krylov_steps_on_many_rows() {
    let (_, mesh) = dgmrf::synth::random_graph(9000, 1, Default::default()).expect("a mesh");
    let pool = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
    };
    for graph in [mesh, graphs::wheel(9000), graphs::random(9000, 9000, true, 2)] {
        for columns in [1, 3, 8, 20] {
            let alone = pool(1).install(|| steps(&graph, columns));
            for threads in [2, 3] {
                let together = pool(threads).install(|| steps(&graph, columns));
                assert!(alone == together, "{columns} columns, {threads} threads");
            }
        }
    }
}
