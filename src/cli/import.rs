//! `dgmrf import`.

use crate::error::Result;

/// To be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_args: Args) -> Result<()> {
    Ok(())
}
