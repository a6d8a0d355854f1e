//! The tests of the Python packages.
//!
//! They run on the simulated device with PyTorch from its wheel, against the library as it is
//! shipped.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{TORCH_VERSION, cargo, path_after, root, run, target};
use crate::parts::Outcome;
use crate::wheel::{self, ShimArgs, WheelArgs};
use crate::{capi, suite, torch};

/// Those that run models, which are there for the usual PyTorch only; they take longest.
const MODEL_SUITES: [&str; 2] = ["test_models", "test_traces"];
/// Compiles before any test does, which would be told of it.
const COMPILE: &str = "import torch; from drystone import _native; _native.library(torch)";
/// Two devices that keep what is copied to them, tell what is done wrong, and take their time.
const DEVICES: &str =
    "memory:8GiB,devices:2,backing:true,oracle:true,kernel_us:20,event_latency_us:50";

/// What PyTorch's own tests import beside it.
const TORCH_TEST_PACKAGES: [&str; 5] =
    ["attrs", "expecttest", "hypothesis", "psutil", "sortedcontainers"];

/// The test files of a folder, as modules.
fn suites_in(folder: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join(folder)).with_context(|| format!("read {folder}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let module = name.strip_suffix(".py").filter(|name| name.starts_with("test_"));
        names.extend(module.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Where the tests of the package find it, and what they share with those of the device.
pub fn test_paths() -> Result<OsString> {
    let paths = ["python", "crates/lab/simcudart/tests/torch"].map(|path| root().join(path));
    let paths: Vec<_> = paths.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?;
    Ok(std::env::join_paths(paths)?)
}

/// Runs the tests of a wheel, as it is, or says why they skip.
pub fn test_wheel(wheel: &Path) -> Result<Outcome> {
    let torch = match torch::set_up(TORCH_VERSION) {
        Ok(torch) => torch,
        Err(error) => {
            return Ok(Outcome::Skipped(format!("PyTorch cannot be installed: {error:#}")));
        }
    };
    let mut tests = torch.python();
    tests.args(["-B", "-m", "unittest", "test_wheel"]).current_dir(root().join("python/tests"));
    tests.env("PYTHONPATH", test_paths()?).env("DRYSTONE_WHEEL", wheel);
    tests.env("SIMCUDA_CONF", DEVICES);
    run(tests)?;
    Ok(Outcome::Passed)
}

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
    let programs = path_after(&commands, "PATH")?;
    let paths = test_paths()?;
    // What is compiled for PyTorch, and by it, once for all of them.
    let folder = target().canonicalize().context("find the target folder")?;
    let (cache, inductor) = (folder.join("torch-native"), folder.join("torch-inductor"));
    let wheel = wheel::wheel(&WheelArgs {
        out: Some(target().join("wheel-test")),
        shims: ShimArgs { torch: vec![version.to_owned()], ..ShimArgs::default() },
    });
    if let Err(error) = &wheel {
        // Without a network, or the tools. Its tests say that they skip.
        eprintln!("the wheel cannot be built: {error:#}");
    }
    let prepared = || -> Result<Command> {
        let mut python = torch.python();
        python.current_dir(root().join("python/tests"));
        python.env("PYTHONPATH", &paths).env("PATH", &programs);
        python.env("DRYSTONE_LIBRARY", &library).env("SIMCUDA_CONF", DEVICES);
        python.env("DRYSTONE_CACHE", &cache);
        python.env("TORCHINDUCTOR_CACHE_DIR", &inductor).env("TRITON_CACHE_DIR", &inductor);
        if let Ok(wheel) = &wheel {
            python.env("DRYSTONE_WHEEL", wheel);
        }
        Ok(python)
    };
    let mut compile = prepared()?;
    compile.args(["-B", "-c", COMPILE]);
    run(compile)?;
    let mut suites = Vec::new();
    for name in suites_in("python-sim/tests")? {
        let mut tests = torch.python();
        tests.args(["-B", "-m", "unittest", &name]).current_dir(root().join("python-sim/tests"));
        tests.env("PYTHONPATH", root().join("python-sim").canonicalize().context("find it")?);
        tests.env("DRYSTONE_SIM_LIBRARIES", &torch.libraries).env("PATH", &programs);
        suites.push(tests);
    }
    let (models, others): (Vec<_>, Vec<_>) = suites_in("python/tests")?
        .into_iter()
        .partition(|name| MODEL_SUITES.contains(&name.as_str()));
    let models = models.into_iter().filter(|_| version == TORCH_VERSION);
    for name in models.chain(others) {
        let mut tests = prepared()?;
        tests.args(["-B", "-m", "unittest", &name]);
        suites.push(tests);
    }
    suite::side_by_side(suites)?;
    Ok(Outcome::Passed)
}

/// Runs PyTorch's own tests of memory from a checkout, with its allocator and with Drystone.
pub fn torch_tests(checkout: &Path, version: &str, words: &[String]) -> Result<()> {
    let checkout =
        checkout.canonicalize().with_context(|| format!("find {}", checkout.display()))?;
    let torch = torch::set_up(version)?;
    let library = capi::assemble(None)?.join(capi::LIBRARY);
    let folder = target().canonicalize().context("find the target folder")?;
    let packages = folder.join("torch-tests");
    if !packages.exists() {
        let mut pip = torch.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.arg("--target").arg(&packages).args(TORCH_TEST_PACKAGES);
        run(pip)?;
    }
    let source = root().join("python").canonicalize().context("find the package")?;
    let mut tests = torch.python();
    tests.arg("-B").arg(root().join("xtask/torch_tests.py")).arg(checkout);
    tests.args(words.iter().flat_map(|word| ["-k", word.as_str()]));
    tests.env("PYTHONPATH", std::env::join_paths([&source, &packages])?);
    tests.env("DRYSTONE_LIBRARY", &library).env("SIMCUDA_CONF", DEVICES);
    tests.env("DRYSTONE_CACHE", folder.join("torch-native"));
    run(tests)
}
