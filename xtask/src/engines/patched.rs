//! Burn over a cubecl whose own pools are off, by a patch of one crate (`engines/patches`).
//!
//! The patch is held against the released sources: it has to apply to them, and to build. Nothing
//! of the repository changes meanwhile: cargo notes a patched crate in `Cargo.lock`, which is put
//! back.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::toolkit::{MANIFEST, Toolkit, engines_target, sources_of};
use crate::command::{cmd, root, sh};

const CRATE: &str = "cubecl-runtime";
const PATCH: &str = "engines/patches/cubecl-runtime-0.10.0.patch";
/// What cubecl reads in the folder that a program runs in, `cubecl.toml`.
const SETTINGS: &str = "[memory]\npools = \"disabled\"\n";

/// The folder in which programs run with the pools off.
pub fn folder() -> PathBuf {
    engines_target().join("patched")
}

/// Builds the programs of burn once more, over the patched crate, and keeps them in the folder.
pub fn build(toolkit: &Toolkit) -> Result<()> {
    let (copy, patch) = (folder().join(CRATE), root().join(PATCH));
    sh().remove_path(&copy)?;
    sh().write_file(folder().join("cubecl.toml"), SETTINGS)?;
    let sources = sources_of(CRATE)?;
    cmd!("cp -r {sources} {copy}").run()?;
    cmd!("patch --quiet --strip=1 --directory {copy} --input {patch}").run()?;
    let place = format!("patch.crates-io.{CRATE}.path={:?}", copy.display().to_string());
    let lock = root().join(MANIFEST).with_file_name("Cargo.lock");
    let locked = sh().read_file(&lock)?;
    let built = toolkit.build("burn", MANIFEST, &["--config", &place]);
    sh().write_file(&lock, locked)?;
    built?;
    for name in ["burn-plain", "burn-installed"] {
        let built = engines_target().join("debug").join(name);
        fs::rename(&built, folder().join(name)).with_context(|| format!("find {name}"))?;
    }
    Ok(())
}
