//! `dgmrf doctor`: is this installation able to run?

use crate::error::Result;

/// Show the versions of everything the program stands on, and a verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf doctor\n  mpirun -n 2 dgmrf doctor --json")]
pub(super) struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(_args: Args) -> Result<()> {
    Ok(())
}
