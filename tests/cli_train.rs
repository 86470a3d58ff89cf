//! `dgmrf train` through the real program: bad input, divergence, and runs that are broken off.

mod support;

use dgmrf::dataset::Dataset;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::graphs;

const NODES: usize = 300;

fn dataset(seed: u64) -> Dataset {
    let graph = graphs::random(NODES, 400, false, seed);
    let y = (0..NODES).map(|i| (i as f64 * 0.1).sin() + 0.1 * (i as f64 * 7.7).cos()).collect();
    let mut data = Dataset::new("toy", graph, y);
    (0..NODES).step_by(3).for_each(|i| data.observed[i] = false);
    data
}

const TOY: &str = "\
name = 'toy'
data = 'toy.h5'
[model]
layers = 2
[train]
method = 'elbo'
log_every = 100
[logdet]
method = 'eigenvalues'
[run]
threads = 1
";

/// A directory to run in, with a config and its dataset.
fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("toy.toml"), TOY).unwrap();
    dataset(1).write(&dir.path().join("toy.h5")).unwrap();
    dir
}

fn command(dir: &Path, ranks: usize, set: &[&str], more: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_dgmrf");
    let mut command = match ranks {
        1 => Command::new(program),
        _ => {
            let mut command = support::mpirun(ranks);
            command.arg(program);
            command
        }
    };
    command.args(["train", "toy.toml"]).args(more).current_dir(dir);
    set.iter().for_each(|word| {
        command.args(["--set", word]);
    });
    command
}

fn train(dir: &Path, ranks: usize, set: &[&str], more: &[&str]) -> Output {
    command(dir, ranks, set, more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Exit code 1, and a message with all of these in it.
fn fail(output: &Output, expected: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for expected in expected {
        assert!(message.contains(expected), "no `{expected}` in: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

fn model(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join("runs").join(name).join("model.json")).unwrap()
}

/// Steps and objectives of the journal.
fn journal(dir: &Path, name: &str) -> Vec<(u64, f64)> {
    let path = dir.join("runs").join(name).join("metrics.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .map(|v| (v["step"].as_u64().unwrap(), v["objective_per_node"].as_f64().unwrap()))
        .collect()
}

#[test]
fn bad_data_is_named() {
    for ranks in [1, 2] {
        let dir = workplace();
        let file = dir.path().join("toy.h5");
        let mut data = dataset(1);
        data.y[7] = f64::NAN;
        // Files with such values are refused when they are written; these are made by others.
        let written = data.write(&file);
        match written {
            Ok(()) => fail(&train(dir.path(), ranks, &[], &[]), &["node 7", "NaN"]),
            Err(error) => assert!(error.to_string().contains('7'), "{error}"),
        }
        let mut data = dataset(1);
        data.observed.fill(false);
        data.write(&file).unwrap();
        fail(&train(dir.path(), ranks, &[], &[]), &["no node is observed"]);
    }
}

#[test]
fn a_learning_rate_that_diverges_stops_with_the_last_good_checkpoint() {
    for ranks in [1, 2] {
        let dir = workplace();
        let set = ["train.checkpoint_every=10", "train.iterations=5000", "train.learning_rate=1e4"];
        let set = [&set[..], &["variational.estimator=gaussian"]].concat();
        let output = train(dir.path(), ranks, &set, &[]);
        fail(&output, &["training stopped", "train.learning_rate"]);
        let runs = dir.path().join("runs/toy");
        assert!(!runs.join("model.json").exists() && !runs.join("summary.json").exists());
        // A rate that is fine at first: divergence comes after checkpoints.
        let set = ["train.checkpoint_every=10", "train.iterations=5000", "name=late"];
        let rate = ["train.learning_rate=20", "variational.estimator=gaussian"];
        let output = train(dir.path(), ranks, &[&set[..], &rate].concat(), &[]);
        fail(&output, &["training stopped", "the last good checkpoint is that of step "]);
        let message = text(&output.stderr);
        let step = message.split("that of step ").nth(1).unwrap().split(')').next().unwrap();
        let step: u64 = step.trim().parse().unwrap();
        let manifest = format!("runs/late/checkpoints/step-{step:09}/manifest.json");
        assert!(dir.path().join(manifest).is_file());
    }
}

#[test]
fn a_fit_ends_when_there_is_nothing_left_to_gain() {
    let dir = workplace();
    let told = |set: &[&str]| -> Value {
        let output = train(dir.path(), 1, set, &["--json"]);
        succeed(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let loose = told(&["train.converge=0.05", "train.iterations=50000", "name=loose"]);
    let steps = loose["iterations"].as_u64().unwrap();
    assert!(loose["converged"].as_bool().unwrap(), "{loose}");
    assert!((1100..20_000).contains(&steps) && steps % 100 == 0, "{steps} steps");
    // As many steps without the setting are the same fit, but not said to have converged.
    let all = told(&[&format!("train.iterations={steps}"), "name=all"]);
    assert!(!all["converged"].as_bool().unwrap(), "{all}");
    assert_eq!(model(dir.path(), "loose"), model(dir.path(), "all"));
}

/// A fit shorter than the windows that its best place is found by ends where it is.
#[test]
fn a_short_fit_moves() {
    let dir = workplace();
    for (steps, name) in [("train.iterations=1", "one"), ("train.iterations=50", "fifty")] {
        succeed(&train(dir.path(), 1, &[steps, &format!("name={name}")], &[]));
    }
    let [one, fifty] = ["one", "fifty"].map(|name| model(dir.path(), name));
    assert_ne!(one, fifty);
}

#[test]
fn run_directories_that_cannot_be_used_are_refused() {
    for ranks in [1, 2] {
        let dir = workplace();
        let few = ["train.iterations=40", "train.checkpoint_every=20"];
        let output = train(dir.path(), ranks, &[&few[..], &["run.dir=toy.toml"]].concat(), &[]);
        fail(&output, &["toy.toml"]);
        let output = train(dir.path(), ranks, &[&few[..], &["run.dir=/proc/none"]].concat(), &[]);
        fail(&output, &["/proc/none"]);

        succeed(&train(dir.path(), ranks, &few, &[]));
        let before = model(dir.path(), "toy");
        // Other settings, all of those that differ.
        let more = ["train.iterations=60", "train.seed=2", "model.layers=3"];
        let output = train(dir.path(), ranks, &more, &[]);
        let seed = "train.seed: 1 then, 2 now";
        fail(&output, &["other settings", seed, "model.layers: 2 then, 3 now", "--resume never"]);
        // Other data.
        let mut other = dataset(2);
        other.name = "other".into();
        other.write(&dir.path().join("other.h5")).unwrap();
        let output = train(dir.path(), ranks, &[&few[..], &["data=other.h5"]].concat(), &[]);
        fail(&output, &["other settings", "data: "]);
        assert_eq!(model(dir.path(), "toy"), before);
        // A format of the future.
        let manifest = dir.path().join("runs/toy/checkpoints/step-000000020/manifest.json");
        let written = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, written.replace("\"version\": 1", "\"version\": 7")).unwrap();
        let from = ["--resume", "runs/toy/checkpoints/step-000000020"];
        fail(&train(dir.path(), ranks, &few, &from), &["version 7", "reads"]);
        fail(&train(dir.path(), ranks, &few, &["--resume", "nowhere"]), &["nowhere"]);
    }
}

#[test]
fn more_iterations_go_on_and_never_begins_anew() {
    let dir = workplace();
    let whole = ["train.iterations=400", "train.checkpoint_every=100", "name=whole"];
    succeed(&train(dir.path(), 1, &whole, &[]));
    for (iterations, resumed) in [(200, None), (400, Some(100))] {
        let iterations = format!("train.iterations={iterations}");
        let output =
            train(dir.path(), 1, &[&iterations, "train.checkpoint_every=100"], &["--json"]);
        succeed(&output);
        let summary: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(summary["resumed_at"].as_u64(), resumed);
        assert!(summary["elbo_without_constants"].as_f64().unwrap().is_finite());
    }
    assert_eq!(model(dir.path(), "toy"), model(dir.path(), "whole"));
    assert_eq!(journal(dir.path(), "toy"), journal(dir.path(), "whole"));

    // From a checkpoint of another run, and from the beginning.
    let set = ["train.iterations=400", "train.checkpoint_every=0", "name=third"];
    let from = ["--resume", "runs/whole/checkpoints/step-000000300"];
    succeed(&train(dir.path(), 1, &set, &from));
    assert_eq!(model(dir.path(), "third"), model(dir.path(), "whole"));
    let output = train(dir.path(), 1, &whole, &["--resume", "never", "--json"]);
    succeed(&output);
    assert!(!text(&output.stdout).contains("resumed_at"));
    assert_eq!(model(dir.path(), "third"), model(dir.path(), "whole"));
    // Lines tell what they should.
    let path = dir.path().join("runs/whole/metrics.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let line: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(line["step"], 400);
    for field in ["seconds", "objective_per_node", "sigma"] {
        assert!(line[field].as_f64().is_some(), "{field} in {line}");
    }
    assert!(["alpha", "beta", "gamma", "bias"].iter().all(|f| line["layers"][1][f].is_number()));
}

/// Waits until the run is on its way.
fn wait_for(child: &mut Child, begun: impl Fn() -> bool) {
    let start = Instant::now();
    while !begun() {
        assert!(start.elapsed() < Duration::from_secs(60), "the run has not begun");
        assert!(child.try_wait().unwrap().is_none(), "the run has ended too early");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn quietly(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_signal_writes_a_checkpoint_and_the_run_goes_on_bit_for_bit() {
    // mpirun itself ends a job on SIGTERM; it passes SIGUSR1 on to the ranks.
    for (ranks, name) in [(1, "-TERM"), (2, "-USR1")] {
        let dir = workplace();
        let set = ["train.iterations=4000", "train.checkpoint_every=1000000"];
        succeed(&train(dir.path(), ranks, &[&set[..], &["name=whole"]].concat(), &[]));
        let mut child = quietly(command(dir.path(), ranks, &set, &[]));
        wait_for(&mut child, || !journal(dir.path(), "toy").is_empty());
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        fail(&output, &["interrupted by a signal", "goes on from there"]);
        let steps = journal(dir.path(), "toy").len();
        assert!(steps < 41, "it was not interrupted");
        succeed(&train(dir.path(), ranks, &set, &[]));
        assert_eq!(model(dir.path(), "toy"), model(dir.path(), "whole"), "{ranks} ranks");
        assert_eq!(journal(dir.path(), "toy"), journal(dir.path(), "whole"), "{ranks} ranks");
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_loses_nothing() {
    let dir = workplace();
    let set = ["train.iterations=3000", "train.checkpoint_every=20"];
    let whole = ["train.iterations=3000", "train.checkpoint_every=0", "name=whole"];
    succeed(&train(dir.path(), 1, &whole, &[]));
    let checkpoints = dir.path().join("runs/toy/checkpoints");
    let newest = || {
        let entries = std::fs::read_dir(&checkpoints).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).max().unwrap_or_default()
    };
    for round in 0..6 {
        let mut child = quietly(command(dir.path(), 1, &set, &[]));
        // At some moment after a new directory has appeared: often in the middle of a checkpoint.
        let before = newest();
        wait_for(&mut child, || newest() > before);
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    succeed(&train(dir.path(), 1, &set, &[]));
    assert_eq!(model(dir.path(), "toy"), model(dir.path(), "whole"));
    assert_eq!(journal(dir.path(), "toy"), journal(dir.path(), "whole"));
}

/// Broken off in every phase of a marginal fit (starts, Adam, Newton's method), on one and two
/// ranks.
#[test]
fn marginal_fits_go_on_bit_for_bit() {
    for ranks in [1, 2] {
        let dir = workplace();
        let model =
            |name: &str| std::fs::read(dir.path().join("runs").join(name).join("model.json"));
        let marginal = "train.method=marginal";
        succeed(&train(dir.path(), ranks, &[marginal, "name=whole"], &[]));
        for stop in [7, 31, 33, 61, 62, 200] {
            let stop = format!("train.iterations={stop}");
            let set = [marginal, "name=parts", "train.checkpoint_every=1", &stop];
            succeed(&train(dir.path(), ranks, &set, &[]));
        }
        assert_eq!(model("whole").unwrap(), model("parts").unwrap(), "{ranks} ranks");
    }
}
