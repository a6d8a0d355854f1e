//! The licences of the crates that are linked into what is shipped.
//!
//! Invariant: every crate that the library or the command is linked with is named, with the text of
//! its licences as its package has it, each text once.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{cmd, sh};
use crate::package::{chosen, list, metadata};

pub const NAME: &str = "THIRD-PARTY-NOTICES";
/// What the wheel of PyTorch's allocator has, and that of the simulated device.
pub const SHIPPED: [&str; 2] = ["drystone-preload", "drystone-cli"];
pub const SIMULATED: [&str; 3] = ["drystone-simcuda", "drystone-simcudart", "drystone-cli"];
/// How files with licences begin.
const LICENCES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
const HEAD: &str = "Drystone's libraries and command are linked with these packages of crates.io, \
    and with Rust's standard library (MIT OR Apache-2.0, https://www.rust-lang.org). Wheels are \
    linked with LLVM's libunwind (Apache-2.0 WITH LLVM-exception, https://llvm.org) besides.\n\n";

/// Writes the file into a folder, for crates that are shipped.
pub fn write(folder: &Path, shipped: &[&str]) -> Result<()> {
    let options = chosen(shipped);
    // Neither of tests nor of build scripts.
    let tree = cmd!(
        "cargo tree --locked --target x86_64-unknown-linux-gnu --edges normal --prefix none
        {options...}"
    );
    let tree = tree.read()?;
    let linked: HashSet<_> = tree.lines().filter_map(|line| line.split(" (").next()).collect();
    let mut text = HEAD.to_owned();
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let metadata = metadata("--locked --all-features")?;
    for package in list(&metadata, "packages")? {
        let field = |key: &str| package[key].as_str().unwrap_or("not said");
        let (name, version) = (field("name"), field("version"));
        if !linked.contains(&*format!("{name} v{version}")) || package["source"].is_null() {
            continue;
        }
        text += &format!("{name} {version}: {}\n", field("license"));
        let manifest = Path::new(field("manifest_path"));
        for licence in licences(manifest.parent().context("a manifest is in a folder")?)? {
            texts.entry(licence).or_default().push(name);
        }
    }
    for (licence, packages) in texts {
        text += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), packages.join(", "), licence.trim());
    }
    Ok(sh().write_file(folder.join(NAME), text)?)
}

fn licences(folder: &Path) -> Result<Vec<String>> {
    let is_licence = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        LICENCES.iter().any(|beginning| name.starts_with(beginning)) && file.is_file()
    };
    let files = sh().read_dir(folder)?.into_iter().filter(|file| is_licence(file));
    files.map(|file| Ok(sh().read_file(file)?)).collect()
}
