//! The C libraries as they are shipped: `cargo xtask capi`.
//!
//! What they must be (small, and in need of nothing but the C library) is checked by tests of their
//! crates, which are run on the very files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, root, run};
use crate::simcuda::target;

/// Where the library is in the folder.
pub const LIBRARY: &str = "lib/libdrystone.so";
/// Where the one is that is preloaded.
pub const PRELOAD: &str = "lib/libdrystone_preload.so";
/// Where its header is, in the folder and in the crate.
pub const HEADER: &str = "include/drystone.h";

/// Assembles the folder, checks the libraries in it, and returns the folder.
pub fn build(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = assemble(out)?;
    let mut check = Command::new("cargo");
    check.args(["test", "--quiet", "--package", "drystone-capi", "--package", "drystone-preload"]);
    check.args(["--test", "library"]);
    check.env("DRYSTONE_LIBRARY", out.join(LIBRARY));
    run(check)?;
    Ok(out)
}

/// Builds the stripped libraries, and puts them and the header into a folder, which is returned.
pub fn assemble(out: Option<PathBuf>) -> Result<PathBuf> {
    let packages = ["--package", "drystone-library", "--package", "drystone-preload"];
    cargo(&[&["build", "--release"], &packages[..]].concat())?;
    let out = out.unwrap_or_else(|| target().join("capi"));
    let (libraries, headers) = (out.join("lib"), out.join("include"));
    for folder in [&libraries, &headers] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    for library in [LIBRARY, PRELOAD].map(|library| out.join(library)) {
        let built = target().join("release").join(library.file_name().unwrap_or_default());
        let mut strip = Command::new("strip");
        strip.arg("--strip-unneeded").arg("-o").arg(&library).arg(built);
        run(strip)?;
    }
    let header = out.join(HEADER);
    fs::copy(root().join("crates/capi").join(HEADER), &header)
        .with_context(|| format!("write {}", header.display()))?;
    out.canonicalize().with_context(|| format!("find {}", out.display()))
}
