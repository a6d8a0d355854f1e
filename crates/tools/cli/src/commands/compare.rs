//! `drystone compare`: traces through Drystone and PyTorch's allocators, side by side.

use super::Ended;
use super::replays::Replays;
use crate::args::{DeviceArgs, Files, Outputs, Time};
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
    device: DeviceArgs,

    #[command(flatten)]
    time: Time,

    #[command(flatten)]
    outputs: Outputs,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::all(&args.configurations)?;
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
