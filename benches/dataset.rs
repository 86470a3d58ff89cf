//! From a million nodes in files, or from nothing, to a dataset: the whole program, file to file.
//!
//! The limits: CSV import of 1M nodes and 3M edges within 6 s, `synth mesh` of 1M nodes
//! within 10 s.

use criterion::{Criterion, criterion_group, criterion_main};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `dgmrf` and requires success.
fn dgmrf(words: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_dgmrf"))
        .args(words)
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    assert!(status.success(), "dgmrf {}", words.join(" "));
}

/// A triangulated grid of `side`² nodes as `nodes.csv` and `edges.csv`.
fn write_tables(nodes: &Path, edges: &Path, side: u32) -> std::io::Result<()> {
    let mut nodes = BufWriter::new(std::fs::File::create(nodes)?);
    let mut edges = BufWriter::new(std::fs::File::create(edges)?);
    writeln!(nodes, "id,y,observed,pos_x,pos_y")?;
    writeln!(edges, "src,dst,weight")?;
    for i in 0..side * side {
        let (x, y) = (i % side, i / side);
        let value = (f64::from(x) * 0.01).sin() * (f64::from(y) * 0.013).cos();
        let (right, up) = (x + 1 < side, y + 1 < side);
        writeln!(nodes, "{i},{value:.6},{},{x},{y}", u32::from(i % 3 != 0))?;
        for (there, j) in [(right, i + 1), (up, i + side), (right && up, i + side + 1)] {
            if there {
                writeln!(edges, "{i},{j},{:.4}", 1.0 + f64::from(j % 7) / 7.0)?;
            }
        }
    }
    nodes.flush()?;
    edges.flush()
}

fn million_nodes(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (nodes, edges, output) = (path("nodes.csv"), path("edges.csv"), path("out.h5"));
    write_tables(Path::new(&nodes), Path::new(&edges), 1000).expect("tables are written");

    let mut group = c.benchmark_group("1M nodes");
    group.sample_size(10);
    group.bench_function("import csv, 3M edges", |b| {
        b.iter(|| dgmrf(&["import", "csv", "--nodes", &nodes, "--edges", &edges, "-o", &output]));
    });
    group.bench_function("synth mesh", |b| {
        b.iter(|| dgmrf(&["synth", "mesh", "--nodes", "1000000", "-o", &output]));
    });
    group.bench_function("info", |b| b.iter(|| dgmrf(&["info", &output])));
    group.finish();
}

criterion_group!(benches, million_nodes);
criterion_main!(benches);
