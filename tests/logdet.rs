//! Log-determinants of layers: every source against the determinant of the dense matrix, its
//! gradient against finite differences, on 1 to 4 ranks and both engines.

#[path = "logdet/file.rs"]
mod file;
#[path = "logdet/moments.rs"]
mod moments;
mod support;

use dgmrf::comm::World;
use dgmrf::field::{Coefficients, Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::logdet::{self, Method, Options, Source, Spectrum, eigenvalues, lanczos, power_series};
use dgmrf::model::{Gamma, LayerParameters, LogDet};
use dgmrf::partition::{self, Part, Partition};
use proptest::prelude::*;
use std::rc::Rc;
use support::{dense, graphs, on_ranks};

fn part(world: &World, graph: &Graph) -> Part {
    let owner = partition::divide(graph, world.size(), &Default::default()).expect("METIS");
    Partition::new(graph, owner, world.size(), Default::default())
        .expect("parts")
        .part(world.rank())
}

fn native(world: &Rc<World>, graph: &Graph) -> Native<f64> {
    Native::new(world.clone(), part(world, graph)).expect("an engine")
}

fn options(method: Method, probes: usize, seed: u64) -> Options {
    Options {
        method,
        power_series: power_series::Options { probes, terms: 300, seed },
        lanczos: lanczos::Options { probes, tolerance: f64::INFINITY, seed, ..Default::default() },
        ..Default::default()
    }
}

fn solo(graph: &Graph, options: &Options) -> Spectrum {
    logdet::compute(&mut native(&World::solo(), graph), options).expect("a spectrum")
}

/// `log|det M|` by elimination, sharing nothing with the code under test.
fn dense_log_det(m: &dense::Matrix) -> f64 {
    let n = m.len();
    let lu = faer::Mat::from_fn(n, n, |i, j| m[i][j]).partial_piv_lu();
    (0..n).map(|i| lu.U()[(i, i)].abs().ln()).sum()
}

/// The log-determinant of a layer by a spectrum; a `γ` at the end of its range is a fixed one.
fn log_det(spectrum: &Spectrum, c: Coefficients) -> LogDet {
    let gamma = if c.gamma == 0.0 { Gamma::Fixed(0.0) } else { Gamma::Free };
    let numbers = (c.alpha, c.rho * c.alpha, c.gamma, c.bias);
    let layer = LayerParameters::from_coefficients(numbers, gamma).expect("a layer");
    spectrum.log_det(&layer, gamma)
}

/// A complete graph: all eigenvalues but one are `-1/(n-1)`.
fn complete(nodes: u32) -> Graph {
    let pairs = (0..nodes).flat_map(|i| (0..i).map(move |j| (i, j)));
    graphs::from_pairs(nodes as usize, pairs)
}

/// All cells of two sides joined: the eigenvalue -1 exists.
fn bipartite(a: u32, b: u32) -> Graph {
    graphs::from_pairs((a + b) as usize, (0..a).flat_map(|i| (0..b).map(move |j| (i, a + j))))
}

/// Every source for one graph: the value lies within its error bars of the dense one.
fn check(graph: &Graph, layer: Coefficients, seed: u64) {
    let c = (layer.alpha, layer.rho * layer.alpha, layer.gamma, 0.0);
    let expected = dense_log_det(&dense::layer(graph, &c));
    let exact = solo(graph, &options(Method::Eigenvalues, 1, seed));
    let found = log_det(&exact, layer);
    let error = (found.value - expected).abs();
    assert!(error < 1e-9 * graph.nodes() as f64, "eigenvalues: {} for {expected}", found.value);

    let step = 1e-5;
    let difference = |moved: [Coefficients; 2]| {
        let [up, down] = moved.map(|c| {
            let c = (c.alpha, c.rho * c.alpha, c.gamma, 0.0);
            dense_log_det(&dense::layer(graph, &c))
        });
        (up - down) / (2.0 * step)
    };
    let logit = (layer.gamma / (1.0 - layer.gamma)).ln();
    let by_theta1 = |s: f64| Coefficients { alpha: layer.alpha * s.exp(), ..layer };
    let by_theta2 = |s: f64| Coefficients { rho: (layer.rho.atanh() + s).tanh(), ..layer };
    let by_theta3 = |s: f64| Coefficients { gamma: 1.0 / (1.0 + (-logit - s).exp()), ..layer };
    for (name, found, expected) in [
        ("theta1", found.gradient.log_alpha, difference([by_theta1(step), by_theta1(-step)])),
        ("theta2", found.gradient.artanh_rho, difference([by_theta2(step), by_theta2(-step)])),
        ("theta3", found.gradient.logit_gamma, difference([by_theta3(step), by_theta3(-step)])),
    ] {
        let error = (found - expected).abs();
        assert!(error < 1e-6 * graph.nodes() as f64, "{name}: {found}, differences say {expected}");
    }

    let exact = exact.estimate(layer.rho);
    for method in [Method::PowerSeries, Method::Lanczos] {
        let spectrum = solo(graph, &options(method, 64, seed));
        let estimate = spectrum.estimate(layer.rho);
        let error = (estimate.value - exact.value).abs();
        // Five standard errors: hundreds of random cases are tried.
        let allowed = 5.0 * estimate.stderr + estimate.bound + 1e-9;
        assert!(error <= allowed, "{method:?}: {error} > {allowed}, {estimate:?}");
        let table = log_det(&spectrum, Coefficients { alpha: 1.0, gamma: 0.0, ..layer });
        assert!((table.value - estimate.value).abs() < 1e-9 * graph.nodes() as f64);
        let slope = (1.0 - layer.rho * layer.rho) * estimate.derivative;
        assert!((table.gradient.artanh_rho - slope).abs() < 1e-8 * graph.nodes() as f64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_graphs(
        nodes in 3usize..150,
        extra in 0usize..300,
        weighted: bool,
        rho in -0.98f64..0.98,
        gamma in 0.05f64..0.95,
        seed in 0u64..1000,
    ) {
        let graph = graphs::random(nodes, extra, weighted, seed);
        check(&graph, Coefficients { alpha: 1.3, rho, gamma, bias: 0.0 }, seed);
    }
}

#[test]
fn graphs_with_few_eigenvalues() {
    for graph in [complete(2), complete(40), bipartite(12, 30), graphs::star(50), graphs::wheel(60)]
    {
        for rho in [-0.97, -0.4, 0.0, 0.6, 0.95] {
            check(&graph, Coefficients { alpha: 0.7, rho, gamma: 0.4, bias: 0.0 }, 3);
        }
    }
    check(
        &graphs::random(400, 900, true, 5),
        Coefficients { alpha: 1.1, rho: -0.9, gamma: 0.7, bias: 0.0 },
        4,
    );
}

/// Two distinct eigenvalues are all a complete graph has, so two steps give the exact spectrum,
/// calibrated weights included: 1 once, -1/(n-1) for the rest.
#[test]
fn lanczos_is_exact_where_calibration_leaves_no_freedom() {
    let n = 30;
    let spectrum = solo(&complete(n), &options(Method::Lanczos, 3, 1));
    for rho in [-0.99f64, -0.5, 0.5, 0.99] {
        let n = f64::from(n);
        let expected = (1.0 + rho).ln() + (n - 1.0) * (1.0 - rho / (n - 1.0)).ln();
        let found = spectrum.estimate(rho);
        assert!((found.value - expected).abs() < 1e-9, "{found:?} {expected}");
        assert!(found.stderr < 1e-9, "nothing is left to chance: {found:?}");
    }
}

/// The error bars are honest: over many seeds the truth lies within three of them.
#[test]
fn three_standard_errors_hold_the_truth() {
    let graph = graphs::random(300, 600, true, 8);
    let exact = solo(&graph, &options(Method::Eigenvalues, 1, 0));
    for (method, rho) in [
        (Method::Lanczos, -0.5),
        (Method::Lanczos, -0.99),
        (Method::Lanczos, 0.9),
        (Method::PowerSeries, -0.9),
    ] {
        let (mut held, mut squares, seeds) = (0, 0.0, 60);
        for seed in 0..seeds {
            let found = solo(&graph, &options(method, 40, seed)).estimate(rho);
            let error = (found.value - exact.estimate(rho).value).abs();
            held += usize::from(error <= 3.0 * found.stderr + found.bound);
            squares += ((error - found.bound).max(0.0) / found.stderr).powi(2);
        }
        assert!(held as u64 >= seeds - 2, "{method:?} at {rho}: {held} of {seeds}");
        // Nor are they too wide: errors are of their size.
        let ratio = (squares / seeds as f64).sqrt();
        assert!(ratio < 1.4, "{method:?} at {rho}: errors are {ratio} standard errors");
        assert!(method == Method::PowerSeries || ratio > 0.6, "{method:?} at {rho}: {ratio}");
    }
}

/// What is hard on an estimator: the smallest graphs, several components, both ends of ρ.
#[test]
fn small_and_disconnected_graphs() {
    let pairs = graphs::from_pairs(12, (0..6).map(|i| (2 * i, 2 * i + 1)));
    let cliques = graphs::from_pairs(
        40,
        (0..40u32).flat_map(|i| (0..i).filter(move |j| i / 5 == j / 5).map(move |j| (i, j))),
    );
    for graph in [complete(2), complete(3), graphs::star(3), bipartite(3, 4), pairs, cliques] {
        let exact = solo(&graph, &options(Method::Eigenvalues, 1, 0));
        for probes in [1, 2, 7] {
            let found = solo(&graph, &options(Method::Lanczos, probes, 2));
            for rho in [-0.999999, -0.5, 0.0, 0.5, 0.999999] {
                let (found, exact) = (found.estimate(rho), exact.estimate(rho));
                let error = (found.value - exact.value).abs();
                let allowed = 5.0 * found.stderr + found.bound + 1e-7;
                assert!(found.value.is_finite() && found.derivative.is_finite(), "{found:?}");
                assert!(probes == 1 || error <= allowed, "{rho} {probes}: {found:?} {exact:?}");
            }
        }
    }
}

#[test]
fn more_probes_until_the_error_is_small() {
    let graph = graphs::random(1500, 3000, true, 4);
    let mut options = options(Method::Lanczos, 4, 1);
    options.lanczos.tolerance = 1e-5;
    let spectrum = solo(&graph, &options);
    let Source::Lanczos(rule) = spectrum.source() else { panic!("Lanczos was asked for") };
    assert!(rule.probes() > 4, "four probes cannot be enough");
    for rho in [-0.99, -0.5, 0.5, 0.99] {
        assert!(spectrum.estimate(rho).stderr < 1e-5 * 1500.0, "{:?}", spectrum.estimate(rho));
    }
    options.lanczos.most_probes = 9;
    let spectrum = solo(&graph, &options);
    let Source::Lanczos(rule) = spectrum.source() else { panic!("Lanczos was asked for") };
    assert_eq!(rule.probes(), 9, "never more than allowed");
}

#[test]
fn the_method_follows_the_size() {
    let auto = Options::default();
    assert_eq!(auto.method_for(500), Method::Eigenvalues);
    assert_eq!(auto.method_for(1_000_000), Method::Lanczos);
    let forced = Options { method: Method::PowerSeries, ..Default::default() };
    assert_eq!(forced.method_for(500), Method::PowerSeries);
}

#[test]
fn a_graph_too_large_for_the_dense_solver_is_refused() {
    assert!(eigenvalues::memory(20_536) < 16 << 30, "20,536 nodes fit the default limit");
    let mut options = options(Method::Eigenvalues, 1, 1);
    options.eigenvalues.memory = 1 << 20;
    let graph = graphs::random(400, 10, false, 1);
    let error = logdet::compute(&mut native(&World::solo(), &graph), &options).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("400 nodes") && error.contains("lanczos"), "{error}");
}

/// Values and derivatives at several ρ, from every source.
fn summary<E: Engine>(engine: &mut E) -> Vec<f64> {
    let mut numbers = Vec::new();
    for method in [Method::Eigenvalues, Method::PowerSeries, Method::Lanczos] {
        let spectrum = logdet::compute(engine, &options(method, 21, 7)).expect("a spectrum");
        for rho in [-0.99, -0.5, 0.3, 0.9] {
            let estimate = spectrum.estimate(rho);
            numbers.extend([estimate.value, estimate.derivative, estimate.stderr]);
        }
    }
    numbers
}

#[test]
fn ranks_and_engines_agree() {
    let results = on_ranks("ranks_and_engines_agree", &[1, 2, 3, 4], |world| {
        let graph = graphs::random(350, 700, true, 11);
        let numbers = summary(&mut native(world, &graph));
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let part = part(world, &graph);
            let mut torch =
                Torch::<f64>::new(world.clone(), part, tch::Device::Cpu).expect("torch");
            let error = support::relative_error(&summary(&mut torch), &numbers);
            assert!(error < 1e-10, "torch differs by {error:e}");
        }
        numbers
    });
    for other in &results[1..] {
        for (a, b) in other.iter().zip(&results[0]) {
            assert!((a - b).abs() <= 1e-10 * b.abs().max(1.0), "{a} on one rank {b}");
        }
    }
}
