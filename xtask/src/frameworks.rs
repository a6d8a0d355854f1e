//! Programs of real frameworks: `cargo xtask frameworks`.
//!
//! Lives here: which releases, in `target/frameworks` on top of PyTorch's environment, and the
//! start of what prints two tables: `python/tests/compare_frameworks.py`, what each allocator holds
//! under them (`docs/use/frameworks.md`), and `python-sim/frameworks`, their dry runs
//! (`docs/use/dry-run.md`).

use std::path::PathBuf;

use anyhow::Result;

use crate::command::{TORCH_VERSION, cmd, path_after, root, sh, target, write_if_changed};
use crate::python::native_cache;
use crate::toolchain::Toolchain;
use crate::torch::{self, TorchVenv};
use crate::{capi, venv};

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
    let torch = torch::set_up(TORCH_VERSION)?.on_top("frameworks", PACKAGES)?;
    let toolkit = toolkit()?;
    // Its set-up imports PyTorch, which only this environment has.
    let deepspeed = format!("--no-deps --no-build-isolation {DEEPSPEED}");
    let home = sh().push_env("CUDA_HOME", &toolkit);
    venv::pip_install(&torch.python, &deepspeed)?;
    let programs = path_after(&Toolchain::local().cargo(&["drystone-cli"])?, "PATH")?;

    let held = torch.python().arg("python/tests/compare_frameworks.py").args(names);
    let held = held.env("PYTHONPATH", root().join("python")).envs([native_cache()]);
    let held = held.env("DRYSTONE_LIBRARY", capi::assemble(None)?.join(capi::LIBRARY));
    let held = held.env("PATH", &programs).run();
    if !names.is_empty() {
        return Ok(held?);
    }

    drop(home);
    let TorchVenv { python, libraries } = torch;
    let dry = cmd!("{python} -B python-sim/frameworks/run.py").env("PATH", programs);
    let dry = dry.env("PYTHONPATH", root().join("python-sim"));
    Ok(dry.env("DRYSTONE_SIM_LIBRARIES", libraries).run().and(held)?)
}

/// A folder that looks like CUDA's toolkit to who asks for its version.
fn toolkit() -> Result<PathBuf> {
    let folder = target().join("frameworks/toolkit");
    let nvcc = folder.join("bin/nvcc");
    write_if_changed(&nvcc, NVCC)?;
    cmd!("chmod 755 {nvcc}").run()?;
    Ok(folder)
}
