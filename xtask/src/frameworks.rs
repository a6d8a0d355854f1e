//! Programs of real frameworks: `cargo xtask frameworks`.
//!
//! Lives here: which releases, in `target/frameworks` on top of PyTorch's environment, and the
//! start of what prints two tables: `python/tests/compare_frameworks.py`, what each allocator holds
//! under them (`docs/use/frameworks.md`), and `python-sim/frameworks`, their dry runs
//! (`docs/use/dry-run.md`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{TORCH_VERSION, cargo, path_after, root, run, target};
use crate::files::write_if_changed;
use crate::{capi, torch};

/// The frameworks, what builds the one that has no wheel, and then what they import.
const PACKAGES: &str = "accelerate==1.15.0 datasets==5.2.0 diffusers==0.42.1 lightning==2.6.6 \
    peft==0.21.2 torch_memory_saver==0.0.10 torchao==0.16.0 torchtune==0.6.1 trl==1.16.0 \
    setuptools==81.0.0 aiohappyeyeballs aiohttp aiosignal annotated-types \
    antlr4-python3-runtime==4.9.3 attrs certifi charset-normalizer click dill einops frozenlist \
    hf-xet hjson httpcore httpx importlib-metadata lightning-utilities markdown-it-py mdurl \
    msgpack multidict multiprocess ninja nvidia-ml-py omegaconf pandas propcache psutil \
    py-cpuinfo pyarrow pydantic-core==2.50.5 pydantic==2.14.4 pygments python-dateutil \
    pytorch-lightning pytz requests rich sentencepiece shellingham six sniffio tiktoken \
    torchdata==0.11.0 torchmetrics typer typing-inspection tzdata urllib3 xxhash yarl zipp";

/// It has no wheel. Its set-up runs the compiler of CUDA's toolkit for its version alone: its
/// kernels are compiled when they are used, and none is.
const DEEPSPEED: &str = "deepspeed==0.19.8";
const NVCC: &str = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n";

/// Prints both tables, of all programs, or of those that are named the first alone.
pub fn frameworks(names: &[String]) -> Result<()> {
    let torch = torch::set_up(TORCH_VERSION)?;
    let python = torch::on_top(&torch.python, "frameworks", PACKAGES)?;
    let toolkit = toolkit()?;
    install_deepspeed(&python, &toolkit)?;
    cargo(&["build", "--release", "--package", "drystone-cli", "--features", "parquet"])?;
    let command = target().join("release").canonicalize().context("find the command")?;
    let programs = path_after(&command, "PATH")?;
    let folder = target().canonicalize().context("find the target folder")?;

    let mut held = Command::new(&python);
    held.arg("-B").arg(root().join("python/tests/compare_frameworks.py")).args(names);
    held.env("LD_LIBRARY_PATH", &torch.libraries).env("TRITON_LIBCUDA_PATH", &torch.libraries);
    held.env("PYTHONPATH", root().join("python").canonicalize().context("find it")?);
    held.env("DRYSTONE_LIBRARY", capi::assemble(None)?.join(capi::LIBRARY));
    held.env("DRYSTONE_CACHE", folder.join("torch-native"));
    held.env("CUDA_HOME", toolkit).env("PATH", &programs);
    let held = run(held);
    if !names.is_empty() {
        return held;
    }

    let mut dry = Command::new(python);
    dry.env("DRYSTONE_SIM_LIBRARIES", &torch.libraries).env("PATH", programs);
    dry.env("PYTHONPATH", root().join("python-sim").canonicalize().context("find it")?);
    dry.arg("-B").arg(root().join("python-sim/frameworks/run.py"));
    run(dry).and(held)
}

/// A folder that looks like CUDA's toolkit to who asks for its version.
fn toolkit() -> Result<PathBuf> {
    let folder = target().join("frameworks/toolkit");
    let nvcc = folder.join("bin/nvcc");
    fs::create_dir_all(folder.join("bin")).with_context(|| format!("make {}", folder.display()))?;
    write_if_changed(&nvcc, NVCC)?;
    fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("make {} a program", nvcc.display()))?;
    folder.canonicalize().context("find it")
}

fn install_deepspeed(python: &Path, toolkit: &Path) -> Result<()> {
    let mut pip = Command::new(python);
    // Its set-up imports PyTorch, which only this environment has.
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-build-isolation", DEEPSPEED]).env("CUDA_HOME", toolkit);
    run(pip)
}
