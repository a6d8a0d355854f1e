//! Dry runs held against what real GPUs held: `cargo xtask score`.
//!
//! Lives here: an environment in `target/score` with timm and NVIDIA's cuDNN on top of PyTorch's,
//! and the start of `python-sim/score`, which prints the tables of `docs/evidence/accuracy.md`. The
//! measurements are read from where they are, never copied.

use anyhow::Result;

use crate::command::{TORCH_VERSION, cmd, target};
use crate::torch::{self, TorchVenv};

/// What has the models, without what it needs, which is installed for the tests already; and what
/// knows the engines of convolutions, the release that the usual PyTorch requires.
const PACKAGES: &str = "timm==1.0.9 nvidia-cudnn-cu13==9.19.0.56";

pub fn score(arguments: &[String]) -> Result<()> {
    let TorchVenv { python, libraries } =
        torch::set_up(TORCH_VERSION)?.on_top("score", PACKAGES)?;
    let rows = target().join("score/rows");
    let score = cmd!("{python} -B python-sim/score/score.py --rows {rows} {arguments...}");
    Ok(score.env("DRYSTONE_SIM_LIBRARIES", libraries).run()?)
}
