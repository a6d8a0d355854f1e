//! Every test, of every crate: `cargo xtask test`.
//!
//! Lives here: what the tests find in their environment. The simulated CUDA libraries are built
//! first, and come before any real ones; what cannot be had on this machine is left out aloud.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{TORCH_VERSION, python, root, run, simcuda, torch};

/// Runs them all, and says at the end whether any failed.
pub fn test() -> Result<()> {
    let simulated = simcuda::build()?;
    let mut paths = vec![simulated.clone()];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    tests.env("LD_LIBRARY_PATH", std::env::join_paths(paths)?).env("DRYSTONE_SIMCUDA", simulated);
    match memory_viz() {
        Ok(path) => {
            tests.env("MEMORY_VIZ", path);
        }
        // Without a network the test that needs it says that it skips.
        Err(error) => eprintln!("PyTorch's viewer is not at hand: {error:#}"),
    }
    let (all, torch, python) = (run(tests), torch::test(), python::test(TORCH_VERSION));
    all.and(torch).and(python)
}

/// PyTorch's own snapshot viewer, fetched once.
fn memory_viz() -> Result<PathBuf> {
    let folder = root().join("target/memory_viz");
    let path = folder.join(format!("torch-{TORCH_VERSION}.py"));
    if !path.exists() {
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut fetch = Command::new("python3");
        fetch.args(["xtask/fetch_memory_viz.py", TORCH_VERSION]).arg(&path);
        run(fetch)?;
    }
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}
