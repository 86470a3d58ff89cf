//! ELBO training, milliseconds per iteration: engines, precisions, estimators, one rank and two, on
//! three sizes, in turns, so that every ratio comes from one run. (`cargo bench --bench train`)
//!
//! Prints a table for docs/performance.md. A time is the best of several turns, since other work on
//! the machine only ever makes a run slower; it runs from the first line of the journal to the
//! last, so neither the start nor the first iteration counts. The directory that DGMRF_DATA names
//! (imported files) gives the data; where a file is missing, a mesh of the same size stands in.
//! DGMRF_TURNS sets the turns, DGMRF_SIZES the sizes to run (a comma-separated list of names).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Name, file in DGMRF_DATA, nodes, and iterations to time natively.
const SIZES: [(&str, &str, usize, u64); 3] = [
    ("3k", "synth_dgmrf_l3.h5", 3_000, 4_000),
    ("148k", "sat_temps_random.h5", 148_309, 100),
    ("1M", "", 1_000_000, 20),
];

fn program(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_dgmrf")])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command
}

fn checked(command: &mut Command) -> String {
    let output = command.output().expect("mpirun");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The dataset: that of the user, or a mesh.
fn data(dir: &Path, file: &str, nodes: usize) -> (PathBuf, &'static str) {
    if let Some(given) = std::env::var_os("DGMRF_DATA").map(|d| Path::new(&d).join(file))
        && !file.is_empty()
        && given.is_file()
    {
        // A copy: partitions and spectra are kept beside the data.
        let copy = dir.join(file);
        std::fs::copy(given, &copy).expect("copy of the data");
        return (copy, "");
    }
    let mesh = dir.join(format!("mesh-{nodes}.h5"));
    let nodes = nodes.to_string();
    checked(program(1).args(["synth", "mesh", "--nodes", &nodes, "-o"]).arg(&mesh));
    (mesh, ", mesh")
}

struct Setting {
    name: &'static str,
    ranks: usize,
    set: [&'static str; 3],
    /// Iterations are divided by this.
    slower: u64,
}

/// Seconds per iteration after the first, from the journal.
fn seconds(dir: &Path, data: &Path, setting: &Setting, iterations: u64) -> f64 {
    let config = dir.join("bench.toml");
    let text = format!("name = 'bench'\ndata = '{}'\n", data.display());
    std::fs::write(&config, text).expect("config");
    let iterations = format!("train.iterations={iterations}");
    let mut command = program(setting.ranks);
    command.current_dir(dir).arg("train").arg(&config).args(["--resume", "never"]);
    let fixed = [
        "model.layers=3",
        "train.method=elbo",
        "train.checkpoint_every=0",
        "train.log_every=1000000",
        "logdet.method=lanczos",
        "variational.samples=10",
        "run.threads=1",
    ];
    for word in fixed.iter().chain(&setting.set).chain([&iterations.as_str()]) {
        command.args(["--set", word]);
    }
    checked(&mut command);
    let journal = std::fs::read_to_string(dir.join("runs/bench/metrics.jsonl")).expect("journal");
    let lines: Vec<serde_json::Value> =
        journal.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let between = |key: &str| {
        let at = |k: usize| lines[k][key].as_f64().expect("a number");
        at(lines.len() - 1) - at(0)
    };
    between("seconds") / between("step")
}

fn main() {
    let turns: usize = std::env::var("DGMRF_TURNS").ok().and_then(|t| t.parse().ok()).unwrap_or(3);
    let sizes = std::env::var("DGMRF_SIZES").unwrap_or_else(|_| "3k,148k,1M".into());
    let (gaussian, rademacher) =
        ("variational.estimator=gaussian", "variational.estimator=rademacher");
    let (double, single) = ("train.precision=double", "train.precision=single");
    let native = |name, ranks, estimator, precision| Setting {
        name,
        ranks,
        set: ["run.engine=native", estimator, precision],
        slower: 1,
    };
    let mut settings = vec![
        native("native f64, gaussian, 1 rank", 1, gaussian, double),
        native("native f64, gaussian, 2 ranks", 2, gaussian, double),
        native("native f64, rademacher, 1 rank", 1, rademacher, double),
        native("native f64, rademacher, 2 ranks", 2, rademacher, double),
        native("native f32, gaussian, 1 rank", 1, gaussian, single),
        native("native f32, gaussian, 2 ranks", 2, gaussian, single),
        native("native f32, rademacher, 1 rank", 1, rademacher, single),
    ];
    if cfg!(feature = "torch") {
        let set = ["run.engine=torch", gaussian, double];
        settings.push(Setting { name: "torch f64, gaussian, 1 rank", ranks: 1, set, slower: 10 });
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    println!("| nodes, L = 3, 10 samples | ms per iteration |");
    println!("|---|---|");
    for (size, file, nodes, iterations) in SIZES {
        if !sizes.split(',').any(|wanted| wanted == size) {
            continue;
        }
        let (data, note) = data(dir.path(), file, nodes);
        let mut best = vec![f64::INFINITY; settings.len()];
        for _ in 0..turns {
            for (best, setting) in best.iter_mut().zip(&settings) {
                let steps = (iterations / setting.slower).max(2);
                *best = best.min(1e3 * seconds(dir.path(), &data, setting, steps));
            }
        }
        for (best, setting) in best.iter().zip(&settings) {
            println!("| {size}{note}: {} | {best:.3} |", setting.name);
        }
        println!("| {size}{note}: **2 ranks over 1**, f64, gaussian | {:.2}x |", best[0] / best[1]);
        println!("| {size}{note}: **f32 over f64**, gaussian | {:.2}x |", best[0] / best[4]);
        if let Some(torch) = best.get(7) {
            println!("| {size}{note}: **native over torch**, f64 | {:.1}x |", torch / best[0]);
        }
    }
}
