//! What goes to crates.io: `cargo xtask package`.
//!
//! Which crates are published their manifests say. Each is packed, and built from nothing but its
//! package and those of the others, so a file that is left out is missed here and not by a user.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{root, run};

/// Packs them all.
pub fn package() -> Result<()> {
    let mut package = Command::new("cargo");
    // What tests need is left out, which is told at length for each of them.
    package.args(["package", "--quiet", "--allow-dirty"]);
    for name in published()? {
        package.args(["--package", &name]);
    }
    run(package)
}

/// The names of the crates that may be published.
fn published() -> Result<Vec<String>> {
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let output = metadata.output().context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    // `null` where a manifest says nothing: to any registry.
    let names = packages.iter().filter(|package| package["publish"].is_null());
    Ok(names.filter_map(|package| package["name"].as_str()).map(str::to_owned).collect())
}
