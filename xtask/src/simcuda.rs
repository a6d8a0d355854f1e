//! The simulated libraries: `cargo xtask simcuda`.
//!
//! A `cdylib` of Rust cannot give its symbols versions, so the crates are static libraries and the
//! shared ones are linked from them with `cc`. A file `link/NAME.ld` in a crate's folder makes the
//! library `NAME` of that crate: a script that says what is exported under which version. A file
//! `NAME.names` beside it says which function a name means there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::command::{files_of, link, made_folder, root, target};
use crate::toolchain::Toolchain;

/// Folders of the crates, in the order of linking: later ones import from `libcuda.so.1`.
const CRATES: [&str; 2] = ["simcuda", "simcudart"];

/// Builds the libraries in the usual folder and returns it.
pub fn build() -> Result<PathBuf> {
    build_in(target().join("simcuda"), &Toolchain::local())
}

/// Builds the libraries in a folder and returns it by its whole name.
pub fn build_in(out: PathBuf, toolchain: &Toolchain) -> Result<PathBuf> {
    let built = toolchain.cargo(&["drystone-simcuda", "drystone-simcudart"])?;
    let out = made_folder(out)?;
    for name in CRATES {
        let archive = built.join(format!("lib{name}.a"));
        for script in files_of(&root().join("crates/lab").join(name).join("link"), "ld")? {
            link_library(toolchain, &archive, &script, &out, name != CRATES[0])?;
        }
    }
    // What programs open that were linked against the driver without its version.
    link(Path::new("libcuda.so.1"), &out.join("libcuda.so"))?;
    Ok(out)
}

/// Links the library that a script is for, unless it is newer than what it is made of.
fn link_library(
    toolchain: &Toolchain,
    archive: &Path,
    script: &Path,
    out: &Path,
    imports_driver: bool,
) -> Result<()> {
    let name = script.file_stem().context("a script has a name")?.to_string_lossy();
    let library = out.join(&*name);
    let made = modified(&library);
    let parts = [archive, script, &script.with_extension("names")].map(modified);
    if parts.iter().all(|part| made > *part) {
        return Ok(());
    }
    // A running program keeps the library it has mapped: the new one takes its place whole.
    let fresh = out.join(format!("{name}.new"));
    let mut link = toolchain.linker(archive, script, &library)?;
    link = link.arg("-o").arg(&fresh).arg(format!("-Wl,-soname,{name}"));
    link = link.args(["-Wl,--gc-sections", "-Wl,-z,now", "-Wl,-z,nodelete", "-Wl,--no-undefined"]);
    if imports_driver {
        link = link.arg("-Wl,-rpath,$ORIGIN").arg(out.join("libcuda.so.1"));
    }
    link.run()?;
    fs::rename(&fresh, &library).with_context(|| format!("make {}", library.display()))
}

/// When a file was written, if it is there.
fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}
