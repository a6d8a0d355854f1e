//! The tests of the Python packages.
//!
//! They run on the simulated device with PyTorch from its wheel, against the library as it is
//! shipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Parser;

use crate::command::{TORCH_VERSION, cmd, files_of, path_after, root, sh, target};
use crate::torch::DEVICES;
use crate::wheel::{self, ShimArgs, WheelArgs};
use crate::{capi, suite, torch, venv};

/// Those that run models, which are there for the usual PyTorch only; they take longest.
const MODEL_SUITES: [&str; 2] = ["test_models", "test_traces"];
/// Compiles before any test does, which would be told of it.
const COMPILE: &str = "import torch; from drystone import _native; _native.library(torch)";
/// What PyTorch's own tests import beside it.
const TORCH_TEST_PACKAGES: &str = "attrs expecttest hypothesis psutil sortedcontainers";

/// The test files of a folder, as modules.
fn suites_in(folder: &str) -> Result<Vec<String>> {
    let files = files_of(folder.as_ref(), "py")?;
    let names = files.iter().filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
    Ok(names.filter(|name| name.starts_with("test_")).collect())
}

/// Where the tests of the package find it, and what they share with those of the device.
pub fn test_paths() -> Result<OsString> {
    let paths = ["python", "crates/lab/simcudart/tests/torch"].map(|path| root().join(path));
    Ok(std::env::join_paths(paths)?)
}

/// Where what is compiled for PyTorch is kept, once for all who run it.
pub fn native_cache() -> (&'static str, PathBuf) {
    ("DRYSTONE_CACHE", target().join("torch-native"))
}

/// Runs the tests of a wheel, as it is, or says why they skip.
pub fn test_wheel(wheel: &Path) -> Result<()> {
    let mut tests = torch::or_skipped(TORCH_VERSION)?.tests("python/tests", "test_wheel");
    tests.env("PYTHONPATH", test_paths()?);
    tests.env("DRYSTONE_WHEEL", wheel).env("SIMCUDA_CONF", DEVICES);
    suite::run(tests)
}

/// Runs the tests of the package with a PyTorch, or says why they skip.
pub fn test(version: &str) -> Result<()> {
    let torch = torch::or_skipped(version)?;
    let library = capi::assemble(None)?.join(capi::LIBRARY);
    // Reports ask the command. A test beside it makes cargo choose features as for all tests, so
    // that no crate is built twice.
    cmd!("cargo build --workspace --bin drystone --test house").run()?;
    let programs = path_after(&target().join("debug"), "PATH")?;
    let inductor = target().join("torch-inductor");
    let wheel = wheel::wheel(&WheelArgs {
        out: Some(target().join("wheel-test")),
        shims: ShimArgs { torch: vec![version.to_owned()], ..ShimArgs::parse_from([""]) },
    });
    if let Err(error) = &wheel {
        // Without a network, or the tools. Its tests say that they skip.
        eprintln!("the wheel cannot be built: {error:#}");
    }
    let paths = test_paths()?;
    let prepared = |mut python: Command| {
        python.env("PYTHONPATH", &paths).env("PATH", &programs).envs([native_cache()]);
        python.env("DRYSTONE_LIBRARY", &library).env("SIMCUDA_CONF", DEVICES);
        python.env("TORCHINDUCTOR_CACHE_DIR", &inductor).env("TRITON_CACHE_DIR", &inductor);
        if let Ok(wheel) = &wheel {
            python.env("DRYSTONE_WHEEL", wheel);
        }
        python
    };
    suite::run(prepared(torch.python().args(["-c", COMPILE]).into()))?;
    let mut suites = Vec::new();
    for name in suites_in("python-sim/tests")? {
        let mut tests = torch.tests("python-sim/tests", &name);
        tests.env("PATH", &programs).env("PYTHONPATH", root().join("python-sim"));
        tests.env("DRYSTONE_SIM_LIBRARIES", &torch.libraries);
        suites.push(tests);
    }
    let is_of_models = |name: &String| MODEL_SUITES.contains(&name.as_str());
    let (models, others): (Vec<_>, _) =
        suites_in("python/tests")?.into_iter().partition(is_of_models);
    let models = models.into_iter().filter(|_| version == TORCH_VERSION);
    suites.extend(models.chain(others).map(|name| prepared(torch.tests("python/tests", &name))));
    suite::side_by_side(suites)
}

/// Runs PyTorch's own tests of memory from a checkout, with its allocator and with Drystone.
pub fn torch_tests(version: &str, arguments: &[String]) -> Result<()> {
    let torch = torch::set_up(version)?;
    let packages = target().join("torch-tests");
    if !packages.exists() {
        let wanted = format!("--no-deps --target {} {TORCH_TEST_PACKAGES}", packages.display());
        venv::pip_install(&torch.python, &wanted)?;
    }
    let library = capi::assemble(None)?.join(capi::LIBRARY);
    // The checkout is meant from where the caller is.
    let _there = sh().push_dir(std::env::current_dir()?);
    let tests = torch.python().arg(root().join("xtask/torch_tests.py")).args(arguments);
    let tests = tests.env("DRYSTONE_LIBRARY", library);
    let tests = tests.env("PYTHONPATH", std::env::join_paths([root().join("python"), packages])?);
    Ok(tests.env("SIMCUDA_CONF", DEVICES).envs([native_cache()]).run()?)
}
