//! What the shipped library is: in need of nothing but the C library, never unloaded, and seen by
//! no process without CUDA.
//!
//! `DRYSTONE_LIBRARY` names the file beside it, which `cargo xtask capi` and `cargo xtask test`
//! build.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;
use std::process::Command;

use drystone_testkit::{describe, is_self_contained, offered_by};

use common::{Program, folder, library};

/// Of which 60 kB serve other processes, 15 kB libraries that are loaded before it, and 15 kB those
/// that take a block for one allocation.
const BYTES_MAX: u64 = 1_210_000;

/// Names of CUDA's that are noted or passed on, and not worth a row in the document; and those that
/// it tells of by what they do: they are tried again after Drystone released unused memory. And
/// variants of what it tells of libraries.
const NOT_TOLD: [&str; 17] = [
    "cuMemcpy",
    "cuMemset",
    "ibv_",
    "cuFileBuf",
    "cuFileDriverClose",
    "ncclComm",
    "nvshmemx_buffer",
    "cuCtx",
    "cuGetProcAddress",
    "cuModule",
    "cuLibrary",
    "cuKernelGetFunction",
    "cuFuncLoad",
    "cuLaunch",
    "cuGraph",
    "cuEventCreate",
    "cuDevicePrimaryCtxRetain",
];

#[test]
fn library_is_small_and_needs_only_the_c_library() {
    let named = std::env::var_os("DRYSTONE_LIBRARY").map(PathBuf::from);
    let Some(library) = named.map(|path| path.with_file_name("libdrystone_preload.so")) else {
        eprintln!("skipped: DRYSTONE_LIBRARY names no library; run `cargo xtask capi`");
        return;
    };
    is_self_contained(&library, "libdrystone_preload.so", BYTES_MAX).unwrap();

    // Beside the C interface it has the driver's functions that the document tells of, `dlsym`, and
    // nothing of the runtime's.
    let page = std::fs::read_to_string(folder().join("../../docs/use/preload.md")).unwrap();
    let symbols = offered_by(&library).unwrap();
    let mut of_cuda = 0;
    for symbol in symbols.lines().filter(|name| !name.starts_with("drystone_")) {
        of_cuda += usize::from(symbol != "dlsym");
        let name = symbol.trim_end_matches("_ptsz");
        let name = name.rsplit_once("_v").map_or(name, |(name, _)| name);
        let is_told = NOT_TOLD.iter().any(|family| name.starts_with(family))
            || page.contains(&format!("`{name}`"));
        assert!(is_told, "docs/use/preload.md lacks {name}");
    }
    assert!(of_cuda > 40 && !symbols.contains("cuda"), "{symbols}");
}

#[test]
fn programs_without_cuda_do_not_notice() {
    let output = Command::new("true").env("LD_PRELOAD", library()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", describe(&output));
    let Some(program) = Program::new("without_cuda.c", &["-rdynamic"]) else { return };
    program.passes(Some(library()), "");
    program.passes(None, "");
}
