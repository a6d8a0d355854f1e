//! `drystone replay`: traces through one allocator.

use anyhow::Result;
use drystone_models::{Candidate, NAMES};

use super::ended::Ended;
use super::replays::Replays;
use crate::args::Files;
use crate::candidates;

/// Options of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Which allocator
    #[arg(short, long, value_name = "NAME", value_parser = NAMES,
          default_value = candidates::DEFAULT)]
    allocator: String,

    /// Its configuration, as DRYSTONE_CONF or PYTORCH_CUDA_ALLOC_CONF would give it
    #[arg(short, long, value_name = "KEY:VALUE,...", default_value = "")]
    conf: String,

    #[command(flatten)]
    replays: Replays,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let candidates = [Candidate::named(&args.allocator, &args.conf)?];
    args.replays.run("replay", &args.files, &candidates)
}
