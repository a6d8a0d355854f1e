//! Every test, of every crate: `cargo xtask test`.
//!
//! Lives here: the parts, cheap ones first, and what tests find in their environment. The simulated
//! CUDA libraries come before any real ones; what cannot be had on this machine is left out aloud.

use anyhow::{Context, Result};

use crate::command::{TORCH_VERSION, cmd, path_after, root};
use crate::parts::{self, Part};
use crate::{capi, python, simcuda, suite, torch, venv};

/// Random runs of each test that counts them; `cargo test` alone makes fewer.
const SEEDS: &str = "10000";

const PARTS: [Part; 7] = [
    ("house rules and unit tests", unit),
    ("simulated CUDA libraries are built", || simcuda::build().map(drop)),
    ("C library is built as shipped", || capi::assemble(None).map(drop)),
    ("PyTorch is installed (2.3 GB, once)", || torch::or_skipped(TORCH_VERSION).map(drop)),
    ("all tests of all crates, on the simulated CUDA", all),
    ("PyTorch on the simulated CUDA", torch::test),
    ("Python package", || python::test(TORCH_VERSION)),
];

/// What all parts write where nothing is built yet: 6.2 GiB stay, 2.6 are PyTorch's while it is
/// unpacked. Measured on x86-64 with Rust 1.95 and PyTorch 2.11.
const DISK_BYTES: u64 = 9 << 30;

/// Runs them all; fails at the end if any did.
pub fn test() -> Result<()> {
    let shortage = shortage_of_disk();
    shortage.iter().for_each(|shortage| eprintln!("warning: {shortage}"));
    let outcome = parts::run(&PARTS);
    match shortage {
        // What a full disk breaks seldom says so.
        Some(shortage) => outcome.context(shortage),
        None => outcome,
    }
}

/// Says so if the disk may be full before the tests end.
fn shortage_of_disk() -> Option<String> {
    let disk = rustix::fs::statvfs(root()).ok()?;
    let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    let (free, wanted) = (free_bytes >> 20, DISK_BYTES >> 20);
    (free < wanted).then(|| {
        format!("the disk has {free} MiB free; from nothing, all tests write {wanted} MiB")
    })
}

/// What needs nothing but the crates: a mistake shows here first.
fn unit() -> Result<()> {
    suite::run(cmd!("cargo test --workspace --no-fail-fast --quiet --lib --bins --test house"))?;
    // What is built only where a program asks for it.
    suite::run(cmd!("cargo test --quiet --package drystone --all-features --test features"))
}

fn all() -> Result<()> {
    let simulated = simcuda::build()?;
    let mut tests = cmd!("cargo test --workspace --no-fail-fast");
    tests = tests.env("LD_LIBRARY_PATH", path_after(&simulated, "LD_LIBRARY_PATH")?);
    tests = tests.env("DRYSTONE_SIMCUDA", simulated);
    tests = tests.env("DRYSTONE_LIBRARY", capi::assemble(None)?.join(capi::LIBRARY));
    if std::env::var_os("DRYSTONE_SEEDS").is_none() {
        tests = tests.env("DRYSTONE_SEEDS", SEEDS);
    }
    // PyTorch's own snapshot viewer, which needs nothing else of it. Without a network the test
    // that needs it says that it skips.
    if let Ok((_, python)) = torch::install(TORCH_VERSION) {
        let packages = venv::site_packages(&python)?;
        tests = tests.env("MEMORY_VIZ", packages.join("torch/cuda/_memory_viz.py"));
    }
    suite::run(tests)
}
