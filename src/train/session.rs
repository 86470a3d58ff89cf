//! The loop around a fit: its journal, its checkpoints, and how it goes on after a break.

use super::fit::{Fit, Report};
use crate::checkpoint::{self, About};
use crate::error::{Error, Result, WithPath};
use crate::field::rowwise::Rowwise;
use crate::progress::Progress;
use crate::storage;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Resume {
    /// The newest whole checkpoint, if there is one.
    #[default]
    Auto,
    /// Nowhere: begin anew.
    Never,
    /// This checkpoint.
    From(PathBuf),
}

impl std::str::FromStr for Resume {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "auto" => Resume::Auto,
            "never" => Resume::Never,
            path => Resume::From(path.into()),
        })
    }
}

/// How a session is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Run directory: `metrics.jsonl` and `checkpoints/` are in it.
    pub dir: PathBuf,
    /// Steps between lines of the journal.
    pub log_every: u64,
    /// Steps between checkpoints; 0 for none.
    pub checkpoint_every: u64,
    /// Time between checkpoints, besides; none where steps are 0.
    pub checkpoint_after: Duration,
    /// Where to go on from.
    pub resume: Resume,
    /// What the fit is about: a checkpoint of something else is refused.
    pub about: About,
    /// Steps at most, for the progress bar.
    pub iterations: u64,
    /// How the objective is told.
    pub objective: Objective,
}

/// What objectives are told as: per node, in the units of `y`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// Its name for people.
    pub name: &'static str,
    /// Added to the objective in standardised units.
    pub shift: f64,
    /// Nodes.
    pub nodes: f64,
    /// Standard deviation of the data: one standardised unit.
    pub scale: f64,
}

impl Objective {
    /// Per node, in the units of `y`.
    pub fn per_node(&self, value: f64) -> f64 {
        (value + self.shift) / self.nodes
    }
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Step of the checkpoint it went on from.
    pub resumed_at: Option<u64>,
    /// Whether a signal ended it before the fit was finished.
    pub interrupted: bool,
}

/// Takes a fit from its start, or from a checkpoint, to its end. All ranks call it.
pub fn run<E: Rowwise, F: Fit<E>>(
    engine: &mut E,
    fit: &mut F,
    options: &Options,
) -> Result<Outcome> {
    let world = engine.world().clone();
    let checkpoints = options.dir.join("checkpoints");
    let resumed_at = resume(engine, fit, options, &checkpoints)?;
    let journal = world.agree(match world.is_root() {
        true => Journal::open(&options.dir.join("metrics.jsonl"), fit.steps()).map(Some),
        false => Ok(None),
    })?;
    let (mut journal, earlier) = match journal {
        Some((journal, seconds)) => (Some(journal), seconds),
        None => (None, 0.0),
    };
    let mut progress = match world.is_root() {
        true => Progress::new(options.objective.name, options.iterations),
        false => Progress::silent(),
    };
    progress.begin_at(fit.steps());
    signal::listen();
    let (start, mut saved_at, mut saved_step) = (Instant::now(), Instant::now(), fit.steps());
    let (mut look_at, mut looked) = (fit.steps() + 1, Instant::now());
    while !fit.finished() {
        let before = fit.steps();
        let report = match fit.step(engine) {
            Ok(report) => report,
            Err(error) => return Err(stopped(error, saved_step, options.checkpoint_every)),
        };
        if !report.objective.is_finite() {
            let why = Error::Numeric(format!(
                "the objective is {} after {before} steps: a smaller train.learning_rate may help",
                report.objective
            ));
            return Err(stopped(why, saved_step, options.checkpoint_every));
        }
        let step = fit.steps();
        progress.advance(step - before);
        if step.is_multiple_of(options.log_every) || step == 1 || fit.finished() {
            let value = options.objective.per_node(report.objective);
            progress.note(&format!("{} {value:.5}", options.objective.name));
            let seconds = earlier + start.elapsed().as_secs_f64();
            let line = line(fit, &report, options, seconds);
            let written = journal.as_mut().map_or(Ok(()), |journal| journal.write(&line));
            world.agree(written)?;
        }
        // Clocks and signals differ between ranks; what follows from them is decided together.
        let mut interrupted = false;
        let mut due = options.checkpoint_every > 0 && step.is_multiple_of(options.checkpoint_every);
        if step >= look_at {
            let of_step = looked.elapsed().as_secs_f64() / (step + 1 - look_at).max(1) as f64;
            let late = saved_at.elapsed() >= options.checkpoint_after;
            let mut told = [
                f64::from(u8::from(signal::caught())),
                f64::from(u8::from(late)),
                (LOOK / of_step.max(1e-9)).clamp(1.0, 1000.0).floor(),
            ];
            world.max(&mut told);
            interrupted = told[0] > 0.0;
            due |= options.checkpoint_every > 0 && (told[1] > 0.0 || interrupted);
            (look_at, looked) = (step + told[2] as u64, Instant::now());
        }
        if due && !fit.finished() {
            let state = fit.save(engine);
            checkpoint::save(&world, &checkpoints, engine.part(), &options.about, &state)?;
            (saved_at, saved_step) = (Instant::now(), step);
        }
        if interrupted && !fit.finished() {
            return Ok(Outcome { resumed_at, interrupted: true });
        }
    }
    Ok(Outcome { resumed_at, interrupted: false })
}

/// Seconds between looks at clocks and signals, about.
const LOOK: f64 = 0.25;

/// What to say when a fit cannot go on.
fn stopped(error: Error, saved: u64, every: u64) -> Error {
    let rest = match (every, saved) {
        (0, _) | (_, 0) => "there is no checkpoint".to_owned(),
        _ => format!("the last good checkpoint is that of step {saved}"),
    };
    Error::Numeric(format!("training stopped: {error} ({rest})"))
}

fn resume<E: Rowwise, F: Fit<E>>(
    engine: &mut E,
    fit: &mut F,
    options: &Options,
    checkpoints: &Path,
) -> Result<Option<u64>> {
    let world = engine.world().clone();
    let loaded = match &options.resume {
        Resume::Never => None,
        Resume::Auto => checkpoint::latest(&world, checkpoints, engine.part())?,
        Resume::From(path) => Some(checkpoint::load(&world, path, engine.part())?),
    };
    let Some(loaded) = loaded else { return Ok(None) };
    world.agree(same(&loaded.about, &options.about, &loaded.path))?;
    let step = loaded.state.step;
    let restored = fit.restore(engine, loaded.state);
    world.agree(restored.map_err(|e| Error::file(&loaded.path, e.to_string())))?;
    Ok(Some(step))
}

/// A checkpoint of other settings or data is not continued: the first lines of the difference.
fn same(then: &About, now: &About, path: &Path) -> Result<()> {
    let names = then.keys().chain(now.keys()).collect::<std::collections::BTreeSet<_>>();
    let word = |about: &About, name: &str| about.get(name).map_or("(not set)", |v| v).to_owned();
    let differences: Vec<String> = names
        .into_iter()
        .filter(|name| then.get(*name) != now.get(*name))
        .map(|name| format!("  {name}: {} then, {} now", word(then, name), word(now, name)))
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::file(
        path,
        format!(
            "this checkpoint is of a run with other settings:\n{}\nUse --resume never to begin anew, \
             another name or run.dir to keep both, or the settings of then",
            differences.join("\n")
        ),
    ))
}

/// One line of the journal.
fn line<E: Rowwise, F: Fit<E>>(
    fit: &F,
    report: &Report,
    options: &Options,
    seconds: f64,
) -> serde_json::Value {
    let p = fit.parameters();
    let layers: Vec<_> = (0..p.model.layers.len())
        .map(|l| {
            let c = p.model.coefficients(l);
            serde_json::json!({
                "alpha": c.alpha, "beta": c.rho * c.alpha, "gamma": c.gamma, "bias": c.bias,
            })
        })
        .collect();
    let mut line = serde_json::json!({
        "step": fit.steps(),
        "seconds": seconds,
        "objective_per_node": options.objective.per_node(report.objective),
        "sigma": p.sigma() * options.objective.scale,
        "layers": layers,
    });
    if let Some(iterations) = report.cg_iterations {
        line["cg_iterations"] = iterations.into();
    }
    line
}

/// `metrics.jsonl`: one line per logged step.
struct Journal {
    file: std::fs::File,
    path: PathBuf,
}

impl Journal {
    /// Goes on after `step`: lines of steps beyond are of a run that was not continued. Also the
    /// seconds that the kept lines have taken.
    fn open(path: &Path, step: u64) -> Result<(Self, f64)> {
        let (mut kept, mut seconds) = (String::new(), 0.0);
        if step > 0
            && let Ok(text) = std::fs::read_to_string(path)
        {
            for line in text.lines() {
                let parsed: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
                if parsed["step"].as_u64().is_some_and(|s| s <= step) {
                    kept.extend([line, "\n"]);
                    seconds = parsed["seconds"].as_f64().unwrap_or(seconds);
                }
            }
        }
        storage::write_text_file(path, &kept)?;
        let file = std::fs::OpenOptions::new().append(true).open(path).with_path(path, "")?;
        Ok((Journal { file, path: path.into() }, seconds))
    }

    fn write(&mut self, line: &serde_json::Value) -> Result<()> {
        writeln!(self.file, "{line}").with_path(&self.path, "")
    }
}

/// Signals with which batch systems announce the end: the fit is saved and left.
mod signal {
    use super::{AtomicBool, Relaxed};
    use std::sync::{Arc, OnceLock};

    static CAUGHT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

    pub fn listen() {
        let flag = CAUGHT.get_or_init(Default::default);
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGUSR1] {
            // Where it cannot be caught, it does what it always does.
            let _ = signal_hook::flag::register(signal, flag.clone());
        }
    }

    pub fn caught() -> bool {
        CAUGHT.get().is_some_and(|flag| flag.load(Relaxed))
    }
}
