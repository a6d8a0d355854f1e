//! The Python package: its tests, and its wheel.
//!
//! The tests run on the simulated device with PyTorch from its wheel, against the library as it is
//! shipped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{TORCH_VERSION, cargo, root, run};
use crate::parts::Outcome;
use crate::simcuda::target;
use crate::{capi, torch};

const SUITES: [&str; 13] = [
    "test_package",
    "test_wheel",
    "test_statistics",
    "test_memory",
    "test_start",
    "test_report",
    "test_monitor",
    "test_native",
    "test_native_history",
    "test_native_memory",
    "test_ipc",
    "test_native_compile",
    "test_native_start",
];
/// Those that run models, which are there for the usual PyTorch only.
const MODEL_SUITES: [&str; 2] = ["test_models", "test_traces"];
/// Two devices that keep what is copied to them, tell what is done wrong, and take their time.
const DEVICES: &str =
    "memory:8GiB,devices:2,backing:true,oracle:true,kernel_us:20,event_latency_us:50";

/// Runs the tests of the package with a PyTorch, or says why they skip.
pub fn test(version: &str) -> Result<Outcome> {
    if let Err(error) = torch::install(version) {
        // Without a network there is nothing to run.
        return Ok(Outcome::Skipped(format!("PyTorch cannot be installed: {error:#}")));
    }
    let torch = torch::set_up(version)?;
    let library = capi::assemble(None)?.join(capi::LIBRARY);
    // Reports ask the command. A test beside it makes cargo choose features as for all tests, so
    // that no crate is built twice.
    cargo(&["build", "--workspace", "--bin", "drystone", "--test", "tidy"])?;
    let commands = target().join("debug").canonicalize().context("find the drystone command")?;
    let mut programs = vec![commands];
    programs.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let programs = std::env::join_paths(programs)?;
    let paths = [root().join("python"), root().join("crates/lab/simcudart/tests/torch")];
    let paths: Vec<PathBuf> =
        paths.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?;
    // What is compiled for PyTorch, and by it, once for all of them.
    let folder = target().canonicalize().context("find the target folder")?;
    let (cache, inductor) = (folder.join("torch-native"), folder.join("torch-inductor"));
    let mut failed = Vec::new();
    let models = if version == TORCH_VERSION { &MODEL_SUITES[..] } else { &[] };
    for &suite in SUITES.iter().chain(models) {
        let mut tests = torch.python();
        tests.args(["-B", "-m", "unittest", suite]).current_dir(root().join("python/tests"));
        tests.env("PYTHONPATH", std::env::join_paths(&paths)?);
        tests.env("DRYSTONE_LIBRARY", &library).env("SIMCUDA_CONF", DEVICES);
        tests.env("PATH", &programs);
        tests.env("DRYSTONE_CACHE", &cache);
        tests.env("TORCHINDUCTOR_CACHE_DIR", &inductor).env("TRITON_CACHE_DIR", &inductor);
        if run(tests).is_err() {
            failed.push(suite);
        }
    }
    if !failed.is_empty() {
        bail!("tests of the Python package failed: {}", failed.join(", "));
    }
    Ok(Outcome::Passed)
}

/// Compiles the C++ source of the package against the headers of other PyTorches.
pub fn headers(versions: &[String]) -> Result<()> {
    let mut check = Command::new("python3");
    check.args(["-B", "xtask/torch_headers.py"]).current_dir(root());
    let folder = target().join("torch-headers");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    check.arg(folder.canonicalize().with_context(|| format!("find {}", folder.display()))?);
    check.arg("crates/capi/include").args(versions);
    run(check)
}

/// Builds the wheel, and returns the folder it is in.
pub fn wheel(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = out.unwrap_or_else(|| target().join("wheel"));
    std::fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let out = out.canonicalize().with_context(|| format!("find {}", out.display()))?;
    let venv = target().join("wheel-venv");
    let pip = venv.join("bin/pip");
    if !pip.exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        run(make)?;
    }
    let mut pip = Command::new(pip);
    pip.args(["wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.arg("--wheel-dir").arg(&out).arg(root().join("python"));
    run(pip)?;
    Ok(out)
}
