//! Burn over a cubecl whose own pools are off, by a patch of one crate (`engines/patches`).
//!
//! The patch is held against the released sources: it has to apply to them, and to build. Nothing
//! of the repository changes meanwhile: cargo notes a patched crate in `Cargo.lock`, which is put
//! back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::toolkit::{Toolkit, engines_target, manifest, sources_of};
use crate::command::{root, run};

/// The crate that is patched, and the patch.
const CRATE: &str = "cubecl-runtime";
const PATCH: &str = "engines/patches/cubecl-runtime-0.10.0.patch";

/// What cubecl reads in the folder that a program runs in.
const SETTINGS: (&str, &str) = ("cubecl.toml", "[memory]\npools = \"disabled\"\n");

/// The folder in which programs run with the pools off.
pub fn folder() -> PathBuf {
    engines_target().join("patched")
}

/// Builds the programs of burn once more, over the patched crate, and keeps them in the folder.
pub fn build(toolkit: &Toolkit) -> Result<()> {
    let sources = patched_sources()?;
    let lock = manifest().with_file_name("Cargo.lock");
    let locked = fs::read(&lock).with_context(|| format!("read {}", lock.display()))?;
    let mut cargo = toolkit.cargo()?;
    cargo.args(["build", "--package", "engine-burn", "--manifest-path"]).arg(manifest());
    cargo.arg("--target-dir").arg(engines_target());
    let place = format!("patch.crates-io.{CRATE}.path={:?}", sources.display().to_string());
    cargo.args(["--config", &place]);
    let built = run(cargo);
    fs::write(&lock, locked).with_context(|| format!("write {}", lock.display()))?;
    built?;
    for name in ["burn-plain", "burn-installed"] {
        let built = engines_target().join("debug").join(name);
        fs::rename(&built, folder().join(name)).with_context(|| format!("find {name}"))?;
    }
    let (name, text) = SETTINGS;
    fs::write(folder().join(name), text).with_context(|| format!("write {name}"))
}

/// A copy of the released sources, patched.
fn patched_sources() -> Result<PathBuf> {
    let copy = folder().join(CRATE);
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("remove {}", copy.display()))?;
    }
    fs::create_dir_all(folder()).context("make the folder of patched programs")?;
    let mut take = Command::new("cp");
    take.arg("-r").arg(sources_of(CRATE)?).arg(&copy);
    run(take)?;
    let mut patch = Command::new("patch");
    patch.args(["--quiet", "--strip=1", "--directory"]).arg(&copy);
    patch.arg("--input").arg(absolute(&root().join(PATCH))?);
    run(patch)?;
    absolute(&copy)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}
