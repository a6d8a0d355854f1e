//! The wheels of the Python package and of the simulated device: `cargo xtask wheel`, `sim-wheel`.
//!
//! Lives here: the order in which their parts are made. Rust is linked for a C library as old as
//! that of PyTorch's own wheels (manylinux_2_28), by Zig; what is compiled for releases of PyTorch
//! comes from `xtask/shims`; the source archive is what the wheel is built from, so that it is
//! complete. What PyTorch imports from NVIDIA's libraries is read from its wheels for x86-64: the
//! names are the same on every machine. Invariant: a wheel that this returns has passed auditwheel.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use xshell::Cmd;

use crate::command::{TORCH_VERSION, cmd, copy, made_folder, root, sh, target};
use crate::toolchain::{GLIBC, Toolchain, with_tools};
use crate::{capi, notices, simcuda, stubs, torch, venv};

/// All releases that the package takes and the package index has.
const TORCH_RELEASES: [&str; 14] = [
    "2.6.0", "2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1",
    "2.13.0", "2.14.0", "2.14.1", "2.15.0",
];
/// What is built, and where it goes.
const PRODUCTS: [(&str, &str, &str); 3] = [
    ("drystone-library", "libdrystone.so", capi::LIBRARY),
    ("drystone-preload", "libdrystone_preload.so", capi::PRELOAD),
    ("drystone-cli", "drystone", COMMAND),
];
const COMMAND: &str = "bin/drystone";
/// Loaded before what is compiled for PyTorch, whoever brought them.
const PROVIDED: [&str; 3] = ["libc10.so", "libc10_cuda.so", "libdrystone.so.1"];
/// What the source archive holds, of the repository and of `python/`, as a shell names it.
const SOURCES: &str = ".cargo Cargo.lock Cargo.toml LICENSE-APACHE LICENSE-MIT benches crates \
    rust-toolchain.toml xtask python/README.md python/drystone python/hatch_build.py \
    python/pyproject.toml";

/// What to compile.
#[derive(Parser)]
pub struct ShimArgs {
    /// Releases of PyTorch to compile for; all that the package takes, unless said otherwise.
    #[arg(long, value_name = "VERSION", num_args = 1.., default_values = TORCH_RELEASES)]
    pub torch: Vec<String>,
    /// The processor it is for, such as `aarch64`, whose C++ compiler must be there; this machine's
    /// unless said otherwise.
    #[arg(long, default_value = env::consts::ARCH)]
    pub machine: String,
}

/// What to build.
#[derive(Parser)]
pub struct WheelArgs {
    /// Where the wheel and the source archive go; `target/wheel` unless said otherwise.
    #[arg(long)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub shims: ShimArgs,
}

/// What to build of the wheel of the simulated device.
#[derive(Parser)]
pub struct SimWheelArgs {
    /// The processor it is for, such as `aarch64`; this machine's unless said otherwise.
    #[arg(long, default_value = env::consts::ARCH)]
    pub machine: String,
    /// Releases of PyTorch that run on it; each is installed the first time.
    #[arg(long, value_name = "VERSION", num_args = 1.., default_values = [TORCH_VERSION])]
    pub torch: Vec<String>,
    /// Where it goes; `target/sim-wheel` unless said otherwise.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

pub fn wheel(args: &WheelArgs) -> Result<PathBuf> {
    let out = made_folder(args.out.clone().unwrap_or_else(|| target().join("wheel")))?;
    let machine = &args.shims.machine;
    let native = native(&Toolchain::portable(machine), native_folder(machine))?;
    let compiled = compile(&args.shims, &[])?;
    let source = stage()?;
    for kind in ["sdist", "wheel"] {
        let build = hatchling(kind, &source, &out)?.env("DRYSTONE_NATIVE", &native);
        let build = build.env("DRYSTONE_COMPILED", &compiled);
        build.env("DRYSTONE_PLATFORM", platform(machine)).run()?;
    }
    audited(&out, "drystone", machine)
}

/// A command that builds a source archive or a wheel of a folder.
fn hatchling(kind: &str, source: &Path, out: &Path) -> Result<Cmd<'static>> {
    with_tools(cmd!(
        "env --chdir={source} python -m hatchling build --target {kind} --directory {out}"
    ))
}

/// What wheels for a machine say that they run on.
fn platform(machine: &str) -> String {
    format!("manylinux_{}_{}_{machine}", GLIBC.0, GLIBC.1)
}

/// The wheel that was built in a folder, once it is known to load where PyTorch's own do.
fn audited(out: &Path, name: &str, machine: &str) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("{name}-{version}-py3-none-{}.whl", platform(machine));
    let (wheel, folder) = (out.join(&name), target().join("wheel-audited"));
    // Named after the oldest system that it serves, and nothing added: what it does not find is
    // PyTorch's, and loaded before.
    let audited = folder.join(name);
    sh().remove_path(&audited)?;
    let excluded = PROVIDED.iter().flat_map(|name| ["--exclude", name]);
    with_tools(cmd!(
        "auditwheel repair --plat auto --only-plat --wheel-dir {folder} {excluded...} {wheel}"
    ))?
    .run()?;
    ensure!(
        audited.exists(),
        "{} needs a newer system than its name says: {} has the name that it may have",
        wheel.display(),
        folder.display()
    );
    let bytes = wheel.metadata().with_context(|| format!("find {}", wheel.display()))?.len();
    eprintln!("{}: {bytes} bytes", wheel.display());
    Ok(wheel)
}

/// Compiles what is for releases of PyTorch, skipping what cannot be fetched, or says which
/// releases are new.
pub fn shims(args: &ShimArgs, is_new: bool) -> Result<()> {
    if is_new {
        let releases = &args.torch;
        return Ok(cmd!("python3 -B xtask/shims/build.py --new {releases...}").run()?);
    }
    compile(args, &["--skip-missing"]).map(drop)
}

/// Compiles them into a folder, which is returned.
fn compile(args: &ShimArgs, options: &[&str]) -> Result<PathBuf> {
    let ShimArgs { torch, machine } = args;
    let out = made_folder(target().join("shims").join(machine))?;
    cmd!(
        "python3 -B xtask/shims/build.py --machine {machine} --out {out} {options...} -- {torch...}"
    )
    .run()?;
    Ok(out)
}

/// Where what is Rust of a machine's wheel is built.
pub fn native_folder(machine: &str) -> PathBuf {
    target().join("native").join(machine)
}

/// Builds all that is Rust into a folder, which is returned.
pub fn native(toolchain: &Toolchain, out: PathBuf) -> Result<PathBuf> {
    let out = made_folder(out)?;
    if toolchain.is_local() {
        capi::assemble(Some(out.clone()))?;
        let built = toolchain.cargo(&["drystone-cli"])?.join("drystone");
        let command = out.join(COMMAND);
        sh().create_dir(out.join("bin"))?;
        cmd!("strip -o {command} {built}").run()?;
        return Ok(out);
    }
    for (package, name, to) in PRODUCTS {
        // Apart from each other, so that none has what only the other needs.
        copy(&toolchain.cargo(&[package])?.join(name), &out.join(to))?;
    }
    copy(&root().join("crates/capi").join(capi::HEADER), &out.join(capi::HEADER))?;
    Ok(out)
}

/// Puts the source archive's files side by side, as `pyproject.toml` expects them.
fn stage() -> Result<PathBuf> {
    let to = target().join("sdist");
    sh().remove_path(&to)?;
    let sources = SOURCES.split_whitespace();
    let listed = cmd!("git ls-files -z --cached --others --exclude-standard -- {sources...}");
    for name in listed.read()?.split_terminator('\0') {
        let from = root().join(name);
        // Git still lists what was removed and is not committed yet.
        if from.exists() {
            copy(&from, &to.join(name.strip_prefix("python/").unwrap_or(name)))?;
        }
    }
    notices::write(&to, &notices::SHIPPED)?;
    Ok(to)
}

/// Builds that of the simulated device, and returns it.
pub fn sim_wheel(args: &SimWheelArgs) -> Result<PathBuf> {
    let out = made_folder(args.out.clone().unwrap_or_else(|| target().join("sim-wheel")))?;
    let toolchain = Toolchain::portable(&args.machine);
    let parts = sim_parts(&toolchain, &args.torch)?;
    let build = hatchling("wheel", &root().join("python-sim"), &out)?;
    let build = build.env("DRYSTONE_SIM_PARTS", &parts);
    build.env("DRYSTONE_SIM_PLATFORM", platform(&args.machine)).run()?;
    audited(&out, "drystone_sim", &args.machine)
}

/// Makes all that the wheel has beside Python in a folder, which is returned: libraries, stubs, the
/// command and the notices.
fn sim_parts(toolchain: &Toolchain, releases: &[String]) -> Result<PathBuf> {
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
