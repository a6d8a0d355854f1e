//! `drystone compare`: traces through Drystone and PyTorch's allocators, side by side.

use anyhow::Result;

use super::Ended;
use super::replays::Replays;
use crate::args::{DeviceArgs, Files, Outputs};
use crate::contestants;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Also compare with PyTorch's allocator in this configuration (PYTORCH_CUDA_ALLOC_CONF);
    /// may be given several times
    #[arg(long, value_name = "KEY:VALUE,...")]
    torch_conf: Vec<String>,

    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    outputs: Outputs,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let replays = Replays {
        command: "compare",
        files: &args.files,
        device: &args.device,
        outputs: &args.outputs,
        contestants: &contestants::all(&args.torch_conf)?,
    };
    replays.run()
}
