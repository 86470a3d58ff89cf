//! Preconditioners of conjugate gradients, with and without large unobserved regions, and the
//! speed of the posterior as a whole: `dgmrf infer` on data made here, and on those of
//! `../shared/data` where they are. (`cargo bench --bench posterior`, some ten minutes; words after
//! `--` choose tables: `preconditioners`, `targets`.)
//!
//! Prints tables for docs/performance.md. Seconds are those of `infer`: reading, dividing and
//! writing included. Peak memory is that of the largest rank and that of all together, where
//! `/usr/bin/time` tells it.

use dgmrf::dataset::{Dataset, mask};
use dgmrf::model::{Gamma, Model, ModelFile, Standardise};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Layers `(α, β, γ, b)` as fits to smooth fields have them: the first with `ρ = −0.989`.
const LAYERS: [(f64, f64, f64, f64); 3] =
    [(3.36, -3.323, 0.166, 0.0), (1.5, -1.35, 0.1, 0.0), (1.5, -1.35, 0.1, 0.0)];

/// Layers and `σ` of the fit to the mesh of 10⁶ nodes made here (`dgmrf train` with `layers = 2`
/// and else its defaults, on two ranks; bias and noise in standardised units). The second layer has
/// `ρ = −0.999998`: the diagonal is too little even without a hole.
const FITTED: [(f64, f64, f64, f64); 2] = [
    (0.8406703, -0.6107805, 0.0003442414, 0.2658583),
    (202.189978, -202.189633, 0.98398456, -0.00053471156),
];
const FITTED_SIGMA: f64 = 0.0115675239;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program on some ranks of one thread each, with its peak memory in the last line.
    fn dgmrf(&self, ranks: usize, words: &str) -> Output {
        let mut command = Command::new("mpirun");
        command.args(["-n", &ranks.to_string()]);
        if Path::new("/usr/bin/time").exists() {
            command.args(["/usr/bin/time", "-f", "peak %M"]);
        }
        command
            .arg(env!("CARGO_BIN_EXE_dgmrf"))
            .args(words.split_whitespace())
            .current_dir(self.dir.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_hwloc_base_binding_policy", "none")
            .output()
            .expect("mpirun")
    }

    fn make(&self, words: &str) {
        let made = self.dgmrf(1, words);
        assert!(made.status.success(), "{words}: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Writes `NAME.json`, a model of the first layers for the data `NAME.h5`.
    fn model(&self, name: &str, layers: &[(f64, f64, f64, f64)], gamma: Gamma, sigma: f64) {
        let header = Dataset::read_header(&self.at(&format!("{name}.h5"))).expect("data");
        let file = ModelFile {
            graph_hash: header.graph_hash,
            weighted: false,
            features: false,
            model: Model::from_coefficients(layers, gamma).expect("a model"),
            sigma,
            standardise: Standardise::default(),
        };
        file.write(&self.at(&format!("{name}.json"))).expect("model");
    }

    /// The dataset without what is observed in the middle half of either direction.
    fn pierce(&self, from: &str, to: &str) {
        let mut data = Dataset::read(&self.at(&format!("{from}.h5"))).expect("data");
        let position = data.position.as_ref().expect("positions");
        let ends = |k: usize| {
            let of = |p: &[f64; 2]| p[k];
            let least = position.iter().map(of).fold(f64::INFINITY, f64::min);
            let most = position.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            (0.75 * least + 0.25 * most, 0.25 * least + 0.75 * most)
        };
        let ((x0, x1), (y0, y1)) = (ends(0), ends(1));
        let hole = mask::Rect { min: [x0, y0], max: [x1, y1] };
        mask::hide_rects(&mut data, &[hole]).expect("a hole");
        data.write(&self.at(&format!("{to}.h5"))).expect("data");
    }

    /// A row: what, then iterations, seconds and memory of one inference.
    fn row(&self, what: &str, ranks: usize, data: &str, options: &str) {
        let words = format!(
            "infer --model {data}.json --data {data}.h5 --threads 1 --json -o out.h5 {options}"
        );
        let output = self.dgmrf(ranks, &words);
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let peak = |line: &str| Some(line.strip_prefix("peak ")?.parse::<f64>().ok()? / 1024.0);
        let peaks: Vec<f64> = errors.lines().filter_map(peak).collect();
        let mut memory = format!("{:.0}", peaks.iter().copied().fold(0.0, f64::max));
        if ranks > 1 {
            memory += &format!(", {:.0} in all", peaks.iter().sum::<f64>());
        }
        let Some(json) = text.find('{').filter(|_| output.status.success()) else {
            let why = errors.lines().find(|line| line.starts_with("error")).unwrap_or("failed");
            println!("| {what} | {why} | | | |");
            return;
        };
        let told: Value = serde_json::from_str(&text[json..]).expect("JSON");
        println!(
            "| {what} | {} | {} | {:.2} | {memory} |",
            told["preconditioner"].as_str().expect("a word"),
            told["iterations"],
            told["seconds"].as_f64().expect("a number"),
        );
    }

    /// Every preconditioner on data with and without a hole.
    fn preconditioners(&self, name: &str) {
        self.pierce(name, "hole");
        for (data, what) in [(name, "no hole"), ("hole", "hole")] {
            for depth in 1..=3 {
                self.model(data, &LAYERS[..depth], Gamma::Free, 0.05);
                // The diagonal alone needs very long for three layers and a hole.
                let choices = ["jacobi", "schwarz", "auto"];
                for choice in &choices[usize::from(depth == 3)..] {
                    let what = format!("{name}, {what}, L = {depth}, `{choice}`");
                    let options = format!("--preconditioner {choice} --samples 3 --variance mc");
                    self.row(&what, 1, data, &options);
                }
            }
        }
    }

    /// Imports a shared dataset, if it is there.
    fn shared(&self, name: &str) -> bool {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
        if !source.exists() {
            return false;
        }
        let [nodes, edges] = ["nodes.csv", "edges.csv"].map(|f| source.join(f));
        let (nodes, edges) = (nodes.display(), edges.display());
        self.make(&format!("import csv --nodes {nodes} --edges {edges} -o {name}.h5"));
        true
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |table: &str| chosen.is_empty() || chosen.iter().any(|c| c == table);
    let bench = Bench { dir: tempfile::tempdir().expect("temporary directory") };
    let head = |what: &str| {
        println!(
            "\n| {what} | preconditioner | iterations | seconds | peak MB |\n|---|---|---|---|---|"
        );
    };
    if wanted("preconditioners") {
        head("mean + 3 samples to 1e-7, one core");
        bench.make("synth mesh --nodes 100000 -o mesh.h5");
        bench.preconditioners("mesh");
        if bench.shared("sat_temps_random") {
            bench.preconditioners("sat_temps_random");
        }
    }
    if wanted("targets") {
        head("mean + samples to 1e-7");
        let name = if bench.shared("synth_dgmrf_l3") { "synth_dgmrf_l3" } else { "synth" };
        if name == "synth" {
            bench.make("synth dgmrf --nodes 3000 --layers 3 --seed 1 -o synth.h5");
        }
        bench.model(name, &[(1.2, -1.0, 1.0, 0.0); 3], Gamma::Fixed(1.0), 0.01);
        for variance in ["rbmc", "mc"] {
            let what = format!("{name}, L = 3, 100 samples, {variance}, 1 rank");
            bench.row(&what, 1, name, &format!("--variance {variance}"));
        }
        if bench.shared("sat_temps_random") {
            bench.model("sat_temps_random", &LAYERS[..2], Gamma::Free, 0.05);
            bench.row("sat_temps_random, L = 2, 100 samples, 2 ranks", 2, "sat_temps_random", "");
            bench.pierce("sat_temps_random", "hole");
            bench.model("hole", &LAYERS[..2], Gamma::Free, 0.05);
            bench.row("the same with a hole", 2, "hole", "");
        }
        bench.make("synth mesh --nodes 1000000 -o million.h5");
        bench.model("million", &LAYERS[..2], Gamma::Free, 0.05);
        let few = "--variance mc --samples 2";
        bench.row("mesh of 10⁶, half observed, L = 2, 2 samples, 2 ranks", 2, "million", few);
        bench.model("million", &FITTED, Gamma::Free, FITTED_SIGMA);
        bench.row("the same with the model fitted to it (60 s, 4 GB in all)", 2, "million", few);
    }
}
