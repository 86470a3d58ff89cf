//! Config files: defaults, overrides, and what users get wrong.

use dgmrf::Error;
use dgmrf::config::{
    Config, Device, Engine, Estimator, Gamma, LogdetMethod, Method, Preconditioner, Source,
    Variance,
};
use std::path::{Path, PathBuf};

const MINIMAL: &str = "name = 'a'\ndata = 'a.h5'\n";

fn config_file(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("config.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn load(text: &str, overrides: &[&str]) -> dgmrf::Result<Config> {
    let dir = tempfile::tempdir().unwrap();
    Config::load(&config_file(dir.path(), text), overrides)
}

#[test]
fn defaults_are_those_of_the_rooms() {
    let config = load(MINIMAL, &[]).unwrap();
    assert_eq!(config.run_dir(), Path::new("runs/a"));
    assert_eq!(config.source, None);
    let model = &config.model;
    assert_eq!((model.layers, model.bias, model.gamma), (1, true, Gamma::Free));
    assert_eq!((model.features, model.weighted), (false, None));
    let train = &config.train;
    assert_eq!((train.method, train.seed), (Method::Marginal, 1));
    assert_eq!((train.iterations, train.learning_rate), (Some(200), Some(0.1)));
    let variational = &config.variational;
    assert_eq!((variational.layers, variational.samples), (1, 10));
    assert_eq!(variational.estimator, Estimator::Rademacher);
    assert_eq!(config.logdet.method, LogdetMethod::Auto);
    let posterior = &config.posterior;
    assert_eq!((posterior.samples, posterior.variance), (100, Variance::Rbmc));
    assert_eq!((posterior.tolerance, posterior.preconditioner), (1e-7, Preconditioner::Auto));
    let run = &config.run;
    assert_eq!((run.engine, run.device, run.threads), (Engine::Native, Device::Auto, None));
}

#[test]
fn steps_and_rate_follow_the_method_unless_given() {
    let elbo = load(MINIMAL, &["train.method=elbo"]).unwrap().train;
    assert_eq!((elbo.iterations(), elbo.learning_rate()), (50_000, 0.01));
    let own = load(MINIMAL, &["train.method=elbo", "train.iterations=7"]).unwrap().train;
    assert_eq!((own.iterations(), own.learning_rate()), (7, 0.01));
}

/// Every key away from its default, through the file and back.
#[test]
fn what_is_written_to_the_run_directory_reads_back_unchanged() {
    let full = r#"
        name = "full"
        data = "some where/full.h5"
        [source]
        command = "import csv --nodes 'a b.csv' --edges e.csv"
        [model]
        layers = 5
        bias = false
        gamma = 1
        features = true
        sigma = 0.5
        weighted = false
        [train]
        method = "elbo"
        seed = 18
        iterations = 150_000
        learning_rate = 3e-3
        decay = "cosine"
        converge = 1e-3
        precision = "single"
        standardise = false
        log_every = 3
        checkpoint_every = 0
        checkpoint_minutes = 2.0
        [marginal]
        probes = 5
        tolerance = 1e-2
        gain = 1.0
        [variational]
        layers = 0
        samples = 4
        estimator = "gaussian"
        [logdet]
        method = "power-series"
        probes = 1000
        terms = 51
        steps = 61
        [posterior]
        samples = 2
        variance = "exact"
        tolerance = 1e-10
        preconditioner = "jacobi"
        [run]
        dir = "/scratch/me/full"
        engine = "torch"
        device = "cuda"
        threads = 3
    "#;
    for (text, changed) in [(full, true), (MINIMAL, false)] {
        let config = load(text, &[]).unwrap();
        let written = config.to_toml().unwrap();
        assert_eq!(load(&written, &[]).unwrap(), config, "{written}");
        if changed {
            let words = config.source.as_ref().unwrap().words().unwrap();
            assert_eq!(words[3], "a b.csv");
            assert_eq!(config.run_dir(), Path::new("/scratch/me/full"));
            // A key that this test forgets would show up with its default value here.
            let defaults = Config { source: None, ..Config::default() }.to_toml().unwrap();
            let same: Vec<&str> = (written.lines())
                .filter(|line| line.contains('=') && defaults.lines().any(|d| d == *line))
                .collect();
            assert_eq!(same, [""; 0]);
        }
    }
}

#[test]
fn overrides_are_toml_or_else_text_and_the_last_wins() {
    let config = load(
        "name = 'a'\ndata = 'a.h5'\n[train]\nseed = 1 # kept elsewhere\n",
        &[
            "name=2024",
            "data = other.h5",
            "model.layers=2",
            "model.layers=3",
            "model.gamma=0.5",
            "model.weighted=true",
            "train.method=elbo",
            "variational.estimator=\"gaussian\"",
            "posterior.tolerance=1e-9",
            "source.command=synth mesh --nodes 10",
            "run.dir=/tmp/a=b",
        ],
    )
    .unwrap();
    assert_eq!(config.name, "2024");
    assert_eq!(config.data.file_name().unwrap(), "other.h5");
    assert_eq!((config.model.layers, config.model.gamma), (3, Gamma::Fixed(0.5)));
    assert_eq!((config.model.weighted, config.train.method), (Some(true), Method::Elbo));
    assert_eq!(config.variational.estimator, Estimator::Gaussian);
    assert_eq!(config.posterior.tolerance, 1e-9);
    assert_eq!(config.source, Some(Source { command: "synth mesh --nodes 10".into() }));
    assert_eq!(config.run_dir(), Path::new("/tmp/a=b"));
    // A file without the required keys may get all of them from the command line.
    assert_eq!(load("", &["name=a", "data=b.h5"]).unwrap().name, "a");
}

/// `(text, line, what the message must hold)`: text, line and words of the mistake.
#[test]
fn mistakes_in_the_file_name_line_and_remedy() {
    let cases: &[(&str, u64, &[&str])] = &[
        ("[model]\nlayer = 3", 4, &["unknown key `model.layer`", "`model.layers`?", "bias"]),
        ("[modle]\nlayers = 3", 3, &["unknown key `modle`", "did you mean `model`?", "posterior"]),
        ("layers = 3", 3, &["unknown key `layers`", "did you mean `model.layers`?"]),
        ("[train]\ntolerance = 1", 4, &["`train.tolerance`", "`marginal.tolerance`?", "[train]"]),
        ("[model]\n\nzzzzzzzzzz = 1", 5, &["unknown key `model.zzzzzzzzzz`. Valid in [model]"]),
        ("[run]\nthreads = 'two'", 4, &["`run.threads`", "string \"two\"", "a whole number"]),
        ("[model]\nlayers = 1.5", 4, &["`model.layers`", "floating point `1.5`", "whole number"]),
        ("[model]\nlayers = -1", 4, &["`model.layers`", "`-1`"]),
        ("[model]\nbias = 1", 4, &["`model.bias`", "true or false"]),
        ("[model]\ngamma = 'fre'", 4, &["`model.gamma`", "\"free\" or a number"]),
        ("[train]\nmethod = 'map'", 4, &["`train.method`", "`map`", "`marginal` or `elbo`"]),
        ("[logdet]\nmethod = 'exact'", 4, &["`power-series`", "`eigenvalues`", "`lanczos`"]),
        ("model = 3", 3, &["`model`"]),
        ("[source]", 3, &["`command`"]),
        ("[model\nlayers = 3", 3, &[]),
        ("[model]\nlayers = 3\nlayers = 4", 5, &["duplicate key"]),
        ("[model]\nlayers = 0", 4, &["`model.layers`", "0 is too small, the least is 1"]),
        ("[model]\ngamma = nan", 4, &["`model.gamma`", "finite"]),
        ("[train]\nlearning_rate = 0", 4, &["`train.learning_rate`", "above 0"]),
        ("[train]\nlearning_rate = inf", 4, &["`train.learning_rate`"]),
        ("[train]\niterations = 0", 4, &["`train.iterations`"]),
        ("[train]\nlog_every = 0", 4, &["`train.log_every`"]),
        ("[variational]\nlayers = 3", 4, &["`variational.layers`", "0 (mean field), 1 or 2"]),
        ("[variational]\nsamples = 0", 4, &["`variational.samples`"]),
        ("[logdet]\nprobes = 0", 4, &["`logdet.probes`"]),
        ("[logdet]\nterms = 0", 4, &["`logdet.terms`"]),
        ("[logdet]\nsteps = 0", 4, &["`logdet.steps`"]),
        ("[posterior]\nsamples = 1", 4, &["`posterior.samples`", "the least is 2"]),
        ("[posterior]\ntolerance = 0.0", 4, &["`posterior.tolerance`", "between 0 and 1"]),
        ("[posterior]\ntolerance = nan", 4, &["`posterior.tolerance`"]),
        ("[run]\nthreads = 0", 4, &["`run.threads`"]),
        ("[run]\ndir = ''", 4, &["`run.dir`"]),
        ("[source]\ncommand = 'run x.toml'", 4, &["`source.command`", "`import` or `synth`"]),
        ("[source]\ncommand = ''", 4, &["`source.command`", "empty"]),
        ("[source]\ncommand = 'synth \"mesh'", 4, &["`source.command`", "not closed"]),
    ];
    for (text, at, words) in cases {
        let error = load(&format!("{MINIMAL}{text}\n"), &[]).expect_err(text);
        let Error::Parse { line, message, .. } = &error else { panic!("{text}: {error:?}") };
        assert_eq!(line, at, "{text}: {error}");
        for word in *words {
            assert!(message.contains(word), "{text}: no `{word}` in: {message}");
        }
        assert!(!message.contains('\n'), "{text}: {message}");
    }
    for (text, word) in [("name = 'a'", "`data` is missing"), ("data = 'a'", "`name` is missing")] {
        assert!(load(text, &[]).unwrap_err().to_string().contains(word));
    }
    for name in ["..", ".", "a/b", "a\\\\b", "a\\nb"] {
        let error = load(&format!("name = \"{name}\"\ndata = 'a'"), &[]).expect_err(name);
        assert!(matches!(error, Error::Parse { line: 1, .. }), "{name}: {error}");
    }
}

#[test]
fn mistakes_on_the_command_line_repeat_the_word() {
    let cases = [
        ("model.layer=3", "unknown key `model.layer`: did you mean `model.layers`?"),
        ("model.layers.x=3", "unknown key"),
        ("model.layers", "expected key=value"),
        ("=3", "unknown key"),
        ("model=3", "[model] is a section"),
        ("model.layers=three", "a whole number"),
        ("model.layers=0", "the least is 1"),
        ("model.layers=", "a whole number"),
        ("posterior.tolerance=2", "between 0 and 1"),
        ("train.method=map", "`marginal` or `elbo`"),
        ("train.seed=1\nname='b'", "a whole number"),
    ];
    for (word, expected) in cases {
        let error = load(MINIMAL, &[word]).expect_err(word);
        assert!(matches!(error, Error::Setting(_)), "{word}: {error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("--set {word}: ")), "{text}");
        assert!(text.contains(expected), "{word}: no `{expected}` in: {text}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let latin1 = dir.path().join("latin1.toml");
    std::fs::write(&latin1, b"name = '\xe9'").unwrap();
    for path in [dir.path().join("none.toml"), dir.path().to_owned(), latin1] {
        let error = Config::load::<&str>(&path, &[]).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn data_is_looked_for_from_the_current_directory_then_beside_the_config() {
    let here = std::env::current_dir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| {
        let text = format!("name = 'a'\ndata = '{name}'\n");
        Config::load::<&str>(&config_file(dir.path(), &text), &[]).unwrap().data
    };
    assert_eq!(data("none.h5"), here.join("none.h5"));
    std::fs::write(dir.path().join("none.h5"), "").unwrap();
    assert_eq!(data("none.h5"), dir.path().join("none.h5"));
    // Tests run in the directory of the package: this name exists in both places.
    std::fs::write(dir.path().join("Cargo.toml"), "").unwrap();
    assert_eq!(data("Cargo.toml"), here.join("Cargo.toml"));
    assert_eq!(data("/nowhere/x.h5"), Path::new("/nowhere/x.h5"));
}

#[test]
fn shipped_configs_load() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut dirs = vec![configs];
    let mut names = std::collections::BTreeSet::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                let config = Config::load::<&str>(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
                // A run directory is named after its config, and no two share one.
                let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let paper = path.parent().unwrap().ends_with("paper");
                let expected = if paper { format!("paper-{stem}") } else { stem };
                assert_eq!(config.name, expected);
                assert!(config.source.is_some(), "{}", path.display());
                assert_eq!(config.train.method == Method::Elbo, paper, "{}", path.display());
                assert!(names.insert(config.name));
            }
        }
    }
    assert!(names.len() >= 16, "{names:?}");
}
