//! `drystone compare`: traces through Drystone and PyTorch's allocators, side by side.

use super::ended::Ended;
use super::replays::Replays;
use crate::args::Files;
use crate::candidates;
use anyhow::Result;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    configurations: candidates::Configurations,

    #[command(flatten)]
    replays: Replays,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::all(&args.configurations)?;
    args.replays.run("compare", &args.files, &candidates)
}
