//! What each trace costs on devices from ample to barely enough: `cargo xtask figures`.
//!
//! Lives here: the build of the command `drystone`. Which replays are made, and what they are held
//! against, is in `xtask/figures.py`.

use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, root, run, target};

/// Built in a fraction of the time that a release takes: calls and modelled times are the same.
const PROFILE: &str = "quick";

/// Replays what the arguments ask for.
pub fn figures(arguments: &[String]) -> Result<()> {
    cargo(&["build", "--profile", PROFILE, "--quiet", "--package", "drystone-cli"])?;
    let mut python = Command::new("python3");
    python.arg("-B").arg(root().join("xtask/figures.py")).args(arguments);
    python.arg("--program").arg(target().join(PROFILE).join("drystone"));
    // Names of files are meant from where the caller is.
    python.current_dir(".");
    run(python)
}
