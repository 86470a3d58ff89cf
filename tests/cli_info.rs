//! `dgmrf info` through the real program.

use dgmrf::dataset::{Dataset, Features, Truth};
use dgmrf::graph::EdgeList;
use std::path::Path;
use std::process::{Command, Output};

fn info(path: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dgmrf")).arg("info").arg(path).args(more).output().unwrap()
}

/// A triangle with a tail, and a pair of nodes apart: everything about it can be counted by hand.
fn example() -> Dataset {
    let mut edges = EdgeList::weighted();
    for (a, b, w) in [(0, 1, 1.0), (1, 2, 0.5), (2, 0, 2.0), (2, 3, 1.0), (4, 5, 3.0)] {
        edges.push(a, b, w);
    }
    let graph = edges.into_graph(6).unwrap().0;
    let mut data = Dataset::new("toy", graph, vec![1.0, 2.0, 4.0, 8.0, f64::NAN, 32.0]);
    data.observed[3] = false;
    data.features = Some(Features { names: vec!["a".into(), "b".into()], values: vec![0.5; 12] });
    data.position = Some(vec![[0.0, 1.0]; 6]);
    data.truth = Some(Truth { post_std: Some(vec![1.0; 6]), ..Truth::default() });
    data
}

#[test]
fn json_has_the_fields_that_scripts_rely_on() {
    let dir = tempfile::tempdir().unwrap();
    let (rich, plain) = (dir.path().join("rich.h5"), dir.path().join("plain.h5"));
    example().write(&rich).unwrap();
    let bare = Dataset::new("bare", example().graph.without_weights(), vec![0.0; 6]);
    bare.write(&plain).unwrap();
    let json = |path: &Path| -> serde_json::Value {
        let output = info(path, &["--json"]);
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (rich, plain) = (json(&rich), json(&plain));
    let expected = serde_json::json!({
        "name": "toy", "nodes": 6, "edges": 5, "observed": 4, "evaluation": 1,
        "features": 2, "feature_names": ["a", "b"], "weighted": true, "components": 2,
        "density": 5.0 / 15.0, "diameter_at_least": 2,
        "degree": {"min": 1.0, "median": 2.0, "mean": 10.0 / 6.0, "max": 3.0},
        "weights": {"min": 0.5, "median": 1.0, "mean": 1.5, "max": 3.0},
        "position": true, "truth": ["post_std"], "hash": example().hash(),
        "graph_hash": example().graph_hash(),
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&rich[key], value, "{key}");
    }
    let expected = serde_json::json!({
        "observed": 6, "evaluation": 0, "features": 0, "feature_names": [], "weighted": false,
        "weights": null, "position": false, "truth": [],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&plain[key], value, "{key}");
    }
    assert!(rich["memory_bytes"].as_u64() > plain["memory_bytes"].as_u64());
}

#[test]
fn the_table_says_it_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toy.h5");
    example().write(&path).unwrap();
    let output = info(&path, &[]);
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    for row in [
        "name toy",
        "nodes 6",
        "edges 5",
        "components 2 (4, 2 nodes)",
        "diameter at least 2",
        "neighbours min 1, median 2, mean 1.6667, max 3",
        "weights min 0.5000, median 1, mean 1.5000, max 3",
        "observed 4 (66.7 %)",
        "to predict 2 (33.3 %)",
        "of these with y 1 (16.7 %)",
        "features 2: a, b",
        "positions yes",
        "truth yes",
    ] {
        assert!(rows.contains(&row.split(' ').collect()), "no row `{row}` in:\n{table}");
    }
}

#[test]
fn exit_codes_tell_failure_from_misuse() {
    let dir = tempfile::tempdir().unwrap();
    let missing = info(&dir.path().join("none.h5"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    let message = String::from_utf8(missing.stderr).unwrap();
    assert!(message.starts_with("error: ") && message.contains("none.h5"), "{message}");
    assert!(missing.stdout.is_empty());
    assert_eq!(info(dir.path(), &["--yaml"]).status.code(), Some(2));
}
