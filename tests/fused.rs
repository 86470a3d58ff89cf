//! Layers fused with the passes of training that come before or after them, against dense matrices: on
//! every engine, for all kinds of widths, on 1 to 4 ranks.

mod support;

use dgmrf::comm::World;
use dgmrf::field::rowwise::{Pull, Residual, Rowwise};
use dgmrf::field::{Coefficients, LayerSums, Output, native::Native};
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

    fn check_all_engines(&self, world: &Rc<World>) {
        let owner =
            partition::divide(&self.graph, world.size(), &Default::default()).expect("METIS");
        let parts =
            Partition::new(&self.graph, owner, world.size(), Order::Locality).expect("parts");
        let part = || parts.part(world.rank());
        let native = |world: &Rc<World>| (world.clone(), part());
        let (w, p) = native(world);
        self.check(&mut Native::<f64>::new(w, p).expect("an engine"), 1e-11, "native f64");
        let (w, p) = native(world);
        self.check(&mut Native::<f32>::new(w, p).expect("an engine"), 3e-4, "native f32");
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let cpu = tch::Device::Cpu;
            let mut engine = Torch::<f64>::new(world.clone(), part(), cpu).expect("an engine");
            self.check(&mut engine, 1e-11, "torch f64");
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
