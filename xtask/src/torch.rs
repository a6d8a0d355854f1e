//! The whole of PyTorch on the simulated device: `cargo xtask torch -- script.py`.
//!
//! Lives here: a virtual environment in `target/torch`, and one beside it for each other version
//! asked for, whose PyTorch finds the simulated and stub libraries where its wheel looks for
//! NVIDIA's, so that programs run in it unchanged, in as many processes as they start. It is made
//! once; libraries are linked anew when their source changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xshell::Cmd;

use crate::command::{TORCH_VERSION, cmd, link, made_folder, root, sh, target};
use crate::parts::Skipped;
use crate::toolchain::Toolchain;
use crate::{simcuda, stubs, suite, venv};

/// What PyTorch imports, without NVIDIA's libraries; a client of NVML; and what builds the wheel of
/// Drystone's package.
const PACKAGES: &str = "filelock fsspec hatchling jinja2 markupsafe mpmath networkx numpy \
    nvidia-ml-py packaging pathspec pluggy setuptools sympy tomli trove-classifiers \
    typing-extensions";
/// Models to run and what compiles them, in the versions that go with the usual PyTorch, what they
/// import, and what reads tables of traces.
const MODEL_PACKAGES: &str = "torchvision==0.26.0 triton==3.6.0 transformers==5.23.0 \
    huggingface-hub==2.4.0 tokenizers==0.23.3 duckdb==2.0.1 anyio h11 httpcore2 httpx2 idna pillow \
    pyyaml regex safetensors tqdm truststore";
/// The simulated libraries that a program may load.
const SIMULATED: [&str; 5] =
    ["libcuda.so", "libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "libnvidia-ml.so.1"];

/// Two devices that keep what is copied to them, tell what is done wrong, and take their time.
pub const DEVICES: &str =
    "memory:8GiB,devices:2,backing:true,oracle:true,kernel_us:20,event_latency_us:50";
/// PyTorch's allocator over the driver's pools.
const POOLS: &str = "backend:cudaMallocAsync";
const STRICT: &str = "memory:8GiB,backing:true,oracle:true,strict:true";
/// Test files of `crates/lab/simcudart/tests/torch`, each with its devices and PyTorch's allocator.
const SUITES: [(&str, &str, &str); 4] = [
    ("test_native", DEVICES, ""),
    ("test_expandable", STRICT, "expandable_segments:True"),
    ("test_async", STRICT, POOLS),
    ("test_exit", "", ""),
];

/// A PyTorch that runs on the simulated device.
pub struct TorchVenv {
    pub python: PathBuf,
    pub libraries: PathBuf,
}

impl TorchVenv {
    /// One in `target/NAME` that has packages, and sees those of this one.
    pub fn on_top(self, name: &str, packages: &str) -> Result<Self> {
        // What lies below may be a stand-in of NVIDIA's, where its own is wanted.
        let wanted = format!("--no-deps --ignore-installed {packages}");
        let python = venv::make(&target().join(name), &wanted, Some(&self.python))?;
        Ok(Self { python, ..self })
    }

    pub fn python(&self) -> Cmd<'static> {
        let Self { python, libraries } = self;
        // PyTorch's own libraries look in this folder; others, such as a client of NVML, here.
        // Triton, if it is installed, links what it compiles with the driver it finds there.
        let python = cmd!("{python} -B").env("LD_LIBRARY_PATH", libraries);
        python.env("TRITON_LIBCUDA_PATH", libraries)
    }

    pub fn tests(&self, folder: &str, module: &str) -> Command {
        let mut tests = Command::from(self.python().args(["-m", "unittest", module]));
        tests.current_dir(root().join(folder));
        tests
    }
}

/// Makes the environment of a PyTorch, or what of it is missing or out of date.
pub fn set_up(version: &str) -> Result<TorchVenv> {
    let simulated = simcuda::build()?;
    let (folder, python) = install(version)?;
    let packages = venv::site_packages(&python)?;
    cmd!("{python} -B xtask/stand_ins.py {packages}").quiet().run()?;
    let stub_folder = folder.join("stubs");
    let wheel_libraries = packages.join("torch/lib");
    let stubs = stubs::make(&[wheel_libraries], &simulated, &stub_folder, &Toolchain::local())?;
    // Where the wheel's libraries look for NVIDIA's before anywhere else.
    let libraries = sh().create_dir(packages.join(runtime_folder(version)?))?;
    for name in SIMULATED {
        link(&simulated.join(name), &libraries.join(name))?;
    }
    for name in &stubs {
        link(&stub_folder.join(name), &libraries.join(name))?;
    }
    replace_other_runtimes(&packages, &simulated)?;
    Ok(TorchVenv { python, libraries })
}

/// torchvision brings NVIDIA's runtime under a name of its own. vLLM takes the first that is loaded
/// for its sleep, and NVIDIA's asks of the driver what a simulated one does not tell.
fn replace_other_runtimes(packages: &Path, simulated: &Path) -> Result<()> {
    for own in sh().read_dir(packages.join("torchvision.libs")).unwrap_or_default() {
        let name = own.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("libcudart.").and_then(|name| name.rsplit_once(".so."));
        if let Some((_, version)) = version {
            link(&simulated.join(format!("libcudart.so.{version}")), &own)?;
        }
    }
    Ok(())
}

/// Where a wheel's libraries look for CUDA's runtime, among other places.
fn runtime_folder(version: &str) -> Result<&'static str> {
    let mut parts = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        bail!("{version} is no version of PyTorch: give one as 2.8.0");
    };
    let has_cuda_13 = (major, minor) >= (2, 11);
    Ok(if has_cuda_13 { "nvidia/cu13/lib" } else { "nvidia/cuda_runtime/lib" })
}

/// Runs Python on the simulated device, from where the caller is; ends as it ends.
pub fn torch(version: &str, arguments: &[String]) -> Result<()> {
    let TorchVenv { python, libraries } = set_up(version)?;
    let mut python = Command::new(python);
    python.env("LD_LIBRARY_PATH", &libraries).env("TRITON_LIBCUDA_PATH", &libraries);
    let status = python.args(arguments).status().context("cannot start Python")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => bail!("Python ended: {status}"),
    }
}

/// The PyTorch that tests run with, or why they skip: without a network there is none.
pub fn or_skipped(version: &str) -> Result<TorchVenv> {
    if let Err(error) = install(version) {
        bail!(Skipped(format!("PyTorch cannot be installed: {error:#}")));
    }
    set_up(version)
}

/// Runs the tests of PyTorch on the simulated device: those of its own allocators, and those with
/// Drystone's library preloaded.
pub fn test() -> Result<()> {
    let torch = or_skipped(TORCH_VERSION)?;
    cmd!("cargo build --release --package drystone-preload").run()?;
    let suite = |folder: &str, file, devices, allocator| {
        let mut tests = torch.tests(folder, file);
        tests.env("SIMCUDA_CONF", devices).env("PYTORCH_ALLOC_CONF", allocator);
        tests
    };
    let mut preloaded = suite("crates/preload/tests/torch", "test_preload", STRICT, POOLS);
    preloaded.env("LD_PRELOAD", target().join("release/libdrystone_preload.so"));
    let others = SUITES.map(|(file, devices, allocator)| {
        suite("crates/lab/simcudart/tests/torch", file, devices, allocator)
    });
    suite::side_by_side([preloaded].into_iter().chain(others).collect())
}

/// The environment's folder and interpreter, with everything installed.
pub fn install(version: &str) -> Result<(PathBuf, PathBuf)> {
    let is_usual = version == TORCH_VERSION;
    let name = if is_usual { "torch".to_owned() } else { format!("torch-{version}") };
    let folder = made_folder(target().join(name))?;
    let models = if is_usual { MODEL_PACKAGES } else { "" };
    let wanted = format!("--no-deps --only-binary :all: torch=={version} {PACKAGES} {models}");
    let python = venv::make(&folder.join("venv"), &wanted, None)?;
    Ok((folder, python))
}
