//! The expected log-joint and its gradient against dense matrices and finite differences, on every
//! engine, on 1 to 3 ranks.

mod support;

use dgmrf::comm::World;
use dgmrf::field::{Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::likelihood::ObservedFields;
use dgmrf::logdet::{Source, Spectrum};
use dgmrf::model::{Gamma, Model};
use dgmrf::partition::{self, Part, Partition, order::Order};
use dgmrf::random::{Purpose, Stream};
use dgmrf::train::Parameters;
use dgmrf::train::joint::{self, Columns, Joint};
use std::rc::Rc;
use support::dense::{self, Layer};
use support::{graphs, on_ranks, relative_error};

const COLUMNS: usize = 3;

struct Case {
    graph: Graph,
    parameters: Parameters,
    y: Vec<f64>,
    mask: Vec<f64>,
    mean: Vec<f64>,
    deviations: Vec<f64>,
    samples: Vec<f64>,
}

impl Case {
    fn new(weighted: bool, gamma: Gamma, bias: bool, noise: bool) -> Self {
        let graph = graphs::random(35, 40, weighted, 3);
        let g = |free: f64| if let Gamma::Fixed(value) = gamma { value } else { free };
        let layers = [(1.2, -0.9, g(0.3), 0.2), (0.7, 0.3, g(0.6), if bias { -0.4 } else { 0.0 })];
        let layers = if bias { layers } else { layers.map(|l| (l.0, l.1, l.2, 0.0)) };
        let model = Model::from_coefficients(&layers, gamma).unwrap();
        let parameters = Parameters { model, log_sigma: -0.7, bias, noise, scales: true };
        let n = graph.nodes();
        let draw = |step: u64, columns: usize| -> Vec<f64> {
            let stream = Stream::new(9, Purpose::Test, step);
            (0..n * columns)
                .map(|k| stream.normal((k / columns) as u64, (k % columns) as u64))
                .collect()
        };
        let mask: Vec<f64> = draw(0, 1).iter().map(|v| f64::from(u8::from(*v > -0.3))).collect();
        let y = draw(1, 1).iter().zip(&mask).map(|(y, m)| y * m).collect();
        let mean = draw(2, 1);
        // Columns that add up to zero, so that mean and deviations are those of the samples.
        let mut deviations = draw(3, COLUMNS);
        for row in deviations.chunks_exact_mut(COLUMNS) {
            let middle = row.iter().sum::<f64>() / COLUMNS as f64;
            row.iter_mut().for_each(|v| *v -= middle);
        }
        let samples = (0..n * COLUMNS).map(|k| mean[k / COLUMNS] + deviations[k]).collect();
        Case { graph, parameters, y, mask, mean, deviations, samples }
    }

    fn layers(&self, vector: &[f64]) -> (Vec<Layer>, f64) {
        let mut p = self.parameters.clone();
        p.assign(vector);
        let layers = (0..p.model.layers.len())
            .map(|l| p.model.coefficients(l))
            .map(|c| (c.alpha, c.rho * c.alpha, c.gamma, c.bias));
        (layers.collect(), p.log_sigma)
    }

    /// `−E log p(y, x)` over the samples, densely.
    fn loss(&self, vector: &[f64], samples: &[f64]) -> f64 {
        let (layers, log_sigma) = self.layers(vector);
        let z = dense::forward(&self.graph, &layers, true, samples, COLUMNS);
        let energy = z.iter().map(|z| z * z).sum::<f64>() / COLUMNS as f64;
        let misfit = (0..samples.len()).map(|k| {
            let i = k / COLUMNS;
            self.mask[i] * (self.y[i] - samples[k]).powi(2)
        });
        let misfit = misfit.sum::<f64>() / COLUMNS as f64;
        let log_det: f64 =
            layers.iter().map(|l| dense::log_abs_det(&dense::layer(&self.graph, l))).sum();
        let observed: f64 = self.mask.iter().sum();
        0.5 * (energy + misfit * (-2.0 * log_sigma).exp()) - log_det + observed * log_sigma
    }

    fn part(&self, world: &World) -> Part {
        let owner = partition::divide(&self.graph, world.size(), &Default::default()).unwrap();
        Partition::new(&self.graph, owner, world.size(), Order::Locality)
            .unwrap()
            .part(world.rank())
    }

    /// Eigenvalues of `D^-½ A D^-½`, from the dense matrix by Jacobi rotations.
    fn spectrum(&self) -> Spectrum {
        let n = self.graph.nodes();
        let degree = self.graph.degrees();
        let mut a = vec![vec![0.0; n]; n];
        for (i, row) in a.iter_mut().enumerate() {
            for (j, w) in self.graph.weighted_neighbours(i) {
                row[j as usize] = w / (degree[i] * degree[j as usize]).sqrt();
            }
        }
        let eigenvalues = dense::symmetric_eigenvalues(a);
        let logs = degree.iter().map(|d| d.ln()).sum();
        Spectrum::new(n, logs, Source::Eigenvalues(eigenvalues))
    }

    /// Value, gradient and, by original id, the cotangent in the samples.
    fn evaluate<E: Engine>(&self, engine: &mut E, split: bool) -> (f64, Vec<f64>, Vec<f64>) {
        let world = engine.world().clone();
        let p = &self.parameters;
        let ids = engine.part().owned_ids().to_vec();
        let place = |engine: &E, values: &[f64], columns: usize| {
            let mut block = engine.zeros(columns);
            engine.upload(&world.scatter_rows(&ids, Some(values), columns), &mut block);
            block
        };
        let data =
            ObservedFields { mask: place(engine, &self.mask, 1), y: place(engine, &self.y, 1) };
        let mut joint = Joint::new(engine, 2, COLUMNS);
        joint.begin(engine, p);
        let mut cotangent = engine.zeros(COLUMNS);
        if split {
            let mut mean = place(engine, &self.mean, 1);
            let mut g = engine.zeros(1);
            joint.add(engine, p, Columns::Mean, Some(&data), &mut mean, None, &mut g);
            let mut x = place(engine, &self.deviations, COLUMNS);
            joint.add(engine, p, Columns::Deviations, Some(&data), &mut x, None, &mut cotangent);
        } else {
            let mut x = place(engine, &self.samples, COLUMNS);
            joint.add(engine, p, Columns::Samples, Some(&data), &mut x, None, &mut cotangent);
        }
        let mut slots = vec![0.0; Joint::<E>::slots(2)];
        joint.write(&mut slots);
        world.sum(&mut slots);
        let spectrum = self.spectrum();
        let mut gradient = vec![0.0; p.len()];
        let log_det = |l: usize| spectrum.log_det(&p.model.layers[l], p.model.gamma);
        let value = joint::finish(p, self.mask.iter().sum(), &slots, log_det, &mut gradient);
        let rows = engine.download(&cotangent);
        let g = world.gather_rows(&ids, &rows, COLUMNS, self.mask.len()).unwrap();
        (-value.log_joint, gradient, g.unwrap_or_default())
    }

    fn check<E: Engine>(&self, engine: &mut E, what: &str) {
        let mut vector = vec![0.0; self.parameters.len()];
        self.parameters.read_into(&mut vector);
        let loss = self.loss(&vector, &self.samples);
        let numeric = |k: usize, h: f64| {
            let at = |step: f64| {
                let mut moved = vector.clone();
                moved[k] += step;
                self.loss(&moved, &self.samples)
            };
            (at(h) - at(-h)) / (2.0 * h)
        };
        let mut expected: Vec<f64> = (0..vector.len()).map(|k| numeric(k, 1e-5)).collect();
        self.parameters.mask(&mut expected);
        if self.parameters.model.gamma != Gamma::Free {
            (0..2).for_each(|l| assert_eq!(expected[4 * l + 2], 0.0));
        }
        let root = engine.world().is_root();
        for split in [false, true] {
            let (value, gradient, cotangent) = self.evaluate(engine, split);
            let error = ((value - loss) / loss).abs();
            assert!(error < 1e-9, "{what}, split {split}: value {error:.1e}");
            let error = relative_error(&gradient, &expected);
            assert!(error < 1e-7, "{what}, split {split}: gradient {error:.1e}");
            if split || !root {
                continue;
            }
            // The cotangent, in a few directions.
            for k in [0, 7, 50, 104] {
                let at = |step: f64| {
                    let mut moved = self.samples.clone();
                    moved[k] += step;
                    self.loss(&vector, &moved)
                };
                let slope = COLUMNS as f64 * (at(1e-4) - at(-1e-4)) / 2e-4;
                let error = (cotangent[k] - slope).abs() / slope.abs().max(1.0);
                assert!(error < 1e-6, "{what}: cotangent {k}: {} or {slope}", cotangent[k]);
            }
        }
    }

    fn check_all_engines(&self, world: &Rc<World>) {
        let mut engine = Native::<f64>::new(world.clone(), self.part(world)).unwrap();
        self.check(&mut engine, "native");
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let mut engine =
                Torch::<f64>::new(world.clone(), self.part(world), tch::Device::Cpu).unwrap();
            self.check(&mut engine, "torch");
        }
    }
}

#[test]
fn value_and_gradient_are_those_of_the_dense_model() {
    on_ranks("value_and_gradient_are_those_of_the_dense_model", &[1, 2, 3], |world| {
        Case::new(false, Gamma::Free, true, true).check_all_engines(world);
        Case::new(true, Gamma::Free, false, true).check_all_engines(world);
        Case::new(true, Gamma::Fixed(1.0), true, false).check_all_engines(world);
        Case::new(false, Gamma::Fixed(0.0), true, true).check_all_engines(world);
        Vec::new()
    });
}
