//! The wheel of the simulated device, `drystone-sim`: `cargo xtask sim-wheel`.
//!
//! Lives here: the order in which its parts are made, for this machine or another. What PyTorch
//! imports from NVIDIA's libraries is read from PyTorch's wheels for x86-64: their names are the
//! same on every machine. Invariant: a wheel that this returns runs where PyTorch's own do.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use clap::Args;

use crate::command::{TORCH_VERSION, root, run, target};
use crate::files::made_folder;
use crate::simcuda;
use crate::toolchain::Toolchain;
use crate::wheel;
use crate::wheel_tools::tools;
use crate::{notices, stubs, torch, venv};

/// What to build.
#[derive(Args)]
pub struct SimWheelArgs {
    /// The processor it is for, such as `aarch64`; this machine's unless said otherwise.
    #[arg(long, default_value = env::consts::ARCH)]
    machine: String,
    /// Releases of PyTorch that run on it; each is installed the first time.
    #[arg(long, value_name = "VERSION", num_args = 1.., default_values = [TORCH_VERSION])]
    torch: Vec<String>,
    /// Where it goes; `target/sim-wheel` unless said otherwise.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// That of a release, in a folder.
pub fn released(out: PathBuf) -> Result<()> {
    let machine = env::consts::ARCH.to_owned();
    sim_wheel(&SimWheelArgs { machine, torch: vec![TORCH_VERSION.to_owned()], out: Some(out) })?;
    Ok(())
}

/// Builds it, and returns it.
pub fn sim_wheel(args: &SimWheelArgs) -> Result<PathBuf> {
    let out = made_folder(args.out.clone().unwrap_or_else(|| target().join("sim-wheel")))?;
    let tools = tools()?;
    let toolchain = Toolchain::portable(&args.machine)?;
    let parts = parts(&toolchain, &args.torch, &target().join("sim-parts").join(&args.machine))?;
    let platform = wheel::platform(toolchain.machine());
    let mut build = wheel::hatchling(&tools, "wheel", &root().join("python-sim"), &out)?;
    build.env("DRYSTONE_SIM_PARTS", &parts).env("DRYSTONE_SIM_PLATFORM", &platform);
    run(build)?;
    wheel::audited(&out, "drystone_sim", &platform, &tools)
}

/// Makes all that the wheel has beside Python in a folder, which is returned: libraries, stubs, the
/// command and the notices.
fn parts(toolchain: &Toolchain, releases: &[String], out: &Path) -> Result<PathBuf> {
    let out = made_folder(out.to_path_buf())?;
    let simulated = simcuda::build_in(&out.join("lib"), toolchain)?;
    let mut libraries = Vec::new();
    for release in releases {
        let (_, python) = torch::install(release)?;
        libraries.push(venv::site_packages(&python)?.join("torch/lib"));
    }
    stubs::make(&libraries, &simulated, &out.join("stubs"), toolchain)?;
    let built = toolchain.cargo(&["drystone-cli"])?;
    let bin = made_folder(out.join("bin"))?;
    fs::copy(built.join("drystone"), bin.join("drystone")).context("copy the command")?;
    let file = out.join(notices::NAME);
    fs::write(&file, notices::text(&notices::SIMULATED)?)
        .with_context(|| format!("write {}", file.display()))?;
    Ok(out)
}
