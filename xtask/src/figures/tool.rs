//! The `drystone` command, as it was just built.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, root};

/// Built in a fraction of the time that a release takes: calls and modelled times are the same.
const PROFILE: &str = "quick";

/// Builds it.
pub fn build() -> Result<()> {
    cargo(&["build", "--profile", PROFILE, "--quiet", "--package", "drystone-cli"])
}

/// Runs it in the repository's root.
pub fn drystone() -> Command {
    let mut command = Command::new(root().join("target").join(PROFILE).join("drystone"));
    command.current_dir(root());
    command
}

/// The traces of the JSON report that it prints with these further arguments.
pub fn report(mut command: Command) -> Result<Vec<Value>> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start drystone")?;
    // 1 says that something was refused, which is a figure here.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("{command:?} failed: {}", output.status);
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Ok(report["traces"].as_array().cloned().unwrap_or_default())
}
