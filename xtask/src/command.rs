//! Running other programs: in the repository's root, shown before they run, and an error if they
//! fail.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The PyTorch whose snapshots are written and whose viewer must read them.
pub const TORCH_VERSION: &str = "2.11.0";

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs cargo.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(arguments);
    run(command)
}

/// Installs a command of cargo's unless it is there.
pub fn install(name: &str) -> Result<()> {
    let found = Command::new("cargo").args([name, "--version"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    cargo(&["install", "--locked", &format!("cargo-{name}")])
}

/// Runs a command in the repository's root and fails if it does.
pub fn run(mut command: Command) -> Result<()> {
    let shown = in_root(&mut command);
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}

/// Shows a command that will run, in the repository's root unless it names a folder.
pub fn in_root(command: &mut Command) -> String {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let shown = format!("{command:?}").replace('"', "");
    eprintln!("$ {shown}");
    shown
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
