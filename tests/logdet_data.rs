//! Error bars of log-determinants on the paper's graphs: over many seeds the truth lies within
//! three standard errors (and the truncation bound).

use dgmrf::comm::World;
use dgmrf::dataset::{Dataset, DatasetFile};
use dgmrf::field::native::Native;
use dgmrf::graph::{EdgeList, Graph};
use dgmrf::logdet::{self, Method, Options, Spectrum, lanczos, power_series};
use dgmrf::partition::Partition;
use std::path::Path;

const RHO: [f64; 4] = [-0.5, -0.9, -0.99, 0.9];

/// A graph of the paper, or `None` (with a message) where it is not installed.
fn graph(name: &str) -> Option<Graph> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    if !dir.is_dir() {
        eprintln!("skipped: {} is not there", dir.display());
        return None;
    }
    let mut nodes = csv::Reader::from_path(dir.join("nodes.csv")).expect("nodes");
    let mut edges = csv::Reader::from_path(dir.join("edges.csv")).expect("edges");
    let weighted = edges.headers().expect("a header").len() > 2;
    let mut list = if weighted { EdgeList::weighted() } else { EdgeList::unweighted() };
    for edge in edges.records().map(|e| e.expect("an edge")) {
        let end = |k: usize| edge[k].parse::<u32>().expect("a node");
        let weight = if weighted { edge[2].parse().expect("a weight") } else { 1.0 };
        list.push(end(0), end(1), weight);
    }
    Some(list.into_graph(nodes.records().count()).expect("a graph").0)
}

fn engine(graph: &Graph) -> Native<f64> {
    let one = Partition::new(graph, vec![0; graph.nodes()], 1, Default::default());
    Native::new(World::solo(), one.expect("a part").part(0)).expect("an engine")
}

fn options(method: Method, probes: usize, seed: u64) -> Options {
    Options {
        method,
        power_series: power_series::Options { probes, terms: 50, seed },
        lanczos: lanczos::Options { probes, tolerance: f64::INFINITY, seed, ..Default::default() },
        ..Default::default()
    }
}

/// How often the truth is held, of `seeds` seeds, at the ρ where it is held least.
fn held(graph: &Graph, truth: &Spectrum, method: Method, probes: usize, seeds: u64) -> u64 {
    let mut engine = engine(graph);
    let mut held = [0; RHO.len()];
    for seed in 1..=seeds {
        let spectrum = logdet::compute(&mut engine, &options(method, probes, seed)).expect("one");
        for (held, rho) in held.iter_mut().zip(RHO) {
            let (found, truth) = (spectrum.estimate(rho), truth.estimate(rho));
            let allowed = 3.0 * found.stderr.hypot(truth.stderr) + found.bound + truth.bound;
            // Sums of a thousand and more, each rounded.
            let rounding = 1e-12 * truth.value.abs();
            *held += u64::from((found.value - truth.value).abs() <= allowed + rounding);
        }
    }
    println!("{method:?}, {probes} probes: {held:?} of {seeds} at {RHO:?}");
    *held.iter().min().expect("some ρ")
}

#[test]
fn chameleon_in_a_few_seeds() {
    let Some(graph) = graph("chameleon") else { return };
    let exact = options(Method::Eigenvalues, 1, 0);
    let truth = logdet::compute(&mut engine(&graph), &exact).expect("eigenvalues");
    assert!(held(&graph, &truth, Method::Lanczos, 30, 25) >= 24);
    assert!(held(&graph, &truth, Method::PowerSeries, 100, 25) >= 24);
}

/// Without its eigenvalues, which take long: against many probes.
#[test]
fn california_in_a_few_seeds() {
    let Some(graph) = graph("california") else { return };
    let truth = logdet::compute(&mut engine(&graph), &options(Method::Lanczos, 400, 1000));
    let truth = truth.expect("a spectrum");
    assert!(held(&graph, &truth, Method::Lanczos, 16, 15) >= 14);
    assert!(held(&graph, &truth, Method::PowerSeries, 48, 8) >= 7);
}

/// The full count, against all eigenvalues. Those of california take a quarter of an hour once and
/// are kept in the target directory, where `benches/logdet.rs` finds them too.
#[test]
#[ignore = "long: cargo test --release --test logdet_data -- --ignored --nocapture"]
fn a_hundred_seeds() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logdet");
    std::fs::create_dir_all(&dir).expect("a directory");
    for name in ["chameleon", "california"] {
        let Some(graph) = graph(name) else { return };
        let data = dir.join(format!("{name}.h5"));
        if !data.exists() {
            let values = vec![0.0; graph.nodes()];
            Dataset::new(name, graph.clone(), values).write(&data).expect("written");
        }
        let exact = options(Method::Eigenvalues, 1, 0);
        let weighted = graph.weights().is_some();
        let file = DatasetFile::open(&data).expect("a dataset");
        let truth = logdet::load_or_make(&World::solo(), &file, weighted, &exact, |options| {
            logdet::compute(&mut engine(&graph), options)
        });
        let truth = truth.expect("eigenvalues").spectrum;
        println!("{name}");
        for (method, probes) in
            [(Method::Lanczos, 30), (Method::Lanczos, 100), (Method::PowerSeries, 100)]
        {
            assert!(held(&graph, &truth, method, probes, 100) >= 97, "{name}: {method:?}");
        }
    }
}
