//! The command line: one file per subcommand, each with its `Args` and one `run`.
//!
//! Exit codes: 0 done, 1 the run failed (message on standard error), 2 wrong usage. Results go to
//! standard output, from rank 0 only; warnings and progress go to standard error.

mod doctor;
mod evaluate;
mod import;
mod infer;
mod info;
mod logdet;
mod partition;
mod ranks;
mod run;
mod scale;
mod synth;
mod table;
mod terminal;
mod train;
mod words;

pub use terminal::Terminal;

use crate::comm;
use crate::error::{Error, Result};
use crate::progress;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

/// Deep Gaussian Markov random fields on graphs of any size.
#[derive(Debug, Parser)]
#[command(name = "dgmrf", version, about, propagate_version = true)]
#[command(after_help = "Start with `dgmrf doctor`, then `dgmrf run configs/quickstart.toml`.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(import::Args),
    Synth(synth::Args),
    Info(info::Args),
    Partition(partition::Args),
    Logdet(logdet::Args),
    Train(train::Args),
    Infer(infer::Args),
    Evaluate(evaluate::Args),
    Run(run::Args),
    Scale(scale::Args),
    Doctor(doctor::Args),
}

impl Command {
    fn runs_on_all_ranks(&self) -> bool {
        matches!(
            self,
            Command::Run(_)
                | Command::Train(_)
                | Command::Infer(_)
                | Command::Logdet(_)
                | Command::Scale(_)
                | Command::Doctor(_)
        )
    }
}

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
    end_on_broken_pipe();
    // Under mpirun, what is not distributed is done once, and what all ranks have to say is said
    // once.
    let first = comm::launched_rank() == 0;
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            if !first {
                return ExitCode::SUCCESS; // as below, the first rank fails for all
            }
            let _ = usage.print();
            return ExitCode::from(usage.exit_code() as u8);
        }
    };
    if !first && !cli.command.runs_on_all_ranks() {
        return ExitCode::SUCCESS;
    }
    match progress::observed_by(Rc::new(Terminal), || execute(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        // Launchers kill the other ranks as soon as one fails: if that were not the first, its
        // message could be lost.
        Err(Error::FailedTogether) => ExitCode::SUCCESS,
        Err(error) => {
            if first {
                eprintln!("error: {error}");
            }
            ExitCode::from(1)
        }
    }
}

/// A reader that goes away (`dgmrf info | head`) ends the program quietly, as users expect of any
/// command; the Rust runtime would turn it into a panic.
#[allow(unsafe_code, reason = "the C library's call, before any thread is started")]
fn end_on_broken_pipe() {
    // SAFETY: restores the default action of a signal before any thread is started.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Runs one command given as words (without the program name), as `[source] command` in a config.
///
/// ```
/// let dir = std::env::temp_dir().join("dgmrf-doc");
/// let file = dir.join("mesh.h5");
/// let words = ["synth", "mesh", "--nodes", "100", "-o", file.to_str().unwrap()];
/// dgmrf::cli::run_words(words)?;
/// assert_eq!(dgmrf::dataset::Dataset::read(&file)?.nodes(), 100);
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub fn run_words<I>(words: I) -> Result<()>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let words = std::iter::once(OsString::from("dgmrf")).chain(words.into_iter().map(Into::into));
    let cli = Cli::try_parse_from(words).map_err(|e| Error::Setting(e.to_string()))?;
    execute(cli)
}

fn execute(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Import(args) => import::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Info(args) => info::run(args),
        Command::Partition(args) => partition::run(args),
        Command::Logdet(args) => logdet::run(args),
        Command::Scale(args) => scale::run(args),
        Command::Train(args) => train::run(args),
        Command::Infer(args) => infer::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Run(args) => run::run(args),
        Command::Doctor(args) => doctor::run(args),
    }
}

/// Writes a new dataset and says so: the end of every command that makes one.
fn write_dataset(data: &crate::dataset::Dataset, output: &std::path::Path) -> Result<()> {
    save_dataset(data, output)?;
    println!(
        "{}: {} nodes, {} edges, {} observed",
        output.display(),
        data.nodes(),
        data.graph.edges(),
        data.observed_count()
    );
    Ok(())
}

/// Checks a new dataset, shows its warnings and writes it.
fn save_dataset(data: &crate::dataset::Dataset, output: &std::path::Path) -> Result<()> {
    for warning in data.check()? {
        eprintln!("warning: {warning}");
    }
    data.write(output)
}
