//! Dry runs held against what real GPUs held: `cargo xtask score`.
//!
//! Lives here: an environment in `target/score` with timm and NVIDIA's cuDNN on top of PyTorch's,
//! and the start of `python-sim/score`, which prints the tables of `docs/evidence/accuracy.md`. The
//! measurements are read from where they are, never copied.

use std::path::PathBuf;
use std::thread;

use anyhow::{Result, bail};

use crate::command::{TORCH_VERSION, cmd, root, target};
use crate::torch::{self, TorchVenv};

/// What has the models, without what it needs, which is installed for the tests already; and what
/// knows the engines of convolutions, the release that the usual PyTorch requires.
const PACKAGES: &str = "timm==1.0.9 nvidia-cudnn-cu13==9.19.0.56";

/// How much of the measurements to look at.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of `timm.csv` and `mlp.csv`.
    #[arg(long, default_value = "../shared/truth")]
    truth: PathBuf,
    /// How many runs of timm's models, a sample; all unless said otherwise.
    #[arg(long, default_value_t = u32::MAX)]
    timm: u32,
    /// How many perceptrons, a sample; all unless said otherwise.
    #[arg(long, default_value_t = u32::MAX)]
    mlp: u32,
    /// Chooses the samples, and the rows that are not judged.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// How many models are run at once; as many as there are cores unless said otherwise. With 0
    /// the rows that ran last are judged again.
    #[arg(long)]
    jobs: Option<usize>,
    /// Goes on where an earlier run of this seed ended, in place of running all rows anew.
    #[arg(long)]
    resume: bool,
}

/// Prints the tables.
pub fn score(args: &Args) -> Result<()> {
    let truth = root().join(&args.truth);
    if !truth.join("timm.csv").exists() {
        bail!("there are no measurements in {}: name their folder by --truth", truth.display());
    }
    let TorchVenv { python, libraries } =
        torch::set_up(TORCH_VERSION)?.on_top("score", PACKAGES)?;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or_else(cores).to_string();
    let [timm, mlp, seed] = [args.timm, args.mlp, args.seed].map(|number| number.to_string());
    let (rows, which) = (target().join("score/rows"), if args.resume { "rest" } else { "new" });
    let script = "python-sim/score/score.py";
    let score = cmd!("{python} -B {script} {truth} {timm} {mlp} {seed} {jobs} {which} {rows}");
    Ok(score.env("DRYSTONE_SIM_LIBRARIES", libraries).run()?)
}
