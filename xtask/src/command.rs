//! Running other programs: in the repository's root, shown before they run, and an error if they
//! fail.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
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

/// What a command prints that runs in the repository's root, unless it names a folder.
pub fn said(mut command: Command) -> Result<String> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The folders of a variable such as `PATH`, after one that is looked in first.
pub fn path_after(first: &Path, variable: &str) -> Result<OsString> {
    let others = std::env::var_os(variable).unwrap_or_default();
    let all = [first.to_path_buf()].into_iter().chain(std::env::split_paths(&others));
    Ok(std::env::join_paths(all)?)
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
