//! Partitions: what a part promises, the file, and what is refused.

mod support;

use dgmrf::dataset::Dataset;
use dgmrf::graph::Graph;
use dgmrf::partition::{self, Balance, Options, Part, Partition, order::Order};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use support::{graphs, mpirun};

fn dgmrf() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dgmrf"))
}

/// Every promise of [`Part`], checked against the graph itself.
fn check_parts(graph: &Graph, owner: &[u32], parts: &[Part]) {
    let degree = graph.degrees();
    let mut next = 0;
    for part in parts {
        assert_eq!(part.offset, next, "contiguous numbering");
        next += part.owned;
        assert!(part.owned_ids().iter().all(|&i| owner[i as usize] as usize == part.rank));
        for (row, &i) in part.owned_ids().iter().enumerate() {
            let entries = part.indptr[row] as usize..part.indptr[row + 1] as usize;
            let got: BTreeSet<(u32, u64)> = entries
                .clone()
                .map(|k| (part.indices[k], part.weights.as_ref().map_or(1.0, |w| w[k])))
                .map(|(column, w)| (part.ids[column as usize], w.to_bits()))
                .collect();
            let expected: BTreeSet<(u32, u64)> =
                graph.weighted_neighbours(i as usize).map(|(j, w)| (j, w.to_bits())).collect();
            assert_eq!(got, expected, "row of node {i}");
            assert_eq!(entries.len(), expected.len(), "no entry twice");
            let at_home = part.indices[entries].iter().all(|&c| (c as usize) < part.owned);
            assert_eq!(at_home, row < part.interior, "interior rows first");
        }
        for (row, &i) in part.ids.iter().enumerate() {
            assert_eq!(part.degree[row], degree[i as usize], "degree in the whole graph");
        }
        for n in &part.halo.neighbours {
            let halo = &part.ids[part.owned..][n.receive.clone()];
            let theirs = &parts[n.rank];
            let back = theirs.halo.neighbours.iter().find(|m| m.rank == part.rank);
            let sent: Vec<u32> = back
                .expect("plans are mutual")
                .send
                .iter()
                .map(|&r| theirs.ids[r as usize])
                .collect();
            assert_eq!(halo, sent, "what {} sends is what {} expects", n.rank, part.rank);
        }
    }
    assert_eq!(next, graph.nodes(), "every node has one owner");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn parts_keep_their_promises(
        nodes in 4usize..60,
        extra in 0usize..80,
        weighted: bool,
        parts in 1usize..5,
        by_hand: bool,
        seed: u64,
    ) {
        let graph = graphs::random(nodes, extra, weighted, seed);
        let owner = if by_hand {
            (0..nodes).map(|i| (i % parts) as u32).collect()
        } else {
            partition::divide(&graph, parts, &Options::default()).unwrap()
        };
        for order in [Order::Locality, Order::Original] {
            let partition = Partition::new(&graph, owner.clone(), parts, order).unwrap();
            let all: Vec<Part> = (0..parts).map(|p| partition.part(p)).collect();
            check_parts(&graph, &owner, &all);
            let quality = partition.quality();
            let cut = graph.edge_iter().filter(|e| owner[e.0 as usize] != owner[e.1 as usize]).count();
            prop_assert_eq!(quality.edge_cut, cut);
            prop_assert_eq!(quality.halo_max, all.iter().map(Part::halo_rows).max().unwrap());
        }
    }
}

#[test]
fn metis_balances_what_it_is_told() {
    let mesh = dgmrf::synth::random_graph(20_000, 1, Default::default()).unwrap().1;
    for (balance, edges) in [(Balance::Edges, true), (Balance::Nodes, false)] {
        let options = Options { balance, ..Options::default() };
        let owner = partition::divide(&mesh, 4, &options).unwrap();
        let quality = Partition::new(&mesh, owner, 4, Order::Locality).unwrap().quality();
        let imbalance = if edges { quality.imbalance } else { quality.node_imbalance };
        assert!(imbalance < 1.035, "{balance:?}: {imbalance}");
        // Four squares of a 141 x 141 lattice have a border of about 2 x 141 nodes.
        assert!(quality.edge_cut < 4 * 3 * 141, "{balance:?}: cut {}", quality.edge_cut);
    }
}

#[test]
fn the_locality_order_is_local() {
    let mesh = dgmrf::synth::random_graph(10_000, 1, Default::default()).unwrap().1;
    let spread = |order| {
        let part = Partition::new(&mesh, vec![0; 10_000], 1, order).unwrap().part(0);
        let row_of = |k: usize| part.indptr.partition_point(|&p| p <= k as u64) - 1;
        let far = |k: usize| part.indices[k].abs_diff(row_of(k) as u32) as usize;
        (0..part.entries()).map(far).sum::<usize>() / part.entries()
    };
    let (local, original) = (spread(Order::Locality), spread(Order::Original));
    assert!(10 * local < original, "mean distance {local} against {original}");
}

fn dataset(dir: &Path, name: &str, graph: Graph) -> std::path::PathBuf {
    let y = (0..graph.nodes()).map(|i| i as f64).collect();
    let path = dir.join(format!("{name}.h5"));
    Dataset::new(name, graph, y).write(&path).unwrap();
    path
}

#[test]
fn the_file_holds_every_part() {
    let dir = tempfile::tempdir().unwrap();
    for weighted in [false, true] {
        let graph = graphs::random(50, 60, weighted, 7);
        let data = Dataset::new("g", graph.clone(), vec![0.0; 50]);
        let path = dir.path().join("p.h5");
        let options = Options::default();
        partition::write(&path, &data, 3, &options).unwrap();
        let owner = partition::divide(&graph, 3, &options).unwrap();
        let partition = Partition::new(&graph, owner, 3, options.order).unwrap();
        for rank in 0..3 {
            let part = Part::read(&path, rank, 3, &data.graph_hash()).unwrap();
            assert_eq!(part, partition.part(rank));
        }
    }
}

#[test]
fn a_partition_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = Dataset::new("g", graphs::random(50, 60, false, 7), vec![0.0; 50]);
    let path = dir.path().join("p.h5");
    partition::write(&path, &data, 2, &Options::default()).unwrap();
    let hash = data.graph_hash();
    let message = |parts: usize, hash: &str, path: &Path| {
        Part::read(path, 0, parts, hash).expect_err("must be refused").to_string()
    };
    let wrong_parts = message(3, &hash, &path);
    assert!(wrong_parts.contains("2 parts, but there are 3 ranks"), "{wrong_parts}");
    let wrong_graph = message(2, "0123", &path);
    assert!(wrong_graph.contains("another graph"), "{wrong_graph}");
    let no_partition = dataset(dir.path(), "data", data.graph.clone());
    assert!(message(2, &hash, &no_partition).contains("not a partition"));
    assert!(message(2, &hash, &dir.path().join("none.h5")).contains("none.h5"));
    // Damage must neither lead a kernel astray nor give silently other numbers.
    // (In copies: children of other tests may hold on to a file they have inherited.)
    let copy = dir.path().join("copy.h5");
    for (array, at, value) in [("indices", 0, 1_000_000), ("indices", 0, 7), ("ids", 3, 5)] {
        std::fs::copy(&path, &copy).unwrap();
        let file = hdf5::File::open_rw(&copy).unwrap();
        let stored = file.dataset(&format!("part-0000/{array}")).unwrap();
        let mut values: Vec<u32> = stored.read_raw().unwrap();
        values[at] = if values[at] == value { value + 1 } else { value };
        stored.write_raw(&values).unwrap();
        drop((stored, file));
        let damaged = message(2, &hash, &copy);
        assert!(damaged.contains("part 0 is damaged"), "{array}: {damaged}");
    }
}

#[test]
fn a_part_can_do_without_its_weights() {
    let graph = graphs::random(60, 90, true, 5);
    let owner = partition::divide(&graph, 3, &Options::default()).unwrap();
    let plain = graph.clone().without_weights();
    let weighted = Partition::new(&graph, owner.clone(), 3, Order::Locality).unwrap();
    let unweighted = Partition::new(&plain, owner, 3, Order::Locality).unwrap();
    for rank in 0..3 {
        assert_eq!(weighted.part(rank).without_weights(), unweighted.part(rank));
    }
}

#[test]
fn the_command_prints_what_scripts_need() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path(), "mesh", graphs::random(500, 900, false, 3));
    let run = |parts: &str, extra: &[&str]| {
        let mut command = dgmrf();
        command.current_dir(dir.path()).arg("partition").arg(&data).args(["--parts", parts]);
        command.args(extra).output().unwrap()
    };
    let output = run("4", &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["parts"], 4);
    assert!(json["edge_cut"].as_u64().unwrap() > 0 && json["halo_max"].as_u64().unwrap() > 0);
    assert!(json["imbalance"].as_f64().unwrap() >= 1.0);
    assert!(dir.path().join("partitions/mesh-p4.h5").exists());
    let table = run("2", &["-o", "two.h5"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    for word in ["edge cut", "imbalance", "halo", "neighbours", "two.h5"] {
        assert!(text.contains(word), "{text}");
    }
    for (parts, word) in [("501", "at most 500"), ("0", "at least 1")] {
        let refused = run(parts, &["-o", "none.h5"]);
        assert_eq!(refused.status.code(), Some(1));
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains(word), "{message}");
        assert!(!dir.path().join("none.h5").exists());
    }
}

#[test]
fn a_job_makes_its_partition_once_and_refuses_a_wrong_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path(), "mesh", graphs::random(300, 500, false, 3));
    std::fs::write(
        dir.path().join("run.toml"),
        format!("name = \"job\"\ndata = {:?}\n", data.to_str().unwrap()),
    )
    .unwrap();
    let job = |ranks: usize| {
        let mut command = mpirun(ranks);
        command.current_dir(dir.path()).arg(env!("CARGO_BIN_EXE_dgmrf")).args(["run", "run.toml"]);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned());
        (output.status.success(), text)
    };
    for (ranks, first) in [(3, true), (3, false), (1, true)] {
        let (ok, [out, err]) = job(ranks);
        assert!(ok, "{err}");
        let line = out.lines().find(|l| l.starts_with("partition")).expect("a line");
        assert_eq!(line.contains("skipped"), !first, "{out}");
        assert_eq!(out.matches("partition ").count(), 1, "said once: {out}");
    }
    // Another graph under the same name: all ranks stop with the command that helps, said once.
    dataset(dir.path(), "mesh", graphs::random(300, 500, false, 4));
    let (ok, [_, err]) = job(3);
    assert!(!ok);
    assert_eq!(err.matches("another graph").count(), 1, "{err}");
    let fix = format!("dgmrf partition {} --parts 3 -o partitions/mesh-p3.h5", data.display());
    assert!(err.contains(&fix), "{err}");
    // Damage to a part that only the last rank reads is a failure of all.
    std::fs::remove_file(dir.path().join("partitions/mesh-p3.h5")).unwrap();
    assert!(job(3).0);
    let file = hdf5::File::open_rw(dir.path().join("partitions/mesh-p3.h5")).unwrap();
    file.unlink("part-0002").unwrap();
    drop(file);
    let (ok, [_, err]) = job(3);
    assert!(!ok && err.contains("rank 2") && err.contains("--parts 3"), "{err}");
}

#[test]
fn usage_is_explained_once_under_mpirun() {
    for (words, code) in [(&["--help"][..], 0), (&["partition"], 2), (&["info", "none.h5"], 1)] {
        let mut command = mpirun(3);
        command.env("NO_COLOR", "1").arg(env!("CARGO_BIN_EXE_dgmrf")).args(words);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned());
        let text = text.concat();
        let said = text.matches("Usage: dgmrf").count() + text.matches("error: none.h5").count();
        assert_eq!((said, output.status.code()), (1, Some(code)), "{words:?}: {text}");
    }
}
