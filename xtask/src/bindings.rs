//! `cargo xtask bindings`: that the crates on cudarc compile with every CUDA they run on.
//!
//! Programs choose the version of CUDA's bindings, and of cudarc from our floor up; names and
//! layouts differ between them. Builds in folders of its own, so that nothing else is built anew.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{root, run};

/// CUDA 12.0 and all after it that cudarc has bindings for.
const VERSIONS: [&str; 14] = [
    "12000", "12010", "12020", "12030", "12040", "12050", "12060", "12080", "12090", "13000",
    "13010", "13020", "13030", "13040",
];

/// The oldest cudarc that `Cargo.toml` admits: engines pin it.
const CUDARC_FLOOR: &str = "0.19.5";

pub(crate) fn bindings() -> Result<()> {
    let folder = root().join("target/bindings");
    for version in VERSIONS {
        let mut check = Command::new("cargo");
        check.args(["check", "--quiet", "--package", "drystone-cudarc"]);
        check.env("CUDARC_CUDA_VERSION", version).env("CARGO_TARGET_DIR", &folder);
        run(check)?;
    }
    floor(&folder)
}

/// A package that uses the crate beside the oldest cudarc. Cargo takes one for both.
fn floor(target: &Path) -> Result<()> {
    let folder = root().join("target/cudarc-floor");
    let source = folder.join("src");
    std::fs::create_dir_all(&source).with_context(|| format!("make {}", source.display()))?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"cudarc-floor\"\nversion = \"0.0.0\"\n\
         edition = \"2024\"\n[dependencies]\ncudarc = {{ version = \"={CUDARC_FLOOR}\", \
         default-features = false }}\ndrystone-cudarc = {{ path = \"../../crates/cudarc\" }}\n"
    );
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    write("Cargo.toml", &manifest)?;
    write("src/lib.rs", "//! Nothing: the dependencies are what is checked.\n")?;
    // All other dependencies as they are locked here.
    let lock = root().join("Cargo.lock");
    std::fs::copy(&lock, folder.join("Cargo.lock"))
        .with_context(|| format!("copy {}", lock.display()))?;
    let mut check = Command::new("cargo");
    check.args(["check", "--quiet"]).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    run(check)
}
