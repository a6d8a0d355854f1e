//! The C library as it is shipped: `cargo xtask capi`.
//!
//! What it must be (small, and in need of nothing but the C library) is checked by a test of its
//! crate, which is run on the very file.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, root, run};
use crate::simcuda::target;

const NAME: &str = "libdrystone.so";
/// Where the library is in the folder.
pub const LIBRARY: &str = "lib/libdrystone.so";
/// Where its header is, in the folder and in the crate.
pub const HEADER: &str = "include/drystone.h";

/// Assembles the folder, checks the library in it, and returns the folder.
pub fn build(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = assemble(out)?;
    let mut check = Command::new("cargo");
    check.args(["test", "--quiet", "--package", "drystone-capi", "--test", "library"]);
    check.env("DRYSTONE_LIBRARY", out.join(LIBRARY));
    run(check)?;
    Ok(out)
}

/// Builds the stripped library, and puts it and its header into a folder, which is returned.
pub fn assemble(out: Option<PathBuf>) -> Result<PathBuf> {
    cargo(&["build", "--release", "--package", "drystone-capi"])?;
    let out = out.unwrap_or_else(|| target().join("capi"));
    let (libraries, headers) = (out.join("lib"), out.join("include"));
    for folder in [&libraries, &headers] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let library = out.join(LIBRARY);
    let mut strip = Command::new("strip");
    strip.arg("--strip-unneeded").arg("-o").arg(&library).arg(target().join("release").join(NAME));
    run(strip)?;
    let header = out.join(HEADER);
    fs::copy(root().join("crates/capi").join(HEADER), &header)
        .with_context(|| format!("write {}", header.display()))?;
    out.canonicalize().with_context(|| format!("find {}", out.display()))
}
