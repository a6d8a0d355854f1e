//! What the shipped library is: small, in need of nothing but the C library, never unloaded.
//!
//! `DRYSTONE_LIBRARY` names the file, which `cargo xtask capi` and `cargo xtask test` build.

mod common;

use std::path::PathBuf;

use drystone_testkit::{is_self_contained, offered_by};

/// Of which 20 kB tell the order of a program and choose between handles, and 45 kB serve other
/// processes.
const BYTES_MAX: u64 = 1 << 20;

#[test]
fn library_is_small_and_needs_only_the_c_library() {
    let Some(library) = std::env::var_os("DRYSTONE_LIBRARY").map(PathBuf::from) else {
        eprintln!("skipped: DRYSTONE_LIBRARY names no library; run `cargo xtask capi`");
        return;
    };
    is_self_contained(&library, common::SONAME, BYTES_MAX).unwrap();

    // It offers what the header declares, and nothing else: no name of CUDA's.
    let header = common::root().join("crates/capi/include/drystone.h");
    let header = std::fs::read_to_string(header).unwrap();
    let number = header.split("#define DRYSTONE_ABI_VERSION ").nth(1).unwrap();
    let number = number.lines().next().unwrap();
    assert_eq!(common::SONAME, format!("libdrystone.so.{number}"));
    let version = format!("@@DRYSTONE_{number}");
    let symbols = offered_by(&library).unwrap();
    let mut offered = 0;
    for symbol in symbols.lines().filter(|&symbol| symbol != &version[2..]) {
        let Some(name) = symbol.strip_suffix(&version) else { panic!("{symbol} has no version") };
        let is_declared = header.contains(&format!("{name}("));
        assert!(name.starts_with("drystone_") && is_declared, "{symbol}");
        offered += 1;
    }
    assert!(offered >= 34, "{symbols}");
}
