//! Log-determinants: the paper's power series against Lanczos quadrature on the california graph,
//! and Lanczos on meshes of growing size with two ranks.
//! (`cargo bench --bench logdet [-- --exact]`)
//!
//! Prints the tables of docs/performance.md. Times are the best of several turns. Errors are
//! against all eigenvalues where these are kept or asked for by `--exact` (once: about a quarter of
//! an hour on two cores, 3.4 GB), otherwise against Lanczos with many probes. Data stay in the
//! target directory.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const TURNS: usize = 3;
const SEEDS: usize = 20;

fn dgmrf(dir: &Path, ranks: usize, arguments: &[&str]) -> Value {
    let program = env!("CARGO_BIN_EXE_dgmrf");
    let mut command = match ranks {
        1 => Command::new(program),
        _ => {
            let mut mpirun = Command::new("mpirun");
            mpirun.args(["-n", &ranks.to_string(), program]);
            mpirun
        }
    };
    let output = command
        .args(arguments)
        .current_dir(dir)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .output()
        .expect("dgmrf");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.find('{').map_or(Value::Null, |at| serde_json::from_str(&text[at..]).expect("JSON"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// One method on one dataset, computed anew: seconds and the estimate at the first ρ.
fn logdet(dir: &Path, data: &str, arguments: &[&str]) -> (f64, Value) {
    let all = [&["logdet", data, "--fresh", "--json", "--threads", "1"], arguments].concat();
    let method = dgmrf(dir, 1, &all)["methods"][0].clone();
    (number(&method, "seconds"), method["estimates"][0].clone())
}

/// Power series and Lanczos at ρ = -0.99, where fitted models end up.
fn accuracy(dir: &Path, exact: bool) {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/california");
    if !shared.exists() {
        println!("skipped: {} is not there\n", shared.display());
        return;
    }
    let [nodes, edges] = ["nodes.csv", "edges.csv"].map(|f| shared.join(f).display().to_string());
    if !dir.join("california.h5").exists() {
        dgmrf(
            dir,
            1,
            &["import", "csv", "--nodes", &nodes, "--edges", &edges, "-o", "california.h5"],
        );
    }
    let rho = ["--rho", "-0.99"];
    let kept = std::fs::read_dir(dir)
        .expect("a directory")
        .filter_map(|f| f.ok()?.file_name().into_string().ok())
        .any(|f| f.starts_with("california.") && f.contains(".eigenvalues."));
    let (reference, uncertain) = if exact || kept {
        let words = ["logdet", "california.h5", "--method", "eigenvalues", "--json"];
        let found = dgmrf(dir, 1, &[&words[..], &rho].concat());
        println!("reference: all eigenvalues ({})", found["methods"][0]);
        (number(&found["methods"][0]["estimates"][0], "value"), 0.0)
    } else {
        let many = ["--method", "lanczos", "--probes", "3000", "--steps", "100", "--fixed"];
        let (_, found) = logdet(dir, "california.h5", &[&many[..], &rho].concat());
        println!(
            "reference: Lanczos with 3000 probes; eigenvalues: cargo bench --bench logdet -- --exact"
        );
        (number(&found, "value"), number(&found, "stderr"))
    };
    println!("value {reference:.4}, standard error {uncertain:.4}\n");
    println!("| california, ρ = -0.99 | error (rms) | reported std. error | seconds |");
    println!("|---|---|---|---|");
    let methods: [(&str, Vec<&str>, usize); 4] = [
        (
            "power series, K = 50, 1000 probes",
            vec!["--method", "power-series", "--probes", "1000", "--terms", "50"],
            3,
        ),
        (
            "Lanczos, 30 probes x 60 steps",
            vec!["--method", "lanczos", "--probes", "30", "--steps", "60", "--fixed"],
            SEEDS,
        ),
        (
            "Lanczos, 8 probes x 60 steps",
            vec!["--method", "lanczos", "--probes", "8", "--steps", "60", "--fixed"],
            SEEDS,
        ),
        (
            "Lanczos, 30 probes x 60 steps, no exact moments beyond the second",
            vec![
                "--method", "lanczos", "--probes", "30", "--steps", "60", "--fixed", "--hops", "1",
            ],
            SEEDS,
        ),
    ];
    let mut rows = Vec::new();
    for (name, arguments, seeds) in &methods {
        let (mut squares, mut stderr, mut seconds) = (0.0, 0.0, f64::INFINITY);
        for seed in 1..=*seeds {
            let seed = seed.to_string();
            let words = [&arguments[..], &rho, &["--seed", &seed]].concat();
            let (time, found) = logdet(dir, "california.h5", &words);
            squares += (number(&found, "value") - reference).powi(2) / *seeds as f64;
            stderr += number(&found, "stderr") / *seeds as f64;
            seconds = time.min(seconds);
        }
        println!("| {name} | {:.3} | {stderr:.3} | {seconds:.4} |", squares.sqrt());
        rows.push((squares.sqrt(), seconds));
    }
    for (row, name) in [(1, "30 probes"), (2, "8 probes")] {
        let (error, time) = (rows[0].0 / rows[row].0, rows[0].1 / rows[row].1);
        println!("| **Lanczos, {name}, over power series** | 1/{error:.0} | | 1/{time:.1} |");
    }
    println!();
}

/// 100 probes x 50 steps on two ranks of one thread.
fn growth(dir: &Path) {
    println!(
        "| mesh, 2 ranks, 100 probes x 50 steps | seconds | ns per node, probe and step | MB per rank |"
    );
    println!("|---|---|---|---|");
    for nodes in ["100000", "200000", "500000", "1000000"] {
        let data = format!("mesh-{nodes}.h5");
        if !dir.join(&data).exists() {
            dgmrf(dir, 1, &["synth", "mesh", "--nodes", nodes, "-o", &data]);
        }
        let (mut seconds, mut memory) = (f64::INFINITY, 0.0_f64);
        for _ in 0..TURNS {
            let found = dgmrf(
                dir,
                2,
                &[
                    "logdet",
                    &data,
                    "--method",
                    "lanczos",
                    "--probes",
                    "100",
                    "--steps",
                    "50",
                    "--fixed",
                    "--fresh",
                    "--json",
                    "--threads",
                    "1",
                ],
            );
            seconds = seconds.min(number(&found["methods"][0], "seconds"));
            memory = memory.max(number(&found, "peak_memory_bytes"));
        }
        let per_value = 1e9 * seconds / (nodes.parse::<f64>().expect("a number") * 5000.0);
        println!("| {nodes} | {seconds:.2} | {per_value:.2} | {:.0} |", memory * 1e-6);
    }
}

fn main() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("logdet");
    std::fs::create_dir_all(&dir).expect("a directory");
    let asked = |word: &str| std::env::args().any(|argument| argument == word);
    if !asked("--growth") {
        accuracy(&dir, asked("--exact"));
    }
    if !asked("--accuracy") {
        growth(&dir);
    }
}
