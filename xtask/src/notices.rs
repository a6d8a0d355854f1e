//! The licences of the crates that are linked into what is shipped.
//!
//! Invariant: every crate that the library or the command is linked with is named, with the text of
//! its licences as its package has it, each text once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::sh;
use crate::package::{list, metadata};

/// What the file is called.
pub const NAME: &str = "THIRD-PARTY-NOTICES";
/// What the wheel of PyTorch's allocator has, and that of the simulated device.
pub const SHIPPED: [&str; 2] = ["drystone-preload", "drystone-cli"];
pub const SIMULATED: [&str; 3] = ["drystone-simcuda", "drystone-simcudart", "drystone-cli"];
/// How files with licences begin.
const LICENCES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
/// For whom, and with what.
const OPTIONS: &str =
    "--locked --features drystone-cli/parquet --filter-platform x86_64-unknown-linux-gnu";
const HEAD: &str = "Drystone's libraries and command are linked with these packages of crates.io, \
    and with Rust's standard library (MIT OR Apache-2.0, https://www.rust-lang.org). Wheels are \
    linked with LLVM's libunwind (Apache-2.0 WITH LLVM-exception, https://llvm.org) besides.\n\n";

/// Writes the file into a folder, for crates that are shipped.
pub fn write(folder: &Path, shipped: &[&str]) -> Result<()> {
    let metadata = metadata(OPTIONS)?;
    let linked = linked(&metadata, shipped)?;
    let mut text = HEAD.to_owned();
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in list(&metadata, "packages")? {
        if !linked.contains(&package["id"]) || !package["source"].is_string() {
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
    Ok(sh().write_file(folder.join(NAME), text)?)
}

/// The packages that are linked in, over any number of others.
fn linked<'a>(metadata: &'a Value, shipped: &[&str]) -> Result<HashSet<&'a Value>> {
    let nodes = list(&metadata["resolve"], "nodes")?.iter();
    let nodes: HashMap<_, _> = nodes.map(|node| (&node["id"], node)).collect();
    let packages = list(metadata, "packages")?.iter();
    let roots = packages.filter(|package| shipped.iter().any(|name| package["name"] == *name));
    let mut next: Vec<_> = roots.map(|package| &package["id"]).collect();
    let mut found = HashSet::new();
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in list(nodes.get(id).context("cargo metadata lacks a package")?, "deps")? {
            // Neither of tests nor of build scripts.
            if list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"].is_null()) {
                next.push(&dependency["pkg"]);
            }
        }
    }
    Ok(found)
}

fn licences(folder: &Path) -> Result<Vec<String>> {
    let is_licence = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        LICENCES.iter().any(|beginning| name.starts_with(beginning)) && file.is_file()
    };
    let files = sh().read_dir(folder)?.into_iter().filter(|file| is_licence(file));
    files.map(|file| Ok(sh().read_file(file)?)).collect()
}
