//! What goes to crates.io: `cargo xtask package`.
//!
//! Which crates are published their manifests say. Each is packed, and built from nothing but its
//! package and those of the others, so a file that is left out is missed here and not by a user.
//! Cargo knows their order, and asks the registry all but the upload.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{cmd, sh};

/// Does all but publish them.
pub fn publish_dry_run() -> Result<()> {
    // What tests need is left out, which is told at length for each of them.
    let mut publish = cmd!("cargo publish --dry-run --quiet --allow-dirty");
    let mut clean = cmd!("cargo clean --quiet");
    for (name, version) in published()? {
        publish = publish.args(["--package", &name]);
        clean = clean.args(["--package", &name]);
        forget_unpacked(&format!("{name}-{version}"))?;
    }
    clean.run()?;
    Ok(publish.run()?)
}

/// Removes what cargo unpacked of a package when it was packed before: it would take that for the
/// package that is packed now, as it would what it compiled, since the version is the same.
fn forget_unpacked(package: &str) -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor a home folder")?.join("registry/src");
    for registry in sh().read_dir(sources).unwrap_or_default() {
        // A registry without a host is a folder of packages, as cargo makes one for this.
        if registry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"-")) {
            sh().remove_path(registry.join(package))?;
        }
    }
    Ok(())
}

/// The names and versions of the crates that may be published.
pub fn published() -> Result<Vec<(String, String)>> {
    let metadata = metadata("--no-deps")?;
    // `null` where a manifest says nothing: to any registry.
    let published = list(&metadata, "packages")?.iter().filter(|one| one["publish"].is_null());
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    Ok(published.filter_map(|it| Some((text(it, "name")?, text(it, "version")?))).collect())
}

/// Options that choose packages; the command is shipped so that it writes Parquet.
pub fn chosen<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let with_parquet: &[_] =
        if names.contains(&"drystone-cli") { &["--features", "drystone-cli/parquet"] } else { &[] };
    let names = names.iter().flat_map(|name| ["--package", name]);
    names.chain(with_parquet.iter().copied()).collect()
}

/// What cargo says of a workspace, with options in one text.
pub fn metadata(options: &str) -> Result<Value> {
    let options = options.split_whitespace();
    let told = cmd!("cargo metadata --format-version 1 {options...}").read()?;
    serde_json::from_str(&told).context("read cargo metadata")
}

/// A list of what cargo says.
pub fn list<'a>(metadata: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    metadata[key].as_array().with_context(|| format!("cargo metadata has no {key}"))
}
