//! The licences of the crates that are linked into what is shipped.
//!
//! Invariant: every crate that the library or the command is linked with is named, with the text of
//! its licences as its package has it, each text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::package::metadata;

/// What the file is called.
pub const NAME: &str = "THIRD-PARTY-NOTICES";
/// What the wheel of PyTorch's allocator has, and that of the simulated device.
pub const SHIPPED: [&str; 2] = ["drystone-preload", "drystone-cli"];
pub const SIMULATED: [&str; 3] = ["drystone-simcuda", "drystone-simcudart", "drystone-cli"];
/// How files with licences begin.
const LICENCES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// The whole file, for crates that are shipped.
pub fn text(shipped: &[&str]) -> Result<String> {
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let options = [&["--locked", "--features", "drystone-cli/parquet"], &platform[..]].concat();
    let metadata = metadata(&options)?;
    let linked = linked(&metadata, shipped)?;
    let mut text = "Drystone's libraries and command are linked with these packages of crates.io, \
                    and with Rust's standard library (MIT OR Apache-2.0, \
                    https://www.rust-lang.org). Wheels are linked with LLVM's libunwind \
                    (Apache-2.0 WITH LLVM-exception, https://llvm.org) besides.\n\n"
        .to_owned();
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in list(&metadata, "packages")? {
        if !linked.contains(&package["id"].to_string()) || !package["source"].is_string() {
            continue;
        }
        let field = |key: &str| package[key].as_str().unwrap_or("not said");
        text += &format!("{} {}: {}\n", field("name"), field("version"), field("license"));
        let manifest = Path::new(field("manifest_path"));
        for licence in licences(manifest.parent().context("a manifest is in a folder")?)? {
            texts.entry(licence).or_default().push(field("name"));
        }
    }
    for (licence, packages) in texts {
        text += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), packages.join(", "), licence.trim());
    }
    Ok(text)
}

/// The packages that are linked in, over any number of others.
fn linked(metadata: &Value, shipped: &[&str]) -> Result<BTreeSet<String>> {
    let nodes = list(&metadata["resolve"], "nodes")?;
    let nodes: BTreeMap<String, &Value> =
        nodes.iter().map(|node| (node["id"].to_string(), node)).collect();
    let packages = list(metadata, "packages")?.iter();
    let roots = packages.filter(|package| shipped.iter().any(|name| package["name"] == *name));
    let mut next: Vec<String> = roots.map(|package| package["id"].to_string()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = next.pop() {
        if found.contains(&id) {
            continue;
        }
        for dependency in list(nodes.get(&id).context("cargo metadata lacks a package")?, "deps")? {
            // Neither of tests nor of build scripts.
            if list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"].is_null()) {
                next.push(dependency["pkg"].to_string());
            }
        }
        found.insert(id);
    }
    Ok(found)
}

fn licences(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if LICENCES.iter().any(|beginning| name.starts_with(beginning)) && entry.path().is_file() {
            let text = fs::read_to_string(entry.path());
            found.push(text.with_context(|| format!("read {}", entry.path().display()))?);
        }
    }
    Ok(found)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no {key}"))
}
