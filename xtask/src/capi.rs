//! The C libraries as they are shipped: `cargo xtask capi`.
//!
//! A folder to be installed anywhere: libraries, the header, and what pkg-config and CMake want to
//! know. What they must be (small, and in need of nothing but the C library) is checked by tests of
//! their crates, which are run on the very files.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::backtraces;
use crate::command::{cmd, copy, link, made_folder, root, sh, target};

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
    let library = out.join(LIBRARY);
    cmd!(
        "env DRYSTONE_LIBRARY={library} cargo test --quiet
        --package drystone-capi --package drystone-preload --test library"
    )
    .run()?;
    Ok(out)
}

/// Builds the stripped libraries, and puts them and what belongs to them into a folder, which is
/// returned.
pub fn assemble(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = made_folder(out.unwrap_or_else(|| target().join("capi")))?;
    sh().create_dir(out.join("lib"))?;
    for (package, name, shipped) in
        [("preload", "libdrystone_preload", PRELOAD), ("library", "libdrystone", VERSIONED)]
    {
        cmd!("cargo rustc --release --package drystone-{package} --crate-type staticlib").run()?;
        let script = root().join(format!("crates/{package}/{name}.ld"));
        let shipped = out.join(shipped);
        let file_name = shipped.file_name().unwrap_or_default().to_string_lossy();
        let built = target().join("release").join(&*file_name);
        let archive = target().join("release").join(name).with_extension("a");
        link_library(&archive, &script, &built)?;
        cmd!("strip --strip-unneeded -o {shipped} {built}").run()?;
    }
    link(Path::new(VERSIONED.trim_start_matches("lib/")), &out.join(LIBRARY))?;
    for path in [HEADER, TENSORRT] {
        copy(&root().join("crates/capi").join(path), &out.join(path))?;
    }
    for (name, path) in DESCRIPTIONS {
        let text = sh().read_file(Path::new("crates/library/install").join(name))?;
        let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        sh().write_file(out.join(path), text)?;
    }
    Ok(out)
}

/// Links a library from its archive, with versions for its symbols: a `cdylib` cannot have any.
fn link_library(archive: &Path, script: &Path, library: &Path) -> Result<()> {
    let name = library.file_name().unwrap_or_default();
    let object = archive.with_extension("o");
    let mut link = cmd!("cc -shared -fPIC -o {library} -Wl,-soname,{name}");
    if name.to_string_lossy().contains("preload") {
        // Where it is loaded behind the driver, too, its functions are its own.
        link = link.arg("-Wl,-Bsymbolic");
    }
    link = match backtraces::take_out(archive, &object)? {
        true => link.arg(&object).arg(archive),
        false => link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive"),
    };
    link = link.arg(format!("-Wl,--version-script={}", script.display()));
    // Never unloaded: exit and fork handlers and a program's streams point into it.
    link = link.args(["-Wl,--gc-sections,-z,now,-z,relro,-z,nodelete,--no-undefined"]);
    // The folder of the linker that Rust brings, where it brings one.
    let libraries = PathBuf::from(cmd!("rustc --print target-libdir").read()?);
    let folder = libraries.with_file_name("bin").join("gcc-ld");
    if folder.join("ld.lld").exists() {
        // Functions of equal code become one: many copies of a generic one are.
        link = link.arg("-B").arg(folder).args(["-fuse-ld=lld", "-Wl,--icf=all"]);
    }
    // Its own unwinder, so that it needs no shared library but the C library's.
    Ok(link.args(["-static-libgcc", "-lgcc_eh", "-lpthread", "-ldl", "-lm", "-lc"]).run()?)
}
