//! `drystone compare`: traces through Drystone and PyTorch's allocators, side by side.

use anyhow::Result;
use drystone_models::{Candidate, DRYSTONE_ASYNC};

use super::ended::Ended;
use super::replays::Replays;
use crate::args::{DeviceArgs, Files, Outputs, Time};
use crate::candidates;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    configurations: candidates::Configurations,

    /// Also show drystone-async, over the driver's own memory pools. The simulated ones pack almost
    /// perfectly, which real ones do not: a lower bound
    #[arg(long = "async")]
    with_async: bool,

    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    time: Time,

    #[command(flatten)]
    outputs: Outputs,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let mut candidates = candidates::all(&args.configurations)?;
    if args.with_async {
        candidates.push(Candidate::named(DRYSTONE_ASYNC, "")?);
    }
    let replays = Replays {
        command: "compare",
        files: &args.files,
        device: &args.device,
        time: &args.time,
        outputs: &args.outputs,
        candidates: &candidates,
    };
    replays.run()
}
