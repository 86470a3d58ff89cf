//! The loop around a fit: its journal, its checkpoints, and how it goes on after a break.
//!
//! ```
//! use dgmrf::comm::World;
//! use dgmrf::field::native::Native;
//! use dgmrf::graph::delaunay::Weighting;
//! use dgmrf::likelihood::Observations;
//! use dgmrf::logdet;
//! use dgmrf::model::Gamma;
//! use dgmrf::partition::Partition;
//! use dgmrf::synth::{self, Observation, mesh::{Kind, Mesh}};
//! use dgmrf::train::{Problem, Shape, marginal::{self, Marginal}, session};
//!
//! // Values on a grid of 400 nodes, all on this rank; half of them are hidden.
//! let mesh = Mesh { nodes: 400, kind: Kind::Grid, weighting: Weighting::None };
//! let observation = Observation { mask_fraction: 0.5, ..Observation::default() };
//! let data = synth::mesh::generate(&mesh, &observation)?;
//! let part = Partition::new(&data.graph, vec![0; 400], 1, Default::default())?.part(0);
//! let (y, observed): (Vec<f64>, Vec<bool>) =
//!     part.owned_ids().iter().map(|&i| (data.y[i as usize], data.observed[i as usize])).unzip();
//!
//! let mut engine = Native::<f64>::new(World::solo(), part)?;
//! let spectrum = logdet::compute(&mut engine, &Default::default())?;
//! let problem = Problem::new(Observations::new(&engine, &y, &observed)?, None, spectrum)?;
//! let shape = Shape { layers: 1, bias: true, gamma: Gamma::Free, sigma: None };
//! let mut fit = Marginal::new(&mut engine, problem, &shape, marginal::Options::default())?;
//! // Without a journal and checkpoints; `Options` tells where they go.
//! session::run(&mut engine, &mut fit, &session::Options::default())?;
//! let (parameters, info) = fit.finish(&mut engine)?;
//! assert!(info.converged && parameters.sigma() < 0.2);
//! # Ok::<(), dgmrf::Error>(())
//! ```

use super::fit::{Fit, Report};
use super::journal::{Journal, Line};
use crate::checkpoint::{self, Fingerprint};
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::progress::Progress;
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
    /// The checkpoint in this directory.
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
    /// File of the journal, `metrics.jsonl`; none is written without.
    pub journal: Option<PathBuf>,
    /// Steps between lines of the journal.
    pub log_every: u64,
    /// Directory of the checkpoints; without, none are written, and none is gone on from but the
    /// one that `resume` names.
    pub checkpoints: Option<PathBuf>,
    /// Steps between checkpoints; 0 for none.
    pub checkpoint_every: u64,
    /// Time between checkpoints, besides; none where steps are 0.
    pub checkpoint_after: Duration,
    /// Where to go on from.
    pub resume: Resume,
    /// What tells this fit from others: a checkpoint with another fingerprint is refused.
    pub fingerprint: Fingerprint,
    /// Steps at most, for the progress bar.
    pub iterations: u64,
    /// How the objective is shown.
    pub objective: Objective,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            journal: None,
            log_every: 10,
            checkpoints: None,
            checkpoint_every: 1000,
            checkpoint_after: Duration::from_mins(10),
            resume: Resume::Auto,
            fingerprint: Fingerprint::new(),
            iterations: 0,
            objective: Objective::default(),
        }
    }
}

/// How objectives are shown: per node, in the units of `y`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// Name of the objective for people.
    pub name: &'static str,
    /// Added to the objective in standardised units.
    pub shift: f64,
    /// Nodes.
    pub nodes: f64,
    /// Standard deviation of the data: one standardised unit.
    pub scale: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Objective { name: "objective", shift: 0.0, nodes: 1.0, scale: 1.0 }
    }
}

impl Objective {
    /// The objective of a fit to standardised values, `(y − mean) / scale`, of which `observed` are
    /// known. Densities of `y` and of standardised values differ by the scale, once for each value:
    /// `log p(y) = log p((y − mean) / scale) − M log scale`.
    pub fn standardised(name: &'static str, nodes: usize, observed: usize, scale: f64) -> Self {
        let shift = -(observed as f64) * scale.ln();
        Objective { name, shift, nodes: nodes as f64, scale }
    }

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
}

/// Takes a fit from its start, or from a checkpoint, to its end. A signal that announces the end of
/// the job (SIGTERM, SIGUSR1) makes it [`Error::Interrupted`], after a checkpoint. All ranks call
/// it.
pub fn run<E: Engine, F: Fit<E>>(
    engine: &mut E,
    fit: &mut F,
    options: &Options,
) -> Result<Outcome> {
    let world = engine.world().clone();
    let resumed_at = resume(engine, fit, options)?;
    let path = options.journal.as_deref();
    let open = || path.map(|path| Journal::open(path, fit.steps())).transpose();
    let (mut journal, earlier) = match world.on_root(open)?.flatten() {
        Some((journal, seconds)) => (Some(journal), seconds),
        None => (None, 0.0),
    };
    let checkpoints = options.checkpoints.as_deref();
    let every = checkpoints.map_or(0, |_| options.checkpoint_every);
    let mut progress = if world.is_root() {
        Progress::new(options.objective.name, options.iterations)
    } else {
        Progress::silent()
    };
    progress.begin_at(fit.steps());
    signal::listen();
    let (start, mut saved_at) = (Instant::now(), Instant::now());
    // The checkpoint that was gone on from counts, unless it is of step 0.
    let mut saved_step = (every > 0).then_some(fit.steps()).filter(|step| *step > 0);
    let (mut look_at, mut looked) = (fit.steps() + 1, Instant::now());
    while !fit.finished() {
        let before = fit.steps();
        let report = match fit.step(engine) {
            Ok(report) => report,
            Err(error) => return Err(stopped(error, saved_step)),
        };
        if !report.objective.is_finite() {
            let why = Error::Numeric(format!(
                "the objective is {} after {before} steps: a smaller train.learning_rate may help",
                report.objective
            ));
            return Err(stopped(why, saved_step));
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
        let mut due = every > 0 && step.is_multiple_of(every);
        if step >= look_at {
            let of_step = looked.elapsed().as_secs_f64() / (step + 1 - look_at).max(1) as f64;
            let late = saved_at.elapsed() >= options.checkpoint_after;
            let mut agreed = [
                f64::from(u8::from(signal::caught())),
                f64::from(u8::from(late)),
                (LOOK_EVERY / of_step.max(1e-9)).clamp(1.0, 1000.0).floor(),
            ];
            world.max(&mut agreed);
            interrupted = agreed[0] > 0.0;
            due |= every > 0 && (agreed[1] > 0.0 || interrupted);
            (look_at, looked) = (step + agreed[2] as u64, Instant::now());
        }
        if let Some(checkpoints) = checkpoints
            && due
            && !fit.finished()
        {
            let state = fit.save(engine);
            checkpoint::save(&world, checkpoints, engine.part(), &options.fingerprint, &state)?;
            (saved_at, saved_step) = (Instant::now(), Some(step));
        }
        if interrupted && !fit.finished() {
            let saved = every > 0;
            return world.agree(Err(Error::Interrupted { saved }));
        }
    }
    Ok(Outcome { resumed_at })
}

/// Seconds between looks at clocks and signals, about.
const LOOK_EVERY: f64 = 0.25;

/// What to say when a fit cannot go on.
fn stopped(error: Error, checkpoint: Option<u64>) -> Error {
    Error::Stopped { source: Box::new(error), checkpoint }
}

fn resume<E: Engine, F: Fit<E>>(
    engine: &mut E,
    fit: &mut F,
    options: &Options,
) -> Result<Option<u64>> {
    let world = engine.world().clone();
    let loaded = match &options.resume {
        Resume::Never => None,
        Resume::Auto => match &options.checkpoints {
            Some(checkpoints) => checkpoint::latest(&world, checkpoints, engine.part())?,
            None => None,
        },
        Resume::From(path) => Some(checkpoint::load(&world, path, engine.part())?),
    };
    let Some(loaded) = loaded else { return Ok(None) };
    world.agree(same(&loaded.fingerprint, &options.fingerprint, &loaded.path))?;
    let step = loaded.state.step;
    let restored = fit.restore(engine, loaded.state);
    world.agree(restored.map_err(|e| Error::file(&loaded.path, e.to_string())))?;
    Ok(Some(step))
}

/// A checkpoint of other settings or data is not continued: the first lines of the difference.
fn same(then: &Fingerprint, now: &Fingerprint, path: &Path) -> Result<()> {
    let names = then.keys().chain(now.keys()).collect::<std::collections::BTreeSet<_>>();
    let word = |of: &Fingerprint, name: &str| of.get(name).map_or("(not set)", |v| v).to_owned();
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
            "this checkpoint is of a run with other settings:\n{}\n\
             Use --resume never to begin anew, another name or run.dir to keep both, or the \
             settings of then",
            differences.join("\n")
        ),
    ))
}

/// What the journal tells of a step.
fn line<E: Engine, F: Fit<E>>(fit: &F, report: &Report, options: &Options, seconds: f64) -> Line {
    let p = fit.parameters();
    Line {
        step: fit.steps(),
        seconds,
        objective_per_node: options.objective.per_node(report.objective),
        sigma: p.sigma() * options.objective.scale,
        layers: p.model.rounded(),
        cg_iterations: report.cg_iterations,
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
