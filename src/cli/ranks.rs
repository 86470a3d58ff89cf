//! Commands that run on all ranks of an MPI job: joining it, its threads, its profile, and how it
//! fails.

use crate::comm::{World, threads};
use crate::error::{Error, Result};
use crate::profile;
use crate::storage;
use std::path::PathBuf;
use std::rc::Rc;

/// Options of every command that runs on all ranks.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Ranks {
    /// Threads per rank [default: OMP_NUM_THREADS, or cores over the ranks that share them]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Show where the time went: time, bytes, messages and reductions of each phase
    #[arg(long)]
    pub profile: bool,
    /// Write the profile as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub profile_json: Option<PathBuf>,
}

/// Runs `body` on all ranks, with what `prepare` has made of the arguments.
///
/// Preparing may fail (a setting, a file), on one rank or on all: MPI has begun by then, so that
/// ranks agree on that, too.
///
/// Errors that ranks have agreed on ([`World::agree`]) come back on all of them; an error that one
/// rank has alone would leave the others waiting, so it ends the job.
pub(super) fn run<P>(
    prepare: impl FnOnce() -> Result<(Ranks, P)>,
    body: impl FnOnce(&Rc<World>, usize, P) -> Result<()>,
) -> Result<()> {
    let world = World::init()?;
    let mut profile_wanted = (false, None);
    let result = world.agree(prepare()).and_then(|(ranks, prepared)| {
        let threads = world.agree(threads::configure(&world, ranks.threads))?;
        profile_wanted = (ranks.profile, ranks.profile_json);
        if profile_wanted.0 || profile_wanted.1.is_some() {
            profile::enable();
        }
        body(&world, threads, prepared)
    });
    if let Err(error) = &result
        && !world.failed_together()
        && world.size() > 1
    {
        eprintln!("error: rank {}: {error}", world.rank());
        world.abort(1);
    }
    if result.is_err() && !world.is_root() {
        return Err(Error::FailedTogether);
    }
    result?;
    let (table, file) = profile_wanted;
    if table || file.is_some() {
        let lines = world.profile();
        if world.is_root() {
            if table {
                eprint!("\n{}", profile::table(&lines)); // results keep standard output
            }
            if let Some(path) = file {
                storage::write_text_file(&path, &format!("{:#}\n", serde_json::json!(lines)))?;
            }
        }
    }
    Ok(())
}
