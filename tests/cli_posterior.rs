//! `dgmrf infer` and `dgmrf evaluate` through the real program; the true posteriors of the shared
//! data.

mod support;

use dgmrf::dataset::Dataset;
use dgmrf::dataset::mask;
use dgmrf::model::{Gamma, Model, ModelFile, Standardise};
use dgmrf::run::Predictions;
use std::path::Path;
use std::process::{Command, Output};
use support::{mpirun, relative_error};

const DGMRF: &str = env!("CARGO_BIN_EXE_dgmrf");

fn dgmrf(dir: &Path, words: &str) -> Output {
    let words = words.split_whitespace();
    Command::new(DGMRF).args(words).current_dir(dir).output().expect("dgmrf")
}

fn succeeds(dir: &Path, words: &str) -> String {
    let output = dgmrf(dir, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn fails(dir: &Path, words: &str, expected: &str) {
    let output = dgmrf(dir, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}: {errors}");
    assert!(errors.contains(expected), "{words}: {errors}");
}

/// Layers of generated data (`synth dgmrf`): γ = 1, no bias.
fn true_model(data: &Dataset, layers: usize) -> ModelFile {
    let model = Model::from_coefficients(&vec![(1.2, -1.0, 1.0, 0.0); layers], Gamma::Fixed(1.0));
    ModelFile {
        graph_hash: data.graph_hash(),
        weighted: false,
        features: false,
        model: model.expect("a model"),
        sigma: 0.01,
        standardise: Standardise::default(),
    }
}

/// A directory with a small dataset that knows its posterior, and its model.
fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    succeeds(dir.path(), "synth dgmrf --nodes 400 --layers 2 --seed 3 -o data.h5");
    let data = Dataset::read(&dir.path().join("data.h5")).expect("data");
    true_model(&data, 2).write(&dir.path().join("model.json")).expect("model");
    dir
}

const INFER: &str = "infer --model model.json --data data.h5";

#[test]
fn predictions_of_the_true_model_are_the_true_posterior() {
    let dir = workplace();
    let at = |name: &str| dir.path().join(name);
    succeeds(dir.path(), &format!("{INFER} --variance exact --tolerance 1e-11 --csv -o a.h5"));
    let data = Dataset::read(&at("data.h5")).unwrap();
    let truth = data.truth.clone().unwrap();
    let got = Predictions::read(&at("a.h5")).unwrap();
    assert!(relative_error(&got.mean, &truth.post_mean.unwrap()) < 1e-7);
    assert!(relative_error(&got.std_y, &truth.post_std.unwrap()) < 1e-7);
    assert_eq!(got.std_x_error, None);
    let csv = std::fs::read_to_string(at("a.csv")).unwrap();
    assert_eq!(csv.lines().next(), Some("id,mean,std_x,std_y"));
    assert!(csv.lines().nth(8).unwrap().starts_with(&format!("7,{},", got.mean[7])));

    // Scores against plain formulas.
    let json = succeeds(dir.path(), "evaluate --posterior a.h5 --data data.h5 -o m.json --json");
    assert_eq!(json, std::fs::read_to_string(at("m.json")).unwrap());
    let scores: serde_json::Value = serde_json::from_str(&json).unwrap();
    let hidden: Vec<usize> = (0..400).filter(|&i| !data.observed[i]).collect();
    let square: f64 = hidden.iter().map(|&i| (data.y[i] - got.mean[i]).powi(2)).sum();
    let rmse = (square / hidden.len() as f64).sqrt();
    assert!((scores["rmse"].as_f64().unwrap() - rmse).abs() < 1e-12);
    assert_eq!(scores["n_test"], hidden.len());
    for key in ["mae", "crps", "interval_score", "coverage50", "coverage80", "log_score"] {
        assert!(scores[key].is_number(), "{key}");
    }
    assert!((0.8..=1.0).contains(&scores["coverage95"].as_f64().unwrap()));
    for key in ["mean_mae", "std_mae"] {
        assert!(scores[key].as_f64().unwrap() < 1e-7, "{key}");
    }

    // The same on two ranks, and with units that the layers do not see.
    let output = mpirun(2)
        .arg(DGMRF)
        .args(INFER.split(' '))
        .args("--tolerance 1e-11 --samples 10 -o two.h5 --json".split(' '))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    succeeds(dir.path(), &format!("{INFER} --tolerance 1e-11 --samples 10 -o one.h5"));
    let [one, two] = ["one.h5", "two.h5"].map(|name| Predictions::read(&at(name)).unwrap());
    assert!(relative_error(&one.mean, &two.mean) < 1e-8);
    assert!(relative_error(&one.std_x, &two.std_x) < 1e-8);
    assert_eq!(one.key, two.key);
}

#[test]
fn standardised_models_predict_in_the_units_of_the_data() {
    let dir = workplace();
    let at = |name: &str| dir.path().join(name);
    let (shift, scale) = (5.0, 20.0);
    let mut data = Dataset::read(&at("data.h5")).unwrap();
    let mut model = true_model(&data, 2);
    data.y.iter_mut().for_each(|y| *y = shift + scale * *y);
    data.write(&at("moved.h5")).unwrap();
    model.sigma *= scale;
    model.standardise = Standardise { mean: shift, scale };
    model.write(&at("moved.json")).unwrap();
    let more = "--samples 20 --tolerance 1e-11 --keep-samples";
    succeeds(dir.path(), &format!("{INFER} {more} -o a.h5"));
    succeeds(dir.path(), &format!("infer --model moved.json --data moved.h5 {more} -o b.h5"));
    let [a, b] = ["a.h5", "b.h5"].map(|name| Predictions::read(&at(name)).unwrap());
    let moved = |values: &[f64], shift: f64| values.iter().map(|v| shift + scale * v).collect();
    let close = |b: &[f64], a: Vec<f64>| assert!(relative_error(b, &a) < 1e-8);
    close(&b.mean, moved(&a.mean, shift));
    close(&b.std_x, moved(&a.std_x, 0.0));
    close(&b.std_y, moved(&a.std_y, 0.0));
    close(&b.std_x_error.unwrap(), moved(&a.std_x_error.unwrap(), 0.0));
    let samples = |name: &str| {
        let file = hdf5::File::open(at(name)).unwrap();
        file.dataset("samples").unwrap().read_raw::<f64>().unwrap()
    };
    let (a, b) = (samples("a.h5"), samples("b.h5"));
    assert_eq!(a.len(), 20 * 400);
    close(&b, moved(&a, shift));
}

#[test]
fn some_nodes_other_masks_and_what_is_refused() {
    let dir = workplace();
    let at = |name: &str| dir.path().join(name);
    // Another mask on the same graph.
    let mut data = Dataset::read(&at("data.h5")).unwrap();
    mask::hide_fraction(&mut data, 0.6, 9).unwrap();
    data.write(&at("other.h5")).unwrap();
    let few = "--nodes 7,390-399,0 --samples 10 --keep-samples";
    succeeds(dir.path(), &format!("infer --model model.json --data other.h5 {few} -o few.h5"));
    let got = Predictions::read(&at("few.h5")).unwrap();
    let expected: Vec<u32> = [0, 7].into_iter().chain(390..400).collect();
    assert_eq!((got.nodes.as_ref(), got.mean.len()), (Some(&expected), 12));
    succeeds(dir.path(), "evaluate --posterior few.h5 --data other.h5");

    fails(dir.path(), &format!("{INFER} --nodes 400"), "400 is not below 400");
    fails(dir.path(), &format!("{INFER} --nodes x"), "neither an id");
    fails(dir.path(), &format!("{INFER} --tolerance 2"), "--tolerance");
    fails(dir.path(), &format!("{INFER} --samples 1"), "at least 2");
    fails(dir.path(), &format!("{INFER} --batch 100000000000"), "GB are left");
    fails(dir.path(), "infer nowhere", "no run directory");
    fails(dir.path(), "evaluate --posterior few.h5 --data data.h5", "for another dataset");
    fails(dir.path(), "evaluate --posterior none.h5 --data data.h5", "no predictions yet");
    fails(dir.path(), "evaluate --posterior data.h5 --data data.h5", "holds no posterior");
    succeeds(dir.path(), "synth mesh --nodes 100 -o mesh.h5");
    fails(dir.path(), "infer --model model.json --data mesh.h5", "another graph");
    let model = std::fs::read_to_string(at("model.json")).unwrap();
    std::fs::write(at("model.json"), model.replace("\"sigma\": 0.01", "\"sigma\": 0.0")).unwrap();
    fails(dir.path(), INFER, "sigma = 0");
    assert!(!at("posterior.h5").exists(), "nothing is left of what failed");
    let left = std::fs::read_dir(dir.path()).unwrap().flatten();
    let parts: Vec<_> =
        left.filter(|f| f.path().extension().is_some_and(|e| e == "part")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

/// With the parameters that generated the data, mean and standard deviation are those of the dense
/// computation in double precision that comes with the data.
#[test]
fn shared_data_with_their_true_parameters() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    for layers in 1..=3 {
        let source = shared.join(format!("synth_dgmrf_l{layers}"));
        if !source.exists() {
            eprintln!("skipped: {} is missing", source.display());
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let [nodes, edges, truth] = ["nodes.csv", "edges.csv", "truth_f64.csv"]
            .map(|f| source.join(f).display().to_string());
        let words =
            format!("import csv --nodes {nodes} --edges {edges} --truth {truth} -o data.h5");
        succeeds(dir.path(), &words);
        let data = Dataset::read(&at("data.h5")).unwrap();
        true_model(&data, layers).write(&at("model.json")).unwrap();
        let truth = data.truth.unwrap();
        let (mean, std) = (truth.post_mean.unwrap(), truth.post_std.unwrap());
        let worst =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        succeeds(dir.path(), &format!("{INFER} --variance exact -o exact.h5"));
        let exact = Predictions::read(&at("exact.h5")).unwrap();
        assert!(worst(&exact.mean, &mean) < 1e-6, "{layers}: {}", worst(&exact.mean, &mean));
        assert!(worst(&exact.std_y, &std) < 1e-6, "{layers}: {}", worst(&exact.std_y, &std));
        if layers == 3 {
            let error = |variance: &str| {
                succeeds(dir.path(), &format!("{INFER} --variance {variance} -o {variance}.h5"));
                let got = Predictions::read(&at(&format!("{variance}.h5"))).unwrap();
                let off = got.std_x.iter().zip(&exact.std_x).map(|(a, b)| (a - b).abs());
                off.sum::<f64>()
            };
            let ratio = error("rbmc") / error("mc");
            assert!(ratio < 0.25, "{ratio}");
        }
    }
}
