//! The exact traces of low powers, and what they are worth.

use super::*;

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

/// Walks see later nodes only, those of later ranks included: on graphs where they soon see
/// everything, over more edges than are kept at a time, with and without weights, one node or none
/// after the other left.
#[test]
fn closed_walks_are_all_counted_on_any_number_of_ranks() {
    let hubs = |weighted| {
        let mut edges = if weighted {
            dgmrf::graph::EdgeList::weighted()
        } else {
            dgmrf::graph::EdgeList::unweighted()
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
    let name = "moments::closed_walks_are_all_counted_on_any_number_of_ranks";
    let moments = |world: &Rc<World>, graph: &Graph| -> Vec<f64> {
        // Enough probes for walks of six hops, and few steps, which the sums over a rule still get
        // right.
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
