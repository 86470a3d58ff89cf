//! `dgmrf run` through the real program.

mod support;

use dgmrf::config::Config;
use dgmrf::dataset::Dataset;
use dgmrf::graph::EdgeList;
use std::path::Path;
use std::process::{Command, Output};

/// A directory to run in, with a config and, if asked for, its dataset.
fn workplace(config: &str, with_data: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("toy.toml"), config).unwrap();
    if with_data {
        let mut edges = EdgeList::unweighted();
        (0..9).for_each(|i| edges.push(i, i + 1, 1.0));
        let graph = edges.into_graph(10).unwrap().0;
        Dataset::new("toy", graph, vec![1.0; 10]).write(&dir.path().join("toy.h5")).unwrap();
    }
    dir
}

fn run(dir: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dgmrf"))
        .args(["run", "toy.toml"])
        .args(more)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The line of the data stage.
fn data_line(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().find(|l| l.starts_with("data ")).expect("a line").to_owned()
}

const TOY: &str = "name = 'toy'\ndata = 'toy.h5'\n";
const MESH: &str =
    "name = 'toy'\ndata = 'made/toy.h5'\n[source]\ncommand = 'synth mesh --nodes 100'\n";

#[test]
fn data_that_is_there_is_used_and_the_settings_are_recorded() {
    let dir = workplace(TOY, true);
    let overrides = ["--set", "model.layers=4", "--set", "run.dir=out/of/here"];
    for _ in 0..2 {
        let line = data_line(&run(dir.path(), &overrides));
        assert!(line.contains("skipped, already there"), "{line}");
    }
    let record = dir.path().join("out/of/here/config.toml");
    let config = Config::load::<&str>(&record, &[]).unwrap();
    assert_eq!((config.model.layers, config.train.iterations), (4, Some(200)));
    assert!(config.data.is_absolute() && config.data.exists(), "{}", config.data.display());
    let entries = std::fs::read_dir(record.parent().unwrap()).unwrap();
    let mut left: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let whole = ["config.toml", "metrics.json", "metrics.jsonl", "model.json", "posterior.h5"];
    assert_eq!(left[..5], whole, "{left:?}");
    assert_eq!(left[5..], ["summary.json"]);
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn missing_data_is_made_once_by_the_source_command() {
    let dir = workplace(MESH, false);
    let line = data_line(&run(dir.path(), &[]));
    assert!(line.contains(" s ") && !line.contains("skipped"), "{line}");
    let made = dir.path().join("made/toy.h5");
    let hash = Dataset::read(&made).unwrap().hash();
    assert!(dir.path().join("runs/toy/config.toml").is_file());

    let again = run(dir.path(), &[]);
    assert!(data_line(&again).contains("skipped"));
    assert_eq!(text(&again.stderr), "");

    let edited = run(dir.path(), &["--set", "source.command=synth mesh --nodes 200"]);
    assert!(data_line(&edited).contains("skipped"));
    assert!(text(&edited.stderr).contains("[source] has changed"), "{}", text(&edited.stderr));
    assert_eq!(Dataset::read(&made).unwrap().hash(), hash);
}

#[test]
fn failures_name_their_cause_and_exit_with_1() {
    let no_source: &[&str] = &[];
    let cases: &[(&str, &[&str], &str)] = &[
        (TOY, no_source, "toy.h5: the dataset is missing, and the config has no [source]"),
        (TOY, &["--set", "model.layer=1"], "did you mean `model.layers`?"),
        (TOY, &["--set", "run.dir=toy.toml"], "toy.toml"),
        (TOY, &["--set", "data=toy.toml"], "toy.toml: not a readable HDF5 file"),
        (TOY, &["--set", "source.command=synth nothing"], "[source] synth nothing: "),
        (TOY, &["--set", "source.command=synth mesh --nodes x"], "[source] synth mesh"),
        (TOY, &["--set", "source.command=import csv --nodes a.csv --edges b.csv"], "a.csv"),
        ("name = 'toy'\ndata = 'toy.h5'\n\n[model]\nlayers = 0\n", &[], "toy.toml:5: "),
    ];
    for (config, more, expected) in cases {
        let dir = workplace(config, false);
        let output = run(dir.path(), more);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{more:?}: {message}");
        assert!(message.starts_with("error: "), "{message}");
        assert!(message.contains(expected), "{more:?}: no `{expected}` in: {message}");
        assert!(!dir.path().join("toy.h5").exists());
    }
    assert_eq!(run(&std::env::temp_dir(), &["--set"]).status.code(), Some(2));
}

/// Launchers kill all ranks when one fails: the message must be out by then, whichever is quickest.
#[test]
fn the_message_of_a_failed_job_is_never_lost() {
    let dir = workplace(TOY, false);
    for (words, code, expected) in [
        (&["run", "toy.toml", "--set", "model.layers=0"][..], 1, "layers"),
        (&["run", "toy.toml"], 1, "toy.h5"),
        (&["run", "no-such.toml"], 1, "no-such.toml"),
        (&["run", "--nonsense"], 2, "--nonsense"),
    ] {
        for _ in 0..3 {
            let program = env!("CARGO_BIN_EXE_dgmrf");
            let output =
                support::mpirun(4).arg(program).args(words).current_dir(&dir).output().unwrap();
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{words:?}: {message}");
            assert_eq!(message.matches("error:").count(), 1, "{words:?}: {message}");
            assert!(message.contains(expected), "{words:?}: {message}");
        }
    }
}
