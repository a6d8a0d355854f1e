//! Dry runs held against what real GPUs held: `cargo xtask score`.
//!
//! Lives here: an environment in `target/score` with timm on top of PyTorch's, and the start of
//! `python-sim/score`, which prints the tables of `docs/accuracy.md`. The measurements are read
//! from where they are, never copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{TORCH_VERSION, root, run};
use crate::simcuda::target;
use crate::torch;

/// What has the models, without what it needs, which is installed for the tests already.
const TIMM: &str = "timm==1.0.31";

/// How much of the measurements to look at.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of `timm.csv` and `mlp.csv`.
    #[arg(long, default_value = "../shared/truth")]
    truth: PathBuf,
    /// How many models of timm, a sample.
    #[arg(long, default_value_t = 300)]
    timm: u32,
    /// How many perceptrons, a sample.
    #[arg(long, default_value_t = 500)]
    mlp: u32,
    /// Chooses the samples.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// Prints the tables.
pub fn score(args: &Args) -> Result<()> {
    let truth = root().join(&args.truth);
    if !truth.join("timm.csv").exists() {
        bail!("there are no measurements in {}: name their folder by --truth", truth.display());
    }
    let torch = torch::set_up(TORCH_VERSION)?;
    let python = install(&torch.python)?;
    let mut score = Command::new(python);
    score.env("DRYSTONE_SIM_LIBRARIES", &torch.libraries);
    score.arg("-B").arg(root().join("python-sim/score/score.py")).arg(truth);
    score.args([args.timm, args.mlp, args.seed].map(|number| number.to_string()));
    run(score)
}

/// An interpreter that has timm, and sees the packages of PyTorch's.
fn install(torch: &Path) -> Result<PathBuf> {
    let venv = target().join("score");
    let python = venv.join("bin/python");
    let installed = venv.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == TIMM) {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    run(make)?;
    let packages = torch::site_packages(&python)?.join("torch.pth");
    fs::write(&packages, torch::site_packages(torch)?.display().to_string())
        .with_context(|| format!("write {}", packages.display()))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", TIMM]);
    run(pip)?;
    fs::write(&installed, TIMM).with_context(|| format!("write {}", installed.display()))?;
    Ok(python)
}
