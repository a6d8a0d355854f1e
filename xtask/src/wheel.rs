//! The wheel of the Python package: `cargo xtask wheel`.
//!
//! Lives here: the order in which its parts are made. Rust is linked for a C library as old as that
//! of PyTorch's own wheels (manylinux_2_28), by Zig; what is compiled for releases of PyTorch comes
//! from `xtask/shims`; the source archive is what the wheel is built from, so that it is complete.
//! Invariant: a wheel that this returns has passed auditwheel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{cargo, root, run, said, target};
use crate::files::{copy, made_folder};
use crate::wheel_tools::{GLIBC, built, package, tools, triple, with};
use crate::{capi, notices};

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
/// What the source archive holds, of the repository and of `python/`.
const SOURCES: &str = ".cargo Cargo.lock Cargo.toml LICENSE-APACHE LICENSE-MIT benches crates \
    rust-toolchain.toml xtask";
const PACKAGE: [&str; 4] = ["README.md", "drystone", "hatch_build.py", "pyproject.toml"];

/// What to compile.
#[derive(Args)]
pub struct ShimArgs {
    /// Releases of PyTorch to compile for; all that the package takes, unless said otherwise.
    #[arg(long, value_name = "VERSION", num_args = 1.., default_values = TORCH_RELEASES)]
    pub torch: Vec<String>,
    /// The processor it is for, such as `aarch64`, whose C++ compiler must be there; this machine's
    /// unless said otherwise.
    #[arg(long, default_value = env::consts::ARCH)]
    pub machine: String,
}

impl Default for ShimArgs {
    fn default() -> Self {
        Self { torch: TORCH_RELEASES.map(str::to_owned).into(), machine: env::consts::ARCH.into() }
    }
}

/// What to build.
#[derive(Args)]
pub struct WheelArgs {
    /// Where the wheel and the source archive go; `target/wheel` unless said otherwise.
    #[arg(long)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub shims: ShimArgs,
}

/// Builds them, and returns the wheel.
pub fn wheel(args: &WheelArgs) -> Result<PathBuf> {
    let out = made_folder(args.out.clone().unwrap_or_else(|| target().join("wheel")))?;
    let tools = tools()?;
    let machine = &args.shims.machine;
    let native = native(Some((machine, &tools)), &native_folder(machine))?;
    let compiled = compile(&args.shims, &[])?;

    let source = stage(&target().join("sdist"))?;
    let platform = platform(machine);
    for kind in ["sdist", "wheel"] {
        let mut build = hatchling(&tools, kind, &source, &out)?;
        build.env("DRYSTONE_NATIVE", &native).env("DRYSTONE_COMPILED", &compiled);
        build.env("DRYSTONE_PLATFORM", &platform);
        run(build)?;
    }
    audited(&out, "drystone", &platform, &tools)
}

/// A command that builds a source archive or a wheel of a folder.
pub fn hatchling(tools: &Path, kind: &str, source: &Path, out: &Path) -> Result<Command> {
    let mut build = with(tools, tools.join("python"))?;
    build.args(["-m", "hatchling", "build", "--target", kind, "--directory"]).arg(out);
    build.current_dir(source);
    Ok(build)
}

/// What wheels for a machine say that they run on.
pub fn platform(machine: &str) -> String {
    format!("manylinux_{}_{}_{machine}", GLIBC.0, GLIBC.1)
}

/// The wheel that was built in a folder, once it is known to load where it says.
pub fn audited(out: &Path, name: &str, platform: &str, tools: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let wheel = out.join(format!("{name}-{version}-py3-none-{platform}.whl"));
    let bytes = fs::metadata(&wheel).with_context(|| format!("find {}", wheel.display()))?.len();
    audit(&wheel, tools)?;
    eprintln!("{}: {bytes} bytes", wheel.display());
    Ok(wheel)
}

/// Compiles what is for releases of PyTorch, skipping what cannot be fetched, or says which
/// releases are new.
pub fn shims(args: &ShimArgs, is_new: bool) -> Result<()> {
    if is_new {
        let mut ask = Command::new("python3");
        ask.args(["-B", "xtask/shims/build.py", "--new"]).args(&args.torch);
        return run(ask);
    }
    compile(args, &["--skip-missing"]).map(drop)
}

/// Compiles them into a folder, which is returned.
fn compile(args: &ShimArgs, options: &[&str]) -> Result<PathBuf> {
    let out = made_folder(target().join("shims").join(&args.machine))?;
    let mut build = Command::new("python3");
    build.args(["-B", "xtask/shims/build.py", "--machine", &args.machine, "--out"]).arg(&out);
    build.args(options).arg("--").args(&args.torch);
    run(build)?;
    Ok(out)
}

/// Where what is Rust of a machine's wheel is built.
pub fn native_folder(machine: &str) -> PathBuf {
    target().join("native").join(machine)
}

/// Builds all that is Rust into a folder: for this machine as it is, or by Zig for machines with an
/// old C library.
pub fn native(portable: Option<(&str, &Path)>, out: &Path) -> Result<PathBuf> {
    let out = made_folder(out.to_path_buf())?;
    made_folder(out.join("bin"))?;
    let Some((machine, tools)) = portable else {
        capi::assemble(Some(out.clone()))?;
        cargo(&["build", "--release", "--package", "drystone-cli", "--features", "parquet"])?;
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(out.join(COMMAND)).arg(target().join("release/drystone"));
        run(strip)?;
        return Ok(out);
    };
    for (crate_name, name, to) in PRODUCTS {
        // Apart from each other, so that none has what only the other needs.
        let mut build = with(tools, "cargo")?;
        build.args(["zigbuild", "--release"]).args(package(crate_name));
        build.arg("--target").arg(triple(machine));
        build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        run(build)?;
        copy(&built(machine).join(name), &out.join(to))?;
    }
    copy(&root().join("crates/capi").join(capi::HEADER), &out.join(capi::HEADER))?;
    Ok(out)
}

/// Puts the source archive's files side by side, as `pyproject.toml` expects them.
fn stage(to: &Path) -> Result<PathBuf> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("empty {}", to.display()))?;
    }
    let to = made_folder(to.to_path_buf())?;
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]);
    list.args(SOURCES.split(' ')).args(PACKAGE.map(|name| format!("python/{name}")));
    for name in said(list)?.split_terminator('\0') {
        let from = root().join(name);
        // Git still lists what was removed and is not committed yet.
        if from.exists() {
            copy(&from, &to.join(name.strip_prefix("python/").unwrap_or(name)))?;
        }
    }
    let notices = to.join(notices::NAME);
    fs::write(&notices, notices::text(&notices::SHIPPED)?)
        .with_context(|| format!("write {}", notices.display()))?;
    Ok(to)
}

/// Refuses a wheel that would not load where PyTorch's own do.
fn audit(wheel: &Path, tools: &Path) -> Result<()> {
    let folder = target().join("wheel-audited");
    // Named after the oldest system that it serves, and nothing added: what it does not find is
    // PyTorch's, and loaded before.
    let audited = folder.join(wheel.file_name().context("a wheel has a name")?);
    if audited.exists() {
        fs::remove_file(&audited).with_context(|| format!("remove {}", audited.display()))?;
    }
    let mut audit = with(tools, tools.join("auditwheel"))?;
    audit.args(["repair", "--plat", "auto", "--only-plat", "--wheel-dir"]).arg(&folder);
    for name in PROVIDED {
        audit.args(["--exclude", name]);
    }
    audit.arg(wheel);
    run(audit)?;
    ensure!(
        audited.exists(),
        "{} needs a newer system than its name says: {} has the name that it may have",
        wheel.display(),
        folder.display()
    );
    Ok(())
}
