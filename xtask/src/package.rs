//! What goes to crates.io: `cargo xtask package`.
//!
//! Which crates are published their manifests say. Each is packed, and built from nothing but its
//! package and those of the others, so a file that is left out is missed here and not by a user.
//! Cargo knows their order, and asks the registry all but the upload.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{run, said};

/// Does all but publish them.
pub fn publish_dry_run() -> Result<()> {
    let mut package = Command::new("cargo");
    // What tests need is left out, which is told at length for each of them.
    package.args(["publish", "--dry-run", "--quiet", "--allow-dirty"]);
    for (name, version) in published()? {
        package.args(["--package", &name]);
        forget_unpacked(&format!("{name}-{version}"))?;
    }
    run(package)
}

/// Removes what cargo unpacked of a package when it was packed before: it would take that for the
/// package that is packed now, since the version is the same.
fn forget_unpacked(package: &str) -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor a home folder")?.join("registry/src");
    let Ok(registries) = fs::read_dir(&sources) else { return Ok(()) };
    for registry in registries {
        let registry = registry.with_context(|| format!("read {}", sources.display()))?;
        // A registry without a host is a folder of packages, as cargo makes one for this.
        if registry.file_name().as_encoded_bytes().starts_with(b"-") {
            let unpacked = registry.path().join(package);
            match fs::remove_dir_all(&unpacked) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("remove {}", unpacked.display()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The names and versions of the crates that may be published.
pub fn published() -> Result<Vec<(String, String)>> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    // `null` where a manifest says nothing: to any registry.
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    Ok(published.filter_map(|it| Some((text(it, "name")?, text(it, "version")?))).collect())
}

/// What cargo says of the workspace.
pub fn metadata(options: &[&str]) -> Result<Value> {
    let mut ask = Command::new("cargo");
    ask.args(["metadata", "--format-version", "1"]).args(options);
    serde_json::from_str(&said(ask)?).context("read cargo metadata")
}
