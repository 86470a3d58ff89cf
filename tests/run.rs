//! A run by library calls: the same results as the program's, and nothing printed on the way.

mod support;

#[allow(dead_code)] // its `main`
#[path = "../examples/fit.rs"]
mod example;

use dgmrf::comm::World;
use dgmrf::config::Config;
use dgmrf::dataset::DatasetFile;
use dgmrf::field::native::Native;
use dgmrf::likelihood::Observations;
use dgmrf::logdet;
use dgmrf::partition;
use dgmrf::progress::{self, Observer};
use dgmrf::run::{self, ModelFile, Predictions, RunDir, Summary, journal, settings, values};
use dgmrf::train::{Fit, Problem, marginal::Marginal};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use support::{mpirun, on_ranks};

const TOY: &str = "\
name = 'toy'
data = 'toy.h5'
[source]
command = 'synth dgmrf --nodes 300 --layers 2 --seed 3'
[model]
layers = 2
[posterior]
samples = 20
[run]
threads = 1
";

/// The settings of a run in this directory.
fn config(dir: &Path, run: &str) -> Config {
    let set = [
        format!("run.dir={}", dir.join(run).display()),
        format!("data={}", dir.join("toy.h5").display()),
    ];
    Config::load(&dir.join("toy.toml"), &set).unwrap()
}

/// An empty directory with the config, the same for all ranks of a test.
fn workplace(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("toy.toml"), TOY).unwrap();
    dir
}

/// The program on as many ranks, in `program` of this directory.
fn run_program(dir: &Path, ranks: usize) {
    let program = env!("CARGO_BIN_EXE_dgmrf");
    let mut command = match ranks {
        1 => Command::new(program),
        _ => mpirun(ranks),
    };
    if ranks > 1 {
        command.arg(program);
    }
    let output = command
        .args(["run", "toy.toml", "--set", "run.dir=program"])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_example_ends_like_the_program() {
    let place = |ranks: usize| format!("run-example-{ranks}");
    let ranks = [1, 2];
    if std::env::var_os("DGMRF_TEST_RESULT").is_none() {
        ranks.iter().for_each(|&ranks| run_program(&workplace(&place(ranks)), ranks));
    }
    on_ranks("the_example_ends_like_the_program", &ranks, |world| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(place(world.size()));
        std::env::set_current_dir(&dir).unwrap(); // where partitions are
        example::fit(world, config(&dir, "library")).unwrap();
        Vec::new()
    });
    for ranks in ranks {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(place(ranks));
        let [program, library] = ["program", "library"].map(|run| RunDir::new(dir.join(run)));
        let same = |file: fn(&RunDir) -> PathBuf| {
            let [a, b] = [&program, &library].map(|dir| std::fs::read(file(dir)).unwrap());
            assert!(a == b, "{} on {ranks} ranks", file(&library).display());
        };
        same(RunDir::model);
        same(RunDir::metrics);
        let [a, b] = [&program, &library].map(|d| Predictions::read(&d.predictions()).unwrap());
        assert_eq!(a, b, "{ranks} ranks");
        let [a, b] = [&program, &library].map(|d| Summary::read(&d.summary()).unwrap());
        assert_eq!(a, Summary { seconds: a.seconds, ..b }, "{ranks} ranks");
        let [a, mut b] = [&program, &library].map(|d| journal::read(&d.journal()).unwrap());
        assert!(a.len() > 3);
        a.iter().zip(&mut b).for_each(|(a, b)| b.seconds = a.seconds);
        assert_eq!(a, b, "{ranks} ranks");
    }
}

/// The rooms themselves, told what `settings` makes of the config, fit the same parameters.
#[test]
fn rooms_with_the_settings_of_a_config_fit_what_the_program_fits() {
    let dir = workplace("run-rooms");
    run_program(&dir, 1);
    let (config, world) = (config(&dir, "program"), World::solo());
    let data = DatasetFile::open(&config.data).unwrap();
    let nodes = data.header().nodes;
    let path = dir.join("partitions/toy-p1.h5");
    let loaded = partition::load_or_make(&world, &data, Some(&path), &Default::default());
    let part = loaded.unwrap().part;
    let values = values::read(&world, &data, part.owned_ids(), false, None).unwrap();
    let mut engine = Native::<f64>::new(world, part).unwrap();
    let spectrum = logdet::compute(&mut engine, &settings::logdet(&config, nodes)).unwrap();
    let shape = settings::shape(&config, &values.standardise);
    let data = Observations::new(&engine, &values.y, &values.observed).unwrap();
    let problem = Problem::new(data, None, spectrum).unwrap();
    let options = settings::marginal(&config, nodes);
    let mut fit = Marginal::new(&mut engine, problem, &shape, options).unwrap();
    while !Fit::<Native<f64>>::finished(&fit) {
        fit.step(&mut engine).unwrap();
    }
    let (found, _) = fit.finish(&mut engine).unwrap();

    let file = ModelFile::read(&RunDir::new(config.run_dir()).model()).unwrap();
    assert_eq!(found.sigma() * values.standardise.scale, file.sigma);
    let layers = found.model.rounded();
    let last = journal::read(&RunDir::new(config.run_dir()).journal()).unwrap().pop().unwrap();
    assert_eq!(layers.len(), 2);
    assert_eq!(layers, last.layers);
}

/// What is wrong on the way is told to the observer, and to nobody else.
#[test]
fn warnings_go_to_the_observer() {
    #[derive(Default)]
    struct Heard(RefCell<Vec<String>>);
    impl Observer for Heard {
        fn warning(&self, message: &str) {
            self.0.borrow_mut().push(message.to_owned());
        }
    }
    let dir = workplace("run-observer");
    run_program(&dir, 1);
    let config = config(&dir, "program");
    let spectrum = |entry: &PathBuf| entry.to_string_lossy().ends_with(".spectrum.h5");
    let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let damaged: Vec<PathBuf> = entries.filter(spectrum).collect();
    assert_eq!(damaged.len(), 1);
    std::fs::write(&damaged[0], "no spectrum").unwrap();

    let heard = Rc::new(Heard::default());
    let world = World::solo();
    let data = DatasetFile::open(&config.data).unwrap();
    let path = dir.join("partitions/toy-p1.h5");
    let loaded = partition::load_or_make(&world, &data, Some(&path), &Default::default());
    let mut engine = Native::<f64>::new(world.clone(), loaded.unwrap().part).unwrap();
    let options = settings::logdet(&config, data.header().nodes);
    let loaded = progress::observed_by(heard.clone(), || {
        let compute = |options: &logdet::Options| logdet::compute(&mut engine, options);
        logdet::load_or_make(&world, &data, false, &options, compute)
    });
    assert!(loaded.unwrap().made);
    let heard = heard.0.borrow();
    assert!(heard.len() == 1 && heard[0].ends_with("the spectrum is computed again"), "{heard:?}");
}

#[test]
fn nodes_are_named_in_words_or_in_a_file() {
    assert_eq!(run::parse_nodes(" 5, 0-2 ,1", 6).unwrap(), [0, 1, 2, 5]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "3\n1-1\n\n").unwrap();
    assert_eq!(run::parse_nodes(file.path().to_str().unwrap(), 6).unwrap(), [1, 3]);
    for (words, why) in [("6", "6 is not below 6"), ("2-1", "neither"), ("", "no node")] {
        let error = run::parse_nodes(words, 6).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Only the program prints and knows of command lines; the rest of the crate tells an observer.
#[test]
fn only_the_program_prints() {
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("src/cli") {
                    dirs.push(path);
                }
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let prints =
                code.filter(|l| ["print!(", "println!(", "clap"].iter().any(|w| l.contains(w)));
            // The one exception ends a job after a panic.
            let allowed = usize::from(path.ends_with("src/comm/mod.rs"));
            assert!(prints.count() <= allowed, "{}", path.display());
        }
    }
}
