//! `dgmrf import` through the real binary: the reference data of the paper, every public format,
//! masks, and bad input.

#[path = "import/bad_input.rs"]
mod bad_input;
#[path = "import/formats.rs"]
mod formats;
#[path = "import/reference.rs"]
mod reference;

use dgmrf::dataset::Dataset;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with small input files and the place for one output.
struct Workplace(tempfile::TempDir);

/// What one run of the program left.
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Workplace {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Workplace(tempfile::tempdir().unwrap());
        for (name, contents) in files {
            std::fs::write(place.path(name), contents).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `dgmrf import` here; `words` are split at blanks.
    fn import(&self, words: &str) -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_dgmrf"))
            .arg("import")
            .args(words.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs an import that must succeed with `-o out.h5`, and reads what it wrote.
    fn dataset(&self, words: &str) -> (Dataset, Outcome) {
        let outcome = self.import(&format!("{words} -o out.h5"));
        assert_eq!(outcome.code, Some(0), "{words}\n{}", outcome.stderr);
        (Dataset::read(&self.path("out.h5")).unwrap(), outcome)
    }

    /// Runs an import that must succeed with `-o out.h5 --json`, and parses what it printed.
    fn json(&self, words: &str) -> serde_json::Value {
        let (_, outcome) = self.dataset(&format!("{words} --json"));
        serde_json::from_str(&outcome.stdout).unwrap()
    }

    /// All file names, to see that nothing was left behind.
    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A file of the reference data; without it the test says so and is skipped.
fn shared(path: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(path);
    if file.exists() {
        return Some(file);
    }
    println!("skipped: {} is not there", file.display());
    None
}
