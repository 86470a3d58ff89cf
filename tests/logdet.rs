//! Log-determinants of layers: every source against the determinant of the dense matrix, its
//! gradient against finite differences, on 1 to 4 ranks and both engines; the file of a spectrum.

mod support;

use dgmrf::comm::World;
use dgmrf::dataset::Dataset;
use dgmrf::field::{Coefficients, Engine, native::Native};
use dgmrf::graph::Graph;
use dgmrf::logdet::{self, Method, Options, Source, Spectrum, eigenvalues, lanczos, power_series};
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
    let found = exact.log_det(&layer);
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
        ("theta1", found.theta1, difference([by_theta1(step), by_theta1(-step)])),
        ("theta2", found.theta2, difference([by_theta2(step), by_theta2(-step)])),
        ("theta3", found.theta3, difference([by_theta3(step), by_theta3(-step)])),
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
        let table = spectrum.log_det(&Coefficients { alpha: 1.0, gamma: 0.0, ..layer });
        assert!((table.value - estimate.value).abs() < 1e-9 * graph.nodes() as f64);
        let slope = (1.0 - layer.rho * layer.rho) * estimate.derivative;
        assert!((table.theta2 - slope).abs() < 1e-8 * graph.nodes() as f64);
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

/// Exact low moments pay: the calibrated rule is far less noisy than the probes it came from.
#[test]
fn calibration_takes_most_of_the_noise() {
    let graph = graphs::random(2000, 4000, false, 2);
    let spectrum = solo(&graph, &options(Method::Lanczos, 64, 1));
    let plain = |rho: f64| {
        // The same probes through the power series have the same noise but for two exact terms.
        solo(&graph, &options(Method::PowerSeries, 64, 1)).estimate(rho).stderr
    };
    for rho in [-0.9, 0.9] {
        let calibrated = spectrum.estimate(rho).stderr;
        assert!(calibrated < 0.8 * plain(rho), "{calibrated} {}", plain(rho));
    }
    exact_moments(&graph, &spectrum, 6);
}

/// The rule of a spectrum has the moments of the eigenvalues, up to the power it claims.
fn exact_moments(graph: &Graph, spectrum: &Spectrum, at_least: usize) {
    let Source::Lanczos(rule) = spectrum.source() else { panic!("Lanczos was asked for") };
    assert!(rule.exact_moments() >= at_least, "{}", rule.exact_moments());
    let exact = solo(graph, &options(Method::Eigenvalues, 1, 0));
    let Source::Eigenvalues(exact) = exact.source() else { panic!("eigenvalues") };
    for k in 0..=rule.exact_moments() as i32 {
        let found: f64 = rule.nodes_and_weights().map(|(x, w)| w * x.powi(k)).sum();
        let expected: f64 = exact.iter().map(|x| x.powi(k)).sum();
        let error = (found - expected).abs();
        assert!(error < 1e-11 * graph.nodes() as f64, "moment {k}: {found} {expected}");
    }
}

/// Walks go as far as they are cheap: around a ring for as many hops as allowed, on a star not even
/// two; the moments are right either way, on weights of any size too.
#[test]
fn moments_are_exact_as_far_as_they_are_cheap() {
    let ring = graphs::from_pairs(500, (0..500).map(|i| (i, (i + 1) % 500)));
    exact_moments(&ring, &solo(&ring, &options(Method::Lanczos, 10, 1)), 12);
    let mesh = graphs::random(400, 800, true, 6);
    exact_moments(&mesh, &solo(&mesh, &options(Method::Lanczos, 100, 1)), 6);
    let star = graphs::star(400);
    let spectrum = solo(&star, &options(Method::Lanczos, 1, 1));
    exact_moments(&star, &spectrum, 2);
    assert!(spectrum.estimate(-0.5).stderr.is_infinite(), "one probe knows nothing of its error");
    let Source::Lanczos(rule) = spectrum.source() else { panic!("Lanczos was asked for") };
    assert_eq!(rule.exact_moments(), 2, "the second hop from the hub reaches everything");
    let mut edges = dgmrf::graph::EdgeList::weighted();
    (0..299).for_each(|i| edges.push(i, i + 1, [1e-150, 1.0, 1e150][i as usize % 3]));
    let extreme = edges.into_graph(300).expect("a graph").0;
    exact_moments(&extreme, &solo(&extreme, &options(Method::Lanczos, 10, 1)), 12);
}

/// `tr Ãᵏ` for `k = 0..=most`, by products of dense matrices.
fn dense_traces(graph: &Graph, most: usize) -> Vec<f64> {
    let (n, degree) = (graph.nodes(), graph.degrees());
    let mut matrix = faer::Mat::<f64>::zeros(n, n);
    for i in 0..n {
        for (j, w) in graph.weighted_neighbours(i) {
            matrix[(i, j as usize)] = w / (degree[i] * degree[j as usize]).sqrt();
        }
    }
    let mut power = faer::Mat::<f64>::identity(n, n);
    let mut traces = vec![n as f64];
    for _ in 0..most {
        power = &power * &matrix;
        traces.push((0..n).map(|i| power[(i, i)]).sum());
    }
    traces
}

/// Walks see later nodes only, those of later ranks included: on graphs where they soon see everything, over
/// more edges than are kept at a time, with and without weights, one node or none after the other left.
#[test]
fn closed_walks_are_all_counted_on_any_number_of_ranks() {
    let hubs = |weighted| {
        let mut edges = match weighted {
            true => dgmrf::graph::EdgeList::weighted(),
            false => dgmrf::graph::EdgeList::unweighted(),
        };
        for i in 3..150 {
            edges.push(i, i % 3, if weighted { 0.1 * f64::from(i) } else { 1.0 });
            edges.push(i, (7 * i + 1) % 150, 1.0);
        }
        edges.into_graph(150).expect("a graph").0
    };
    let graphs = [
        complete(60),
        graphs::random(180, 2000, true, 3),
        graphs::random(150, 200, false, 4),
        hubs(true),
        hubs(false),
        graphs::from_pairs(12, (0..6).map(|i| (2 * i, 2 * i + 1))),
    ];
    let name = "closed_walks_are_all_counted_on_any_number_of_ranks";
    let moments = |world: &Rc<World>, graph: &Graph| -> Vec<f64> {
        // Enough probes for walks of six hops, and few steps, which the sums over a rule still get right.
        let mut options = options(Method::Lanczos, 1000, 1);
        options.lanczos.steps = 60.min(graph.nodes());
        let spectrum = logdet::compute(&mut native(world, graph), &options).expect("a spectrum");
        let Source::Lanczos(rule) = spectrum.source() else { panic!("Lanczos was asked for") };
        let moment = |k| rule.nodes_and_weights().map(|(x, w)| w * x.powi(k)).sum::<f64>();
        (0..=12).map(|k| if k <= rule.exact_moments() as i32 { moment(k) } else { 0.0 }).collect()
    };
    let all = |world: &Rc<World>| graphs.iter().flat_map(|g| moments(world, g)).collect();
    let results = on_ranks(name, &[1, 2, 3, 4], all);
    let expected: Vec<f64> = graphs.iter().flat_map(|g| dense_traces(g, 12)).collect();
    for (result, ranks) in results.iter().zip(1..) {
        for (k, (found, expected)) in result.iter().zip(&expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error < 1e-10 * 180.0, "{ranks} ranks, {k}: {found} for {expected}");
        }
    }
}

/// Each thread walks from groups of its own, and eliminates all that come before them.
#[test]
fn threads_do_not_change_a_bit() {
    let graph = graphs::random(6000, 9000, true, 9);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| solo(&graph, &options(Method::Lanczos, 8, 1)))
    };
    let alone = with(1);
    let Source::Lanczos(rule) = alone.source() else { panic!("Lanczos was asked for") };
    assert!(rule.exact_moments() >= 4, "two hops at least");
    for threads in [2, 3, 7] {
        assert!(with(threads).source() == alone.source(), "{threads} threads");
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

// ---- the file -------------------------------------------------------------------------------

/// A dataset of 1200 nodes in a directory of its own.
fn dataset(dir: &tempfile::TempDir) -> std::path::PathBuf {
    let path = dir.path().join("small.h5");
    let graph = graphs::random(1200, 2400, true, 3);
    Dataset::new("small", graph, vec![0.5; 1200]).write(&path).expect("written");
    path
}

fn load(data: &std::path::Path, options: &Options) -> logdet::Loaded {
    let world = World::solo();
    let graph = Dataset::read(data).expect("a dataset").graph;
    logdet::load_or_make(&world, data, true, options, |options| {
        logdet::compute(&mut native(&World::solo(), &graph), options)
    })
    .expect("a spectrum")
}

#[test]
fn a_second_run_reads_what_the_first_has_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let mut paths = Vec::new();
    for method in [Method::Eigenvalues, Method::PowerSeries, Method::Lanczos] {
        let options = options(method, 20, 1);
        let (first, second) = (load(&data, &options), load(&data, &options));
        assert!(first.made && !second.made, "{method:?}");
        assert_eq!(first.spectrum.source(), second.spectrum.source());
        let layer = Coefficients { alpha: 1.2, rho: -0.8, gamma: 0.3, bias: 0.0 };
        assert_eq!(first.spectrum.log_det(&layer), second.spectrum.log_det(&layer));
        paths.push(first.path);
    }
    let other = load(&data, &options(Method::Lanczos, 20, 2));
    assert!(other.made, "another seed is another spectrum");
    paths.push(other.path);
    paths.dedup();
    assert_eq!(paths.len(), 4, "a file each");
    assert!(paths.iter().all(|p| p.parent() == data.parent()), "beside the dataset");
}

/// Another graph, or the same without its weights, never finds the file of this one; where nothing
/// can be kept, the result is there all the same.
#[test]
fn files_belong_to_one_graph_and_are_never_needed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let options = options(Method::Lanczos, 20, 1);
    let first = load(&data, &options);
    let graph = Dataset::read(&data).expect("a dataset").graph;
    let compute = |o: &Options| logdet::compute(&mut native(&World::solo(), &graph), o);
    let plain = logdet::load_or_make(&World::solo(), &data, false, &options, compute);
    let plain = plain.expect("a spectrum");
    assert!(plain.made && plain.path != first.path, "weights are part of the name");

    std::fs::remove_file(&first.path).expect("removed");
    std::fs::create_dir(&first.path).expect("a directory in its place");
    let again = load(&data, &options);
    assert!(again.made, "a directory is no spectrum");
    assert_eq!(again.spectrum.source(), first.spectrum.source());

    let other = graphs::random(1200, 2400, true, 4);
    Dataset::new("small", other, vec![0.5; 1200]).write(&data).expect("written");
    let stale = load(&data, &options);
    assert!(stale.made && stale.path != first.path, "another graph has another hash");
    assert_ne!(stale.spectrum.source(), first.spectrum.source());
}

#[test]
fn a_damaged_file_is_computed_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let options = options(Method::Lanczos, 20, 1);
    let first = load(&data, &options);
    let good = std::fs::read(&first.path).expect("the file");
    let mut flipped = good.clone();
    let at = flipped.len() - 100; // inside the last array
    flipped[at] ^= 0x10;
    for bad in [&b""[..], b"not HDF5", &good[..good.len() / 2], &flipped] {
        std::fs::write(&first.path, bad).expect("written");
        let again = load(&data, &options);
        assert!(again.made, "{} bytes of it were taken for good", bad.len());
        assert_eq!(again.spectrum.source(), first.spectrum.source());
        assert_eq!(std::fs::read(&first.path).expect("the file").len(), good.len());
    }
}
