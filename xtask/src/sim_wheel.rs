//! The wheel of the simulated device, `drystone-sim`: `cargo xtask sim-wheel`.
//!
//! Lives here: the order in which its parts are made, for this machine or another. What PyTorch
//! imports from NVIDIA's libraries is read from PyTorch's wheels for x86-64: their names are the
//! same on every machine. Invariant: a wheel that this returns runs where PyTorch's own do.

use std::env;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::command::{TORCH_VERSION, copy, made_folder, root, target};
use crate::toolchain::Toolchain;
use crate::{notices, simcuda, stubs, torch, venv, wheel};

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
    let toolchain = Toolchain::portable(&args.machine);
    let parts = parts(&toolchain, &args.torch)?;
    let build = wheel::hatchling("wheel", &root().join("python-sim"), &out)?;
    let build = build.env("DRYSTONE_SIM_PARTS", &parts);
    build.env("DRYSTONE_SIM_PLATFORM", wheel::platform(&args.machine)).run()?;
    wheel::audited(&out, "drystone_sim", &args.machine)
}

/// Makes all that the wheel has beside Python in a folder, which is returned: libraries, stubs, the
/// command and the notices.
fn parts(toolchain: &Toolchain, releases: &[String]) -> Result<PathBuf> {
    let out = target().join("sim-parts").join(toolchain.machine());
    let simulated = simcuda::build_in(out.join("lib"), toolchain)?;
    let wheel_libraries = |release: &String| -> Result<PathBuf> {
        let (_, python) = torch::install(release)?;
        Ok(venv::site_packages(&python)?.join("torch/lib"))
    };
    let libraries: Vec<_> = releases.iter().map(wheel_libraries).collect::<Result<_>>()?;
    stubs::make(&libraries, &simulated, &out.join("stubs"), toolchain)?;
    let command = toolchain.cargo(&["drystone-cli"])?.join("drystone");
    copy(&command, &out.join("bin/drystone"))?;
    notices::write(&out, &notices::SIMULATED)?;
    Ok(out)
}
