//! Studies of many runs: `cargo xtask figures`, `score`, `bugs` and `matrix`.
//!
//! Lives here: what each needs built and installed. What is run, and what it is held against, is in
//! the script that each starts.

use std::env;
use std::path::Path;

use anyhow::Result;

use crate::capi;
use crate::command::{TORCH_VERSION, cmd, root, sh, target};
use crate::python::native_cache;
use crate::torch::{self, TorchVenv};

/// What has the models, without what it needs, which is installed for the tests already; and what
/// knows the engines of convolutions, the release that the usual PyTorch requires.
const SCORED: &str = "timm==1.0.9 nvidia-cudnn-cu13==9.19.0.56";

/// What each trace costs on devices from ample to barely enough. Calls and modelled times are those
/// of a release, which takes longer to build.
pub fn figures(arguments: &[String]) -> Result<()> {
    cmd!("cargo build --profile quick --quiet --package drystone-cli").run()?;
    let (script, program) = (root().join("xtask/figures.py"), target().join("quick/drystone"));
    // Names of files are meant from where the caller is.
    let here = env::current_dir()?;
    Ok(cmd!("env --chdir={here} python3 -B {script} {arguments...} --program {program}").run()?)
}

/// Dry runs held against what real GPUs held, which prints the tables of
/// `docs/evidence/accuracy.md`. The measurements are read from where they are, never copied.
pub fn score(arguments: &[String]) -> Result<()> {
    let TorchVenv { python, libraries } = torch::set_up(TORCH_VERSION)?.on_top("score", SCORED)?;
    let rows = target().join("score/rows");
    let score = cmd!("{python} -B python-sim/score/score.py --rows {rows} {arguments...}");
    Ok(score.env("DRYSTONE_SIM_LIBRARIES", libraries).run()?)
}

/// Public reports under each allocator: runs the programs of a folder, prints what they come to,
/// and holds that against a page.
pub fn reports(folder: &str, arguments: &[String]) -> Result<()> {
    let mut torch = torch::set_up(TORCH_VERSION)?;
    if let Ok(packages) = sh().read_file(Path::new(folder).join("packages.txt")) {
        torch = torch.on_top(folder, packages.trim())?;
    }
    let libraries = capi::assemble(None)?.join("lib");
    let script = torch.python().arg("xtask/bugs.py").arg(folder).arg(libraries).args(arguments);
    Ok(script.envs([native_cache()]).run()?)
}
