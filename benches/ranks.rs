//! One rank against two, native against torch, ordered against not: `dgmrf scale` run in turns,
//! so that every ratio comes from one run of this bench. (`cargo bench --bench ranks`)
//!
//! Prints a table for docs/performance.md. Times are the best of several turns, since other work
//! on the machine only ever makes a run slower; shares (of the copy bandwidth that the same run
//! measured, of the halo in a layer) are medians.

use dgmrf::random::{Purpose, Stream};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const TURNS: usize = 5;

/// Runs `dgmrf scale` on some ranks of one thread each.
fn scale(dir: &Path, ranks: usize, arguments: &[&str]) -> Value {
    let output = Command::new("mpirun")
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_dgmrf")])
        .args(["scale", "--json", "--threads", "1"])
        .args(arguments)
        .current_dir(dir)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .output()
        .expect("mpirun");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Making the mesh prints a line of its own before the object.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text[text.find('{').expect("JSON")..]).expect("JSON")
}

/// The best turns of one configuration.
struct Best {
    layer: f64,
    signs: f64,
    copy: f64,
    share_of_copy: f64,
    halo_share: f64,
    median_share: f64,
    transfer_share: f64,
    halo_bytes: f64,
    halo_planned: f64,
}

impl Best {
    fn of(turns: &[Value]) -> Best {
        let get = |turn: &Value, key: &str| turn[key].as_f64().expect("a number");
        let least = |key: &str| turns.iter().map(|t| get(t, key)).fold(f64::INFINITY, f64::min);
        let most = |key: &str| turns.iter().map(|t| get(t, key)).fold(0.0, f64::max);
        let median = |key: &str| {
            let mut values: Vec<f64> = turns.iter().map(|t| get(t, key)).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Best {
            layer: least("layer_seconds"),
            signs: least("rademacher_seconds"),
            copy: most("copy_gigabytes_per_second"),
            share_of_copy: median("layer_over_copy"),
            halo_share: median("halo_share"),
            median_share: median("halo_median_share"),
            transfer_share: median("halo_transfer_share"),
            halo_bytes: get(&turns[0], "halo_bytes_per_layer"),
            halo_planned: get(&turns[0], "halo_bytes_planned"),
        }
    }
}

/// A mesh whose nodes are numbered at random, as points in a file often are.
fn scattered_mesh(dir: &Path, nodes: &str) -> String {
    let stream = Stream::new(1, Purpose::Test, 0);
    let mut text = String::from("pos_x,pos_y,y\n");
    for i in 0..nodes.parse().expect("a number") {
        text += &format!("{},{},0\n", stream.uniform(i, 0), stream.uniform(i, 1));
    }
    let (points, data) = (dir.join("points.csv"), dir.join(format!("scattered-{nodes}.h5")));
    std::fs::write(&points, text).expect("points");
    let status = Command::new(env!("CARGO_BIN_EXE_dgmrf"))
        .args(["import", "points", "--weights", "none", "--input"])
        .args([points.as_os_str(), "-o".as_ref(), data.as_os_str()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("dgmrf");
    assert!(status.success(), "import of the points");
    data.to_string_lossy().into_owned()
}

fn main() {
    let dir = tempfile::tempdir().expect("temporary directory");
    println!(
        "| mesh, 8 columns f32 | layer ms | signs ms | copy GB/s | of copy | halo | median pass | transfer | halo bytes (plan) |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for nodes in ["100000", "1000000"] {
        let scattered = scattered_mesh(dir.path(), nodes);
        let mut configurations: Vec<(&str, usize, Vec<&str>)> = vec![
            ("native, 1 rank", 1, vec!["--rounds", "50"]),
            ("native, 2 ranks", 2, vec!["--rounds", "50"]),
            ("native, 1 rank, scattered", 1, vec!["--rounds", "20", "--data", &scattered]),
            (
                "native, 1 rank, scattered, original order",
                1,
                vec!["--rounds", "10", "--data", &scattered, "--original-order"],
            ),
        ];
        if cfg!(feature = "torch") {
            configurations.push(("torch, 1 rank", 1, vec!["--rounds", "5", "--engine", "torch"]));
        }
        let mut turns = vec![Vec::new(); configurations.len()];
        for _ in 0..TURNS {
            for (k, (_, ranks, arguments)) in configurations.iter().enumerate() {
                let arguments = [&arguments[..], &["--nodes", nodes]].concat();
                turns[k].push(scale(dir.path(), *ranks, &arguments));
            }
        }
        let best: Vec<Best> = turns.iter().map(|t| Best::of(t)).collect();
        for ((name, ..), b) in configurations.iter().zip(&best) {
            println!(
                "| {nodes}: {name} | {:.3} | {:.3} | {:.1} | {:.0} % | {:.1} % | {:.1} % | {:.1} % | {:.0} ({:.0}) |",
                1e3 * b.layer,
                1e3 * b.signs,
                b.copy,
                100.0 * b.share_of_copy,
                100.0 * b.halo_share,
                100.0 * b.median_share,
                100.0 * b.transfer_share,
                b.halo_bytes,
                b.halo_planned
            );
        }
        println!(
            "| {nodes}: **2 ranks over 1** | {:.2}x | {:.2}x | {:.2}x | | | | | |",
            best[0].layer / best[1].layer,
            best[0].signs / best[1].signs,
            best[1].copy / best[0].copy
        );
        println!(
            "| {nodes}: **locality order** | {:.2}x | | | | | | | |",
            best[3].layer / best[2].layer
        );
        if let Some(torch) = best.get(4) {
            println!(
                "| {nodes}: **native over torch** | {:.1}x | | | | | | | |",
                torch.layer / best[0].layer
            );
        }
    }
}
