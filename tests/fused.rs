//! Fused passes of the engines: those with layers against dense matrices, all of them against the
//! bodies that the contract provides; on every engine, for all kinds of widths, on 1 to 4 ranks.

#[macro_use]
mod support;

use dgmrf::comm::World;
use dgmrf::field::{
    Coefficients, Draw, Engine, ForwardOutput, LayerSums, PullBack, Recurrence, Residual,
    native::Native,
};
use dgmrf::graph::Graph;
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use std::rc::Rc;
use support::engines::{Core, Kind};
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

    fn check<E: Engine>(&self, engine: &mut E, tolerance: f64, what: &str) {
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
            engine.layer_affine(&layer, &mut bx, with_mean.then_some(&nu), &xi, &mut out);
            let own = |i: usize| if with_mean { mean[i] } else { 0.0 };
            let located = |k: usize| own(k / columns) + scale[k / columns] * gx[k];
            let located: Vec<f64> = (0..x.len()).map(located).collect();
            close("affine", &fetch(engine, &out), &located);
        }

        // Back, with the residual and the pull, with one of them, and with neither.
        let back = dense::transpose(&self.graph, &[LAYER], &g, columns);
        let plain = engine.adjoint_with_sums(
            &layer,
            true,
            &mut bg,
            &bx,
            ForwardOutput::Block(&by),
            &mut out,
        );
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
            let pull =
                with_pull.then_some(PullBack { mean: Some(&nu), scale: &xi, of_mean, of_scale });
            let output = ForwardOutput::Block(&by);
            let (sums, misfit) = engine
                .adjoint_pull_back(&layer, true, &mut bg, &bx, output, residual, pull, &mut out);
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
            let output = if known {
                ForwardOutput::Block(&bgx)
            } else {
                ForwardOutput::RowDots(&xi, &factor)
            };
            let found = engine.adjoint_row_dots(&layer, &mut bg, &bx, output, &xi, &mut fields[0]);
            close("row dots", &fetch(engine, &fields[0]), &expected);
            sums.push(total(found, 0.0));
        }
        close("sums from dots", &sums[1], &sums[0]);
        // Σ g u = Σ h (Gᵀ g), both sides from dense matrices.
        close("Σ g u", &sums[0][..1], &[product.iter().sum()]);
    }

    /// `z = D⁻¹A x`, then with a recurrence `x' = a z + b x` and `z' = D⁻¹A x' + c x`, and the
    /// sums.
    fn check_krylov<E: Engine>(&self, engine: &mut E, tolerance: f64, what: &str) {
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
            let [a, b, c] = factors.each_ref().map(|f| &f[..]);
            let recurrence = turned.then_some(Recurrence { a, b, c });
            let mut sums = vec![0.0; 3 * columns];
            engine.krylov(recurrence, &mut x, &mut z, &mut sums);
            world.sum(&mut sums);

            let [direction, product] = &reference;
            let turn = |k: usize| {
                let c = k % columns;
                factors[0][c] * product[k] + factors[1][c] * direction[k]
            };
            let next: Vec<f64> =
                if turned { (0..direction.len()).map(turn).collect() } else { direction.clone() };
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

    fn part(&self, world: &World) -> Part {
        let owner =
            partition::divide(&self.graph, world.size(), &Default::default()).expect("METIS");
        let parts =
            Partition::new(&self.graph, owner, world.size(), Order::Locality).expect("parts");
        parts.part(world.rank())
    }

    fn check_on<K: Kind>(&self, world: &Rc<World>) {
        let mut engine = K::engine(world, self.part(world));
        self.check(&mut engine, 1e3 * K::ROUNDING, K::NAME);
        self.check_krylov(&mut engine, 10.0 * K::ROUNDING, K::NAME);
        let with_core = Core(K::engine(world, self.part(world)));
        let found = self.every_pass(&mut engine);
        let expected = self.every_pass(&mut { with_core });
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let error = relative_error(found, expected);
            let (kind, columns) = (K::NAME, self.columns);
            assert!(error <= 1e3 * K::ROUNDING, "{kind}, {columns} columns, {name}: {error:.1e}");
        }
    }

    /// What every pass that the contract provides makes of the same values on this rank.
    fn every_pass<E: Engine>(&self, engine: &mut E) -> Vec<(&'static str, Vec<f64>)> {
        let mut all: Vec<(&str, Vec<f64>)> = Vec::new();
        let columns = self.columns;
        let normal = |engine: &E, step: u64, columns: usize| {
            let mut block = engine.zeros(columns);
            engine.fill_normal(Stream::new(self.seed, Purpose::Test, step), 0, &mut block);
            block
        };
        let positive = |engine: &E, step: u64| {
            let values = engine.download(&normal(engine, step, 1));
            engine.node_field(&values.iter().map(|v| 0.2 + v.abs()).collect::<Vec<f64>>())
        };
        let [x, y] = [0, 1].map(|step| normal(engine, step, columns));
        let [mut g, mut out] = [2, 3].map(|step| normal(engine, step, columns));
        let [w, mask, mean] = [4, 5, 6].map(|step| positive(engine, step));
        let [a, b] = [0.4, -0.7]
            .map(|f| (0..columns).map(|c| f + 0.1 * (c as f64).sin()).collect::<Vec<f64>>());

        engine.axpy(&a, &x, &mut out);
        all.push(("axpy", engine.download(&out)));
        engine.aypx(&a, &x, &mut out);
        all.push(("aypx", engine.download(&out)));
        engine.scale_rows(&w, &x, &mut out);
        all.push(("scaled rows", engine.download(&out)));
        engine.add_scaled_rows(&mean, &y, &mut out);
        all.push(("scaled rows added", engine.download(&out)));
        for mean in [None, Some(&mean)] {
            engine.affine(mean, &w, &x, &mut out);
            all.push(("affine", engine.download(&out)));
        }
        for target in [None, Some(&mean)] {
            let residual = Residual { precision: PRECISION, mask: &mask, target };
            let misfit = engine.residual(&residual, &x, &mut out);
            all.push(("residual", engine.download(&out)));
            all.push(("misfit", vec![misfit]));
        }
        let stream = Stream::new(self.seed, Purpose::Test, 9);
        for (draw, w) in
            [(Draw::Normal, Some(&w)), (Draw::Rademacher, Some(&w)), (Draw::Normal, None)]
        {
            engine.draw(draw, stream, w, &mut out);
            all.push(("draw", engine.download(&out)));
        }

        let f = normal(engine, 7, 2);
        let coefficients = [&a[..], &b].concat();
        engine.subtract_linear(&f, &coefficients, &x, &mut out);
        all.push(("linear models", engine.download(&out)));
        let mut sums = vec![0.0; 2 * columns];
        engine.project(&f, &x, &mut sums);
        all.push(("projection", sums));

        let mut dots = vec![0.0; 3 * columns];
        engine.step_dots(&w, &x, &y, &g, &mut dots);
        all.push(("dots of a step", dots));
        let [mut p, mut sum, mut r] = [10, 11, 12].map(|step| normal(engine, step, columns));
        engine.step((&a, &b), &w, &x, &mut p, &mut sum, &mut r);
        all.extend([&p, &sum, &r].map(|block| ("step", engine.download(block))));

        // Layers of all kinds.
        let (alpha, beta, gamma, bias) = LAYER;
        let [mut layer, mut squared] = [engine.new_layer(), engine.new_layer()];
        engine.prepare(&Coefficients { alpha, rho: beta / alpha, gamma, bias }, &mut layer);
        engine.square(&layer, &mut squared);
        for layer in [layer, squared, engine.random_walk()] {
            engine.layer(&layer, true, &mut g, &mut out);
            all.push(("layer", engine.download(&out)));
            engine.adjoint(&layer, &mut g, &mut out);
            all.push(("adjoint", engine.download(&out)));
            for output in [
                ForwardOutput::Cotangent,
                ForwardOutput::Block(&y),
                ForwardOutput::RowDots(&w, &mask),
            ] {
                let s = engine.adjoint_with_sums(&layer, true, &mut g, &x, output, &mut out);
                all.push(("gradient", engine.download(&out)));
                all.push(("its sums", vec![s.alpha, s.rho, s.gamma, s.bias]));
            }
        }
        all
    }
}

for_every_engine!(every_width, on_several_ranks);

fn every_width<K: Kind>() {
    for columns in (1..=18).chain([24, 33]) {
        for weighted in [false, true] {
            // More rows than are gathered together, and not a multiple of them.
            let graph = graphs::random(150, 200, weighted, columns as u64);
            Case { graph, columns, seed: columns as u64 }.check_on::<K>(&World::solo());
        }
    }
}

fn on_several_ranks<K: Kind>() {
    on_ranks(&K::path("on_several_ranks"), &[1, 2, 3, 4], |world| {
        for (columns, weighted) in [(1, true), (6, false), (10, true), (17, false)] {
            let graph = graphs::random(90, 120, weighted, 5);
            Case { graph, columns, seed: 9 }.check_on::<K>(world);
        }
        Vec::new()
    });
}

/// Steps of a Krylov recurrence on more rows than one thread takes at a time: `x`, `z` and the sums
/// after each.
fn steps<E: Engine>(mut engine: E, columns: usize) -> Vec<Vec<f64>> {
    let (mut x, mut z) = (engine.zeros(columns), engine.zeros(columns));
    engine.fill_normal(Stream::new(3, Purpose::Test, 0), 0, &mut x);
    let [a, b, c] = [0.7, -0.2, 0.4].map(|f| vec![f; columns]);
    let mut found = Vec::new();
    let recurrences =
        [None, Some(Recurrence { a: &a, b: &b, c: &c }), Some(Recurrence { a: &b, b: &a, c: &c })];
    for recurrence in recurrences {
        let mut sums = vec![0.0; 3 * columns];
        engine.krylov(recurrence, &mut x, &mut z, &mut sums);
        found.extend([engine.download(&x), engine.download(&z), sums]);
    }
    found
}

/// Directions run ahead of products: by little on a mesh, by all rows where there is a hub. The
/// numbers are those of the provided body, and bit for bit the same on any number of threads.
#[test]
fn krylov_steps_on_many_rows() {
    let (_, mesh) = dgmrf::synth::random_graph(9000, 1, Default::default()).expect("a mesh");
    let pool = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
    };
    for graph in [mesh, graphs::wheel(9000), graphs::random(9000, 9000, true, 2)] {
        let parts = Partition::new(&graph, vec![0; 9000], 1, Order::Locality).expect("a part");
        let engine = || Native::<f64>::new(World::solo(), parts.part(0)).expect("an engine");
        for columns in [1, 3, 8, 20] {
            let alone = pool(1).install(|| steps(engine(), columns));
            for threads in [2, 3] {
                let together = pool(threads).install(|| steps(engine(), columns));
                assert!(alone == together, "{columns} columns, {threads} threads");
            }
            for (found, expected) in alone.iter().zip(steps(Core(engine()), columns)) {
                let error = relative_error(found, &expected);
                assert!(error < 1e-13, "{columns} columns: {error:.2e}");
            }
        }
    }
}
