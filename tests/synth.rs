//! Generated data: the law of the fields, the true posterior, and the command line.
//!
//! Expected numbers come from dense matrices written down here entry by entry from the paper's
//! equations, and from the posteriors published with the paper's data.

use dgmrf::dataset::Dataset;
use dgmrf::graph::delaunay::Weighting;
use dgmrf::graph::{EdgeList, Graph, k_hop};
use dgmrf::model::LayerSpec;
use dgmrf::progress::Progress;
use dgmrf::random::{Purpose, Stream};
use dgmrf::synth::{self, Dgmrf, Mix, Observation, Prior, mix, truth};
use faer::Mat;
use faer::linalg::solvers::{DenseSolveCore, Solve};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

// ---- dense references ---------------------------------------------------------------------

/// `G = α D^γ + β D^(γ-1) A`, entry by entry.
fn dense_layer(graph: &Graph, p: LayerSpec) -> Mat<f64> {
    let n = graph.nodes();
    let mut a = Mat::<f64>::zeros(n, n);
    for (i, j, w) in graph.edge_iter() {
        a[(i as usize, j as usize)] = w;
        a[(j as usize, i as usize)] = w;
    }
    let d: Vec<f64> = (0..n).map(|i| (0..n).map(|j| a[(i, j)]).sum()).collect();
    Mat::from_fn(n, n, |i, j| {
        let own = if i == j { p.alpha * d[i].powf(p.gamma) } else { 0.0 };
        own + p.beta * d[i].powf(p.gamma - 1.0) * a[(i, j)]
    })
}

fn inverse(a: &Mat<f64>) -> Mat<f64> {
    a.partial_piv_lu().inverse()
}

/// Mean and precision of a stack of layers: `g(x) = G x + c`.
fn dense_dgmrf(graph: &Graph, layers: &[LayerSpec]) -> (Mat<f64>, Mat<f64>) {
    let n = graph.nodes();
    let mut g = Mat::<f64>::identity(n, n);
    let mut c = Mat::<f64>::zeros(n, 1);
    for &p in layers {
        let layer = dense_layer(graph, p);
        g = &layer * g;
        c = &layer * c + Mat::from_fn(n, 1, |_, _| p.bias);
    }
    let mean = g.partial_piv_lu().solve(-&c);
    (mean, g.transpose() * &g)
}

fn small_graph(weighting: Weighting) -> Graph {
    synth::random_graph(200, 5, weighting).unwrap().1
}

// ---- the law of the samples ------------------------------------------------------------------

/// Many samples against a mean and a covariance, with the tolerances of sampling theory. `rank`
/// is the number of directions in which the field moves.
fn assert_law(
    prior: &(dyn Prior + Sync),
    mean: &Mat<f64>,
    k: &Mat<f64>,
    q: &Mat<f64>,
    rank: usize,
) {
    const SAMPLES: usize = 6000;
    let (n, s) = (prior.nodes(), SAMPLES as f64);
    let columns: Vec<Vec<f64>> = (0..SAMPLES as u64)
        .into_par_iter()
        .map(|step| {
            let stream = Stream::new(11, Purpose::Test, step);
            prior.sample(stream, &mut Progress::silent()).unwrap()
        })
        .collect();
    let x = Mat::from_fn(n, SAMPLES, |i, c| columns[c][i] - mean[(i, 0)]);

    // Means: standard error sqrt(K_ii / S).
    let worst = (0..n)
        .map(|i| x.row(i).iter().sum::<f64>() / s / (k[(i, i)] / s).sqrt())
        .fold(0.0, |m: f64, z| m.max(z.abs()));
    assert!(worst < 5.5, "a mean is off by {worst} standard errors");

    // Covariances: Var Ĉ_ij = (K_ii K_jj + K_ij²) / S.
    let c = &x * x.transpose() * faer::Scale(1.0 / s);
    let mut worst = 0.0f64;
    let mut expected = 0.0;
    for i in 0..n {
        for j in 0..n {
            let variance = (k[(i, i)] * k[(j, j)] + k[(i, j)].powi(2)) / s;
            worst = worst.max((c[(i, j)] - k[(i, j)]).abs() / variance.sqrt());
            expected += variance;
        }
    }
    assert!(worst < 6.5, "a covariance is off by {worst} standard errors");
    let distance = (&c - k).squared_norm_l2() / expected;
    assert!(distance < 3.0, "squared Frobenius distance is {distance} times its expectation");

    // Energies: Σ xᵀQx is chi-squared with rank * S degrees of freedom. Sees an error of 0.5 %
    // in the scale of any parameter.
    let energy = (x.transpose() * q * &x).diagonal().column_vector().iter().sum::<f64>();
    let freedom = rank as f64 * s;
    let z = (energy - freedom) / (2.0 * freedom).sqrt();
    assert!(z.abs() < 5.0, "the energy is off by {z} standard errors");
}

#[test]
fn dgmrf_samples_have_the_law_of_the_layers() {
    let layers = [
        LayerSpec { bias: 0.7, ..LayerSpec::default() },
        LayerSpec { alpha: 0.8, beta: 0.5, gamma: 0.4, bias: -0.3, theta2: None },
    ];
    for weighting in [Weighting::None, Weighting::InverseRelative { epsilon: 0.01 }] {
        let graph = small_graph(weighting);
        for layers in [&layers[..1], &layers[..]] {
            let (mean, q) = dense_dgmrf(&graph, layers);
            assert!(mean.norm_max() > 1e-3, "the test needs a mean to see");
            let prior = Dgmrf::new(&graph, layers).unwrap();
            assert_law(&prior, &mean, &inverse(&q), &q, 200);
        }
    }
}

#[test]
fn dense_samples_have_the_law_of_the_hop_graph() {
    let graph = k_hop(&small_graph(Weighting::None), 3).unwrap();
    let (mean, q) = dense_dgmrf(&graph, &[LayerSpec::default()]);
    let prior = Dgmrf::new(&graph, &[LayerSpec::default()]).unwrap();
    assert_law(&prior, &mean, &inverse(&q), &q, 200);
}

fn dense_mix(graphs: &[Graph], parameters: &[LayerSpec]) -> Mat<f64> {
    let n = graphs[0].nodes();
    graphs.iter().zip(parameters).fold(Mat::zeros(n, n), |q, (graph, &p)| {
        let g = dense_layer(graph, p);
        q + g.transpose() * &g
    })
}

#[test]
fn mix_samples_have_the_law_of_the_sum() {
    let graphs = mix::hop_graphs(&small_graph(Weighting::None), 3).unwrap();
    let parameters = mix::random_parameters(3, 4);
    let q = dense_mix(&graphs, &parameters);
    let prior = Mix::new(&graphs, &parameters).unwrap();
    assert!(!prior.is_intrinsic());
    assert_law(&prior, &Mat::zeros(200, 1), &inverse(&q), &q, 200);
}

#[test]
fn intrinsic_mix_is_drawn_beside_the_constants() {
    let graphs = mix::hop_graphs(&small_graph(Weighting::None), 4).unwrap();
    let parameters = [LayerSpec { alpha: 1.0, ..LayerSpec::default() }; 4];
    let q = dense_mix(&graphs, &parameters);
    let prior = Mix::new(&graphs, &parameters).unwrap();
    assert!(prior.is_intrinsic());
    // Q⁺ = (Q + 11ᵀ/N)⁻¹ - 11ᵀ/N.
    let constants = Mat::from_fn(200, 200, |_, _| 1.0 / 200.0);
    let k = inverse(&(&q + &constants)) - &constants;
    assert_law(&prior, &Mat::zeros(200, 1), &k, &q, 199);
}

#[test]
fn random_mix_parameters_follow_the_paper() {
    let all: Vec<LayerSpec> = (0..500).flat_map(|s| mix::random_parameters(4, s)).collect();
    assert!(all.iter().all(|p| (0.5..1.5).contains(&p.alpha) && (-1.1..-0.1).contains(&p.beta)));
    let mean = |f: fn(&LayerSpec) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
    // The mean of 2000 uniforms has a standard error of 0.0065.
    assert!((mean(|p| p.alpha) - 1.0).abs() < 0.03);
    assert!((mean(|p| p.beta) + 0.6).abs() < 0.03);
    assert!(all.iter().all(|p| p.gamma == 1.0 && p.bias == 0.0));
}

// ---- the true posterior -----------------------------------------------------------------------

/// Conditioning through the covariance: gain `K_:m (K_mm + σ² I)⁻¹`, no precision involved.
fn condition(mean: &Mat<f64>, k: &Mat<f64>, data: &Dataset, noise: f64) -> (Vec<f64>, Vec<f64>) {
    let m: Vec<usize> = (0..data.nodes()).filter(|&i| data.observed[i]).collect();
    let n = data.nodes();
    let kmm = Mat::from_fn(m.len(), m.len(), |a, b| {
        k[(m[a], m[b])] + if a == b { noise * noise } else { 0.0 }
    });
    let cross = Mat::from_fn(m.len(), n, |a, i| k[(m[a], i)]);
    let gain = kmm.partial_piv_lu().solve(&cross);
    let innovation = Mat::from_fn(m.len(), 1, |a, _| data.y[m[a]] - mean[(m[a], 0)]);
    let post = mean + gain.transpose() * innovation;
    let variance = |i: usize| {
        let explained: f64 = (0..m.len()).map(|a| gain[(a, i)] * cross[(a, i)]).sum();
        k[(i, i)] - explained + noise * noise
    };
    ((0..n).map(|i| post[(i, 0)]).collect(), (0..n).map(|i| variance(i).sqrt()).collect())
}

fn assert_truth(data: &Dataset, (mean, std): (Vec<f64>, Vec<f64>)) {
    let truth = data.truth.as_ref().unwrap();
    assert_near(truth.post_mean.as_ref().unwrap(), &mean, 1e-9);
    assert_near(truth.post_std.as_ref().unwrap(), &std, 1e-9);
}

fn assert_near(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < tolerance, "differ by {worst:e}");
}

#[test]
fn truth_is_the_conditional_of_the_joint_gaussian() {
    let options = Observation { noise: 0.05, mask_fraction: 0.4, ..Observation::default() };
    let layers = [
        LayerSpec { bias: 0.7, ..LayerSpec::default() },
        LayerSpec { alpha: 0.8, beta: 0.5, gamma: 0.4, bias: -0.3, theta2: None },
    ];
    let graph = small_graph(Weighting::InverseRelative { epsilon: 0.01 });
    let data = synth::observe(&Dgmrf::new(&graph, &layers).unwrap(), graph.clone(), &options);
    let data = data.unwrap();
    assert_eq!(data.observed_count(), 120);
    let (mean, q) = dense_dgmrf(&graph, &layers);
    assert_truth(&data, condition(&mean, &inverse(&q), &data, options.noise));
    // y - x is noise of the right size: 200 values, standard error 5 %.
    let x = data.truth.as_ref().unwrap().x.as_ref().unwrap();
    let noise = x.iter().zip(&data.y).map(|(x, y)| (x - y).powi(2)).sum::<f64>() / 200.0;
    assert!((noise.sqrt() / 0.05 - 1.0).abs() < 0.25, "{noise}");

    let graphs = mix::hop_graphs(&graph, 3).unwrap();
    let parameters = mix::random_parameters(3, 4);
    let prior = Mix::new(&graphs, &parameters).unwrap();
    let data = synth::observe(&prior, graph.clone(), &options).unwrap();
    let k = inverse(&dense_mix(&graphs, &parameters));
    assert_truth(&data, condition(&Mat::zeros(200, 1), &k, &data, options.noise));
}

/// One of the paper's datasets, or `None` (with a message) where they are not installed.
fn paper_data(name: &str) -> Option<(Dataset, Vec<f64>, Vec<f64>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    if !dir.is_dir() {
        eprintln!("skipped: {} is not there", dir.display());
        return None;
    }
    let column = |file: &str, name: &str| -> Vec<f64> {
        let mut reader = csv::Reader::from_path(dir.join(file)).unwrap();
        let k = reader.headers().unwrap().iter().position(|h| h == name).unwrap();
        reader.records().map(|r| r.unwrap()[k].parse().unwrap()).collect()
    };
    let mut edges = EdgeList::unweighted();
    for (a, b) in column("edges.csv", "src").iter().zip(column("edges.csv", "dst")) {
        edges.push(*a as u32, b as u32, 1.0);
    }
    let y = column("nodes.csv", "y");
    let (graph, _) = edges.into_graph(y.len()).unwrap();
    let mut data = Dataset::new(name, graph, y);
    data.observed = column("nodes.csv", "observed").iter().map(|&o| o != 0.0).collect();
    let [mean, std] = ["post_mean", "post_std"].map(|c| column("truth_f64.csv", c));
    Some((data, mean, std))
}

fn assert_reproduces(prior: &dyn Prior, data: &Dataset, mean: &[f64], std: &[f64]) {
    let exact = truth::posterior(prior, &data.y, &data.observed, 0.01).unwrap();
    assert_near(&exact.mean, mean, 1e-6);
    assert_near(&exact.std_y, std, 1e-6);
}

#[test]
fn true_parameters_reproduce_the_papers_posteriors() {
    for layers in 1..=3 {
        let Some((data, mean, std)) = paper_data(&format!("synth_dgmrf_l{layers}")) else { return };
        let prior = Dgmrf::new(&data.graph, &vec![LayerSpec::default(); layers]).unwrap();
        assert_reproduces(&prior, &data, &mean, &std);
    }
    let (data, mean, std) = paper_data("dense3").unwrap();
    let dense = k_hop(&data.graph, 3).unwrap();
    let prior = Dgmrf::new(&dense, &[LayerSpec::default()]).unwrap();
    assert_reproduces(&prior, &data, &mean, &std);

    let (data, mean, std) = paper_data("mix50").unwrap();
    let graphs = mix::hop_graphs(&data.graph, 4).unwrap();
    let parameters = [LayerSpec { alpha: 1.0, ..LayerSpec::default() }; 4];
    assert_reproduces(&Mix::new(&graphs, &parameters).unwrap(), &data, &mean, &std);
}

// ---- the command line ------------------------------------------------------------------------

fn synth(dir: &tempfile::TempDir, words: &str) -> (Output, PathBuf) {
    let file = dir.path().join("out.h5");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dgmrf"));
    command.arg("synth").args(words.split_whitespace()).arg("-o").arg(&file);
    (command.output().unwrap(), file)
}

fn synth_ok(words: &str) -> (Dataset, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let (output, file) = synth(&dir, &format!("{words} --json"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let data = Dataset::read(&file).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["nodes"], data.nodes());
    assert_eq!(json["edges"], data.graph.edges());
    assert_eq!(json["observed"], data.observed_count());
    (data, json)
}

#[test]
fn every_generator_writes_what_it_says() {
    let (data, _) = synth_ok("dgmrf --nodes 300 --layers 2 --alpha 1.2,1.5 --bias 0,-0.5");
    assert_eq!((data.nodes(), data.observed_count(), data.name.as_str()), (300, 225, "out"));
    assert!(data.position.is_some() && data.truth.unwrap().arrays().count() == 3);

    let (base, _) = synth_ok("dgmrf --nodes 300 --layers 1");
    let (dense, _) = synth_ok("dense --nodes 300 --hops 2");
    assert_eq!(dense.graph, base.graph, "dense data carries the base graph");
    assert_ne!(dense.y, base.y);

    let (mix, _) = synth_ok("mix --nodes 300 --hops 2");
    let truth = mix.truth.unwrap();
    let level = truth.x.unwrap().iter().sum::<f64>() / 300.0;
    assert!(level.abs() < 1e-12 && mix.graph == base.graph);
    let (_, json) = synth_ok("mix --nodes 300 --hops 3 --random-parameters --seed 4");
    let alphas = json["layers"].as_array().unwrap().iter().map(|l| l["alpha"].as_f64().unwrap());
    assert!(alphas.eq(mix::random_parameters(3, 4).iter().map(|p| p.alpha)));
    synth_ok("mix --nodes 300 --hops 2 --alpha 1,0.9 --beta -1,-1.05");

    let (mesh, _) = synth_ok("mesh --nodes 1000 --weights inverse-relative");
    assert_eq!((mesh.nodes(), mesh.observed_count()), (1000, 500));
    assert!(mesh.graph.is_weighted() && mesh.truth.is_none());
    let (grid, _) = synth_ok("mesh --nodes 900 --kind grid --mask-fraction 0");
    assert_eq!((grid.graph.edges(), grid.observed_count()), (2 * 30 * 29, 900));
}

#[test]
fn truth_can_be_left_out() {
    let (data, _) = synth_ok("dgmrf --nodes 100 --truth never");
    assert!(data.truth.is_none());
    let (data, _) = synth_ok("dgmrf --nodes 6001");
    let names: Vec<&str> = data.truth.as_ref().unwrap().arrays().map(|(k, _)| k).collect();
    assert_eq!(names, ["x"], "too large for the posterior by default");
}

#[test]
fn same_seed_same_file() {
    for words in ["dgmrf --nodes 500 --layers 2", "mix --nodes 200", "mesh --nodes 20000"] {
        let hash = |seed: u64| synth_ok(&format!("{words} --seed {seed}")).0.hash();
        assert_eq!(hash(1), hash(1), "{words}");
        assert_ne!(hash(1), hash(2), "{words}");
    }
}

#[test]
fn help_shows_examples() {
    for words in ["--help", "dgmrf --help", "mix --help", "dense --help", "mesh --help"] {
        let output = Command::new(env!("CARGO_BIN_EXE_dgmrf"))
            .arg("synth")
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Examples:"), "{words}: {text}");
    }
}

#[test]
fn bad_arguments_are_refused_without_a_file() {
    let wrong = [
        ("dgmrf --nodes 0", "at least 3"),
        ("dgmrf --nodes 2", "at least 3"),
        ("mesh --nodes 0", "at least 3"),
        ("mesh --nodes 2 --kind grid", "at least 3"),
        ("mesh --nodes 5000000000", "2^32"),
        ("dgmrf --nodes -5", "invalid value '-5' for '--nodes"),
        ("dgmrf --mask-fraction 1.5", "mask fraction 1.5"),
        ("dgmrf --mask-fraction 1", "mask fraction 1 "),
        ("mesh --nodes 100 --mask-fraction -0.1", "mask fraction -0.1"),
        ("dgmrf --noise 0", "noise 0 must be a positive"),
        ("mesh --noise -0.1", "noise -0.1 must be a positive"),
        ("mix --noise NaN", "noise NaN"),
        ("dgmrf --alpha 1 --beta 1", "|beta| must be smaller than alpha"),
        ("dgmrf --alpha 1 --beta -2", "|beta| must be smaller than alpha"),
        ("dgmrf --layers 2 --beta -1,-1.3", "alpha 1.2, beta -1.3"),
        ("dense --beta 5", "|beta| must be smaller than alpha"),
        ("dgmrf --alpha -1 --beta 0", "alpha"),
        ("dgmrf --alpha inf", "not a finite number"),
        ("dgmrf --gamma NaN", "not a finite number"),
        ("mix --alpha 0", "alpha 0 must be positive"),
        ("dgmrf --layers 3 --alpha 1.2,1.3", "--alpha has 2 values for 3 layers"),
        ("dense --bias 1,2", "--bias has 2 values for 1 layers"),
        ("mix --hops 2 --beta -1,-1,-1", "--beta has 3 values for 2 hops"),
        ("mix --random-parameters --alpha 1", "cannot be used with"),
        ("dgmrf --layers 0", "--layers must be at least 1"),
        ("dense --hops 0", "--hops must be at least 1"),
        ("dgmrf --alpha one", "one"),
        ("spiral", "spiral"),
    ];
    for (words, message) in wrong {
        let dir = tempfile::tempdir().unwrap();
        let (output, _) = synth(&dir, words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {:?}", output.status);
        assert!(text.contains(message), "{words}: {text}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{words} left a file");
    }
}
