//! How `libdrystone.so` is linked, and `libdrystone_preload.so`, whose package runs this, too.
//!
//! Neither is ever unloaded, since exit and fork handlers and a program's streams point into it;
//! and each carries its unwinder, so that it needs no shared library but the C library's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let name = match env::var("CARGO_PKG_NAME").as_deref() {
        Ok("drystone-preload") => {
            // Where it is loaded behind the driver, too, its functions are its own.
            println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
            "libdrystone_preload.so"
        }
        // The number is that of the binary interface, `DRYSTONE_ABI_VERSION`.
        _ => "libdrystone.so.1",
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now,-z,relro");
    if is_linked_by_lld() {
        // Functions of equal code become one: many copies of a generic one are.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
    }
    if has_static_unwinder() {
        let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        if let Err(error) = prefer_static_unwinder(&folder) {
            println!("cargo::warning=the unwinder is linked dynamically: {error}");
        }
    }
}

/// Whether Rust brings its own linker for the target; other linkers do not know all of its options.
fn is_linked_by_lld() -> bool {
    let is = |what: &str, value: &str| env::var(what).as_deref() == Ok(value);
    is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_ENV", "gnu") && !has_own_linker()
}

/// Whether another linker was named, such as one that links for an older C library. It answers for
/// the unwinder, too.
fn has_own_linker() -> bool {
    env::var_os("RUSTC_LINKER").is_some()
}

/// Whether the C compiler brings its unwinder as a static library, too.
fn has_static_unwinder() -> bool {
    if has_own_linker() {
        return false;
    }
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let is_path = |text: &[u8]| Path::new(String::from_utf8_lossy(text).trim()).is_absolute();
    found.is_ok_and(|output| is_path(&output.stdout))
}

/// The standard library asks for `libgcc_s`. A linker script of that name, found first, answers
/// with the static library.
fn prefer_static_unwinder(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")?;
    println!("cargo::rustc-link-search=native={}", folder.display());
    Ok(())
}
