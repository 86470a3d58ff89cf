//! The reference data: counts against the READMEs, raw files against their prepared tables.

use crate::{Workplace, shared};
use dgmrf::dataset::Dataset;

fn csv_words(directory: &str, truth: Option<&str>) -> Option<String> {
    let file = |name: &str| shared(&format!("{directory}/{name}"));
    let mut words = format!(
        "csv --nodes {} --edges {}",
        file("nodes.csv")?.display(),
        file("edges.csv")?.display()
    );
    if let Some(truth) = truth {
        words += &format!(" --truth {}", file(truth)?.display());
    }
    Some(words)
}

fn read_csv(directory: &str) -> Option<Dataset> {
    Some(Workplace::new(&[]).dataset(&csv_words(directory, None)?).0)
}

#[test]
fn every_directory_has_the_counts_of_its_readme() {
    // directory, nodes, edges, observed, features, weighted, has a truth
    let expected = [
        ("synth_dgmrf_l1", 3000, 8977, 2250, 0, false, true),
        ("synth_dgmrf_l2", 3000, 8977, 2250, 0, false, true),
        ("synth_dgmrf_l3", 3000, 8977, 2250, 0, false, true),
        ("dense3", 3000, 8974, 2250, 0, false, true),
        ("mix50", 5000, 14970, 2500, 0, false, true),
        ("chameleon", 2277, 31371, 1139, 0, false, false),
        ("squirrel", 5201, 198353, 2601, 0, false, false),
        ("california", 20536, 61585, 10268, 8, true, false),
        ("sat_temps_random", 148309, 443435, 74155, 0, true, false),
    ];
    let place = Workplace::new(&[]);
    for (directory, nodes, edges, observed, features, weighted, has_truth) in expected {
        let Some(words) = csv_words(directory, has_truth.then_some("truth.csv")) else { return };
        let json = place.json(&words);
        assert_eq!(json["nodes"], nodes, "{directory}");
        assert_eq!(json["edges"], edges, "{directory}");
        assert_eq!(json["observed"], observed, "{directory}");
        assert_eq!(json["features"], features, "{directory}");
        assert_eq!(json["weighted"], weighted, "{directory}");
        assert_eq!(json["components"], 1, "{directory}");
        assert_eq!((&json["duplicates"], &json["self_loops"]), (&0.into(), &0.into()));
    }
}

#[test]
fn the_truth_is_read_from_both_of_its_tables() {
    let place = Workplace::new(&[]);
    let Some(words) = csv_words("dense3", Some("truth.csv")) else { return };
    let stored = place.dataset(&words).0.truth.unwrap();
    let Some(words) = csv_words("dense3", Some("truth_f64.csv")) else { return };
    let recomputed = place.dataset(&words).0.truth.unwrap();
    assert!(stored.x.is_some() && recomputed.x.is_none());
    // README of dense3: the two posteriors differ by at most 2.7e-9 and 2.5e-9.
    let largest = |a: Option<Vec<f64>>, b: Option<Vec<f64>>| {
        a.unwrap().iter().zip(b.unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(largest(stored.post_mean, recomputed.post_mean) < 2.8e-9);
    assert!(largest(stored.post_std, recomputed.post_std) < 2.6e-9);
}

#[test]
fn raw_musae_files_become_the_prepared_graphs() {
    // Repeated edges: rows - self-loops - edges, with the counts of the READMEs.
    for (name, rows, self_loops) in [("chameleon", 36101, 50), ("squirrel", 217073, 140)] {
        let file = |what: &str| shared(&format!("raw/musae/{name}_{what}.csv"));
        let (Some(edges), Some(target)) = (file("edges"), file("target")) else { return };
        let words = format!("musae --edges {} --target {}", edges.display(), target.display());
        let place = Workplace::new(&[]);
        let json = place.json(&words);
        let prepared = read_csv(name).unwrap();
        assert_eq!(json["self_loops"], self_loops);
        assert_eq!(json["duplicates"], rows - self_loops - prepared.graph.edges());
        let raw = Dataset::read(&place.path("out.h5")).unwrap();
        assert_eq!(raw.graph, prepared.graph);
        let worst = raw.y.iter().zip(&prepared.y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst == 0.0, "{name}: y differs by {worst:e}");
        assert_eq!(raw.observed_count(), raw.nodes());
    }
}

#[test]
fn raw_california_becomes_the_papers_table() {
    let Some(raw) = shared("raw/california/cal_housing.data") else { return };
    let place = Workplace::new(&[]);
    let words = format!("california --input {}", raw.display());
    let json = place.json(&words);
    assert_eq!((&json["nodes"], &json["outliers"]), (&20536.into(), &104.into()));
    let ours = Dataset::read(&place.path("out.h5")).unwrap();
    let paper = read_csv("california").unwrap();
    let close = |what: &str, a: &[f64], b: &[f64], tolerance: f64| {
        assert_eq!(a.len(), b.len(), "{what}");
        for (k, (a, b)) in a.iter().zip(b).enumerate() {
            assert!((a - b).abs() <= tolerance, "{what} {k}: {a} is not {b}");
        }
    };
    // Equal rows in equal order: the outliers were the same ones.
    close("y", &ours.y, &paper.y, 1e-15);
    let features = |data: &Dataset| data.features.as_ref().unwrap().values.clone();
    close("features", &features(&ours), &features(&paper), 1e-14);
    let position = |data: &Dataset| data.position.as_ref().unwrap().as_flattened().to_vec();
    close("position", &position(&ours), &position(&paper), 6e-8);
    // Among coincident points the triangulation is free; weights are a function of the length.
    let (ours_edges, paper_edges) = (ours.graph.edges() as f64, paper.graph.edges() as f64);
    assert!((ours_edges / paper_edges - 1.0).abs() < 1e-3, "{ours_edges} edges");
    let weights = ours.graph.weights().unwrap();
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let smallest = weights.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((largest - 100.0).abs() < 1e-9, "coincident points: {largest}");
    assert!((smallest - 1.0 / 1.01).abs() < 1e-9, "the longest edge: {smallest}");

    let all = place.json(&format!("{words} --outliers 0 --weights none"));
    assert_eq!((&all["nodes"], &all["outliers"]), (&20640.into(), &0.into()));
    assert_eq!(all["weighted"], false);
}

#[test]
fn points_of_the_satellite_grid_give_about_their_prepared_graph() {
    let Some(nodes) = shared("sat_temps_random/nodes.csv") else { return };
    let (ours, _) = Workplace::new(&[]).dataset(&format!("points --input {}", nodes.display()));
    let prepared = read_csv("sat_temps_random").unwrap();
    // On a lattice diagonals are ties, but a triangulation of N points with h on the hull
    // always has 3 N - 3 - h edges.
    assert!((ours.graph.edges() as f64 / 443435.0 - 1.0).abs() < 1e-3);
    assert_eq!(ours.observed, prepared.observed);
    assert_eq!(ours.y, prepared.y);
    // d_max of the README is a hull edge, which every Delaunay triangulation has.
    let weight = |data: &Dataset| data.graph.weights().unwrap().iter().copied().fold(0.0, f64::max);
    assert!((weight(&ours) / weight(&prepared) - 1.0).abs() < 1e-6);
}
