//! Every test, of every crate: `cargo xtask test`.
//!
//! Lives here: the parts, cheap ones first, and what tests find in their environment. The simulated
//! CUDA libraries come before any real ones; what cannot be had on this machine is left out aloud.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{TORCH_VERSION, path_after, root};
use crate::parts::{self, Outcome, Part};
use crate::{capi, python, simcuda, suite, torch, venv};

/// Random runs of each test that counts them; `cargo test` alone makes fewer.
const SEEDS: &str = "10000";

const PARTS: [Part; 7] = [
    ("house rules and unit tests", unit),
    ("simulated CUDA libraries are built", || simcuda::build().map(|_| Outcome::Passed)),
    ("C library is built as shipped", || capi::assemble(None).map(|_| Outcome::Passed)),
    ("PyTorch is installed (2.3 GB, once)", install),
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
    (free_bytes < DISK_BYTES).then(|| {
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "the disk has {} MiB free; from nothing, all tests write {} MiB",
            mib(free_bytes),
            mib(DISK_BYTES)
        )
    })
}

/// What needs nothing but the crates: a mistake shows here first.
fn unit() -> Result<Outcome> {
    let mut units = Command::new("cargo");
    units.args(["test", "--workspace", "--no-fail-fast", "--quiet"]);
    units.args(["--lib", "--bins", "--test", "tidy"]);
    suite::run(units)?;
    // What is built only where a program asks for it.
    let mut features = Command::new("cargo");
    features.args(["test", "--quiet", "--package", "drystone", "--all-features"]);
    features.args(["--test", "features"]);
    suite::run(features)?;
    Ok(Outcome::Passed)
}

fn all() -> Result<Outcome> {
    let simulated = simcuda::build()?;
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    tests.env("LD_LIBRARY_PATH", path_after(&simulated, "LD_LIBRARY_PATH")?);
    tests.env("DRYSTONE_SIMCUDA", simulated);
    tests.env("DRYSTONE_LIBRARY", capi::assemble(None)?.join(capi::LIBRARY));
    if std::env::var_os("DRYSTONE_SEEDS").is_none() {
        tests.env("DRYSTONE_SEEDS", SEEDS);
    }
    match memory_viz() {
        Ok(path) => {
            tests.env("MEMORY_VIZ", path);
        }
        // Without a network the test that needs it says that it skips.
        Err(error) => eprintln!("PyTorch's viewer is not at hand: {error:#}"),
    }
    suite::run(tests)?;
    Ok(Outcome::Passed)
}

/// Without a network there is none, and what needs it skips.
fn install() -> Result<Outcome> {
    Ok(match torch::install(TORCH_VERSION) {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Skipped(format!("{error:#}")),
    })
}

/// PyTorch's own snapshot viewer, which needs nothing else of it.
fn memory_viz() -> Result<PathBuf> {
    let (_, python) = torch::install(TORCH_VERSION)?;
    let path = venv::site_packages(&python)?.join("torch/cuda/_memory_viz.py");
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}
