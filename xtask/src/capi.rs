//! The C libraries as they are shipped: `cargo xtask capi`.
//!
//! A folder to be installed anywhere: libraries, the header, and what pkg-config and CMake want to
//! know. What they must be (small, and in need of nothing but the C library) is checked by tests of
//! their crates, which are run on the very files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::backtraces;
use crate::command::{cargo, root, run, said, target};

/// Where the library is in the folder, by the name that linkers look for.
pub const LIBRARY: &str = "lib/libdrystone.so";
/// The same by the name that programs look for: with the number of the binary interface.
pub const VERSIONED: &str = "lib/libdrystone.so.1";
/// Where the one is that is preloaded.
pub const PRELOAD: &str = "lib/libdrystone_preload.so";
/// Where its header is, in the folder and in the crate.
pub const HEADER: &str = "include/drystone.h";
/// Under `include` beside it, for C++ programs with TensorRT.
const TENSORRT: &str = "include/drystone_tensorrt.hpp";

/// What build systems are told, in `crates/library/install` and in the folder.
const DESCRIPTIONS: [(&str, &str); 3] = [
    ("drystone.pc", "lib/pkgconfig/drystone.pc"),
    ("drystone-config.cmake", "lib/cmake/drystone/drystone-config.cmake"),
    ("drystone-config-version.cmake", "lib/cmake/drystone/drystone-config-version.cmake"),
];

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

/// Builds the stripped libraries, and puts them and what belongs to them into a folder, which is
/// returned.
pub fn assemble(out: Option<PathBuf>) -> Result<PathBuf> {
    for package in ["drystone-preload", "drystone-library"] {
        cargo(&["rustc", "--release", "--package", package, "--crate-type", "staticlib"])?;
    }
    let out = out.unwrap_or_else(|| target().join("capi"));
    for (_, path) in DESCRIPTIONS.iter().chain(&[("", HEADER), ("", LIBRARY)]) {
        let folder = out.join(path);
        let folder = folder.parent().unwrap_or(&out);
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let built = target().join("release");
    for (archive, script, name, shipped) in [
        ("libdrystone.a", "crates/library/libdrystone.ld", "libdrystone.so.1", VERSIONED),
        (
            "libdrystone_preload.a",
            "crates/preload/libdrystone_preload.ld",
            "libdrystone_preload.so",
            PRELOAD,
        ),
    ] {
        link(&built.join(archive), &root().join(script), &built.join(name))?;
        strip(&built.join(name), &out.join(shipped))?;
    }
    let plain = out.join(LIBRARY);
    let _ = fs::remove_file(&plain);
    symlink(Path::new(VERSIONED).file_name().unwrap_or_default(), &plain)
        .with_context(|| format!("make {}", plain.display()))?;
    for path in [HEADER, TENSORRT] {
        let header = root().join("crates/capi").join(path);
        fs::copy(&header, out.join(path)).with_context(|| format!("copy {}", header.display()))?;
    }
    for (name, path) in DESCRIPTIONS {
        let source = root().join("crates/library/install").join(name);
        let text = fs::read_to_string(&source);
        let text = text.with_context(|| format!("read {}", source.display()))?;
        let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(out.join(path), text).with_context(|| format!("write {path}"))?;
    }
    out.canonicalize().with_context(|| format!("find {}", out.display()))
}

/// Links a library from its archive, with versions for its symbols: a `cdylib` cannot have any.
fn link(archive: &Path, script: &Path, library: &Path) -> Result<()> {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    let object = archive.with_extension("o");
    let mut link = Command::new("cc");
    link.args(["-shared", "-fPIC", "-o"]).arg(library);
    if name.contains("preload") {
        // Where it is loaded behind the driver, too, its functions are its own.
        link.arg("-Wl,-Bsymbolic");
    }
    link.arg(format!("-Wl,-soname,{name}"));
    if backtraces::take_out(archive, &object)? {
        link.arg(&object).arg(archive);
    } else {
        link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    }
    link.arg(format!("-Wl,--version-script={}", script.display()));
    // Never unloaded: exit and fork handlers and a program's streams point into it.
    link.args(["-Wl,--gc-sections", "-Wl,-z,now,-z,relro,-z,nodelete", "-Wl,--no-undefined"]);
    if let Some(folder) = rusts_linker()? {
        // Functions of equal code become one: many copies of a generic one are.
        link.arg("-B").arg(folder).args(["-fuse-ld=lld", "-Wl,--icf=all"]);
    }
    // Its own unwinder, so that it needs no shared library but the C library's.
    link.args(["-static-libgcc", "-lgcc_eh", "-lpthread", "-ldl", "-lm", "-lc"]);
    run(link)
}

/// The folder of the linker that Rust brings, where it brings one.
fn rusts_linker() -> Result<Option<PathBuf>> {
    let mut ask = Command::new("rustc");
    ask.args(["--print", "target-libdir"]);
    let folder = Path::new(said(ask)?.trim()).with_file_name("bin").join("gcc-ld");
    Ok(folder.join("ld.lld").exists().then_some(folder))
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.arg("--strip-unneeded").arg("-o").arg(to).arg(from);
    run(strip)
}
