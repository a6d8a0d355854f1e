//! What needs a GPU: `cargo xtask gpu`.
//!
//! Everything is packed in one folder, with a script, `xtask/gpu/run`, that runs it on any machine
//! with a driver and Python; nothing is built or fetched there. Where this machine has a GPU, it is
//! run at once. Invariant: no program or library of the folder needs a newer C library than the
//! wheel in it, so what runs PyTorch runs all of it.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::Value;
use xshell::Cmd;

use crate::command::{TORCH_VERSION, cmd, copy, files_of, made_folder, root, sh, target};
use crate::toolchain::{Toolchain, triple, with_tools};
use crate::wheel::{self, WheelArgs};
use crate::{capi, simcuda, torch};

/// What cargo builds, and how.
const BUILDS: [(&str, &str); 5] = [
    ("suite", "test --no-run --package drystone --test suite"),
    ("device", "test --no-run --package drystone-cuda --test device"),
    ("cudarc", "test --no-run --package drystone-preload --test cudarc"),
    ("inference", "zigbuild --release --package drystone-cudarc --example inference"),
    ("measure", "zigbuild --release --package drystone-cuda --example measure"),
];

/// What the folder may weigh: as much as can be sent to most places that have a GPU.
const BYTES_MAX: u64 = 60 << 20;

/// Its folders, beside the script and the wheel.
const FOLDERS: [&str; 4] = ["bin", "include", "lib", "steps"];

/// A whole device whose calls take as long as published, and kernels as those of a small model do.
/// One step asks for what captures forbid.
const REHEARSAL: &str =
    "memory:80GiB,strict:false,real_time:true,calls_take_time:true,kernel_us:20";

/// Packs them, and runs them here where there is something to run them on.
pub fn gpu(is_simulated: bool, minutes: u32, out: Option<PathBuf>) -> Result<()> {
    let out = pack(out)?;
    let has_gpu = ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists());
    if !is_simulated && !has_gpu {
        let folder = out.display();
        println!("no GPU here: copy {folder} to a machine that has one, and call");
        println!("./run --minutes {minutes}");
        return Ok(());
    }
    let python = if is_simulated { simulated()? } else { cmd!("python3") };
    let python = python.arg(out.join("run")).args(["--minutes", &minutes.to_string(), "--out"]);
    Ok(python.arg(target().join("gpu-results")).run()?)
}

/// Python on the simulated device: with PyTorch, unless it cannot be had.
fn simulated() -> Result<Cmd<'static>> {
    let python = match torch::set_up(TORCH_VERSION) {
        Ok(torch) => torch.python(),
        Err(error) => {
            eprintln!("without PyTorch: {error:#}");
            cmd!("python3").env("LD_LIBRARY_PATH", simcuda::build()?)
        }
    };
    Ok(python.env("SIMCUDA_CONF", REHEARSAL))
}

/// Puts everything into a folder, stripped, and returns the folder.
pub fn pack(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = made_folder(out.unwrap_or_else(|| target().join("gpu")))?;
    for name in FOLDERS {
        // What an earlier pack had and this one has not.
        sh().remove_path(out.join(name))?;
        sh().create_dir(out.join(name))?;
    }
    for (name, arguments) in BUILDS {
        let (program, built) = (out.join("bin").join(name), build(name, arguments)?);
        cmd!("strip -o {program} {built}").run()?;
    }
    sh().copy_file(wheel::wheel(&WheelArgs::parse_from([""]))?, &out)?;
    c_example(&out)?;
    for name in ["run", "README.md"] {
        copy(&root().join("xtask/gpu").join(name), &out.join(name))?;
    }
    let steps = files_of("xtask/gpu/steps".as_ref(), "py")?.into_iter();
    for file in steps.chain([root().join("python/tests/sharing.py")]) {
        sh().copy_file(file, out.join("steps"))?;
    }
    let told = cmd!("du --bytes --summarize {out}").read()?;
    let bytes: u64 = told.split_whitespace().next().context("du says nothing")?.parse()?;
    ensure!(bytes <= BYTES_MAX, "{} has {bytes} bytes, {BYTES_MAX} may be", out.display());
    println!("{}: {:.1} MiB", out.display(), bytes as f64 / f64::from(1 << 20));
    Ok(out)
}

fn build(name: &str, arguments: &str) -> Result<PathBuf> {
    let (arguments, triple) = (arguments.split(' '), triple(ARCH));
    let told = with_tools(cmd!(
        "cargo-zigbuild {arguments...} --message-format json-render-diagnostics --target {triple}"
    ))?
    .read()?;
    let executable = told.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    executable.with_context(|| format!("cargo does not say where {name} is"))
}

/// The C libraries, which the wheel has, too, and the example of their document compiled against
/// the one for that.
fn c_example(out: &Path) -> Result<()> {
    let native = wheel::native_folder(ARCH);
    let (to_bin, include, lib) = (out.join("bin/example"), out.join("include"), out.join("lib"));
    copy(&native.join(capi::LIBRARY), &out.join(capi::VERSIONED))?;
    for name in [capi::PRELOAD, capi::HEADER] {
        copy(&native.join(name), &out.join(name))?;
    }
    let document = sh().read_file("docs/use/c-api.md")?;
    let code = document.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let (code, _) = code.context("docs/use/c-api.md has no example")?;
    let source = out.join("example.c");
    sh().write_file(&source, code)?;
    let cc = Toolchain::portable(ARCH).cc()?.arg("-O2").arg(source).arg("-I").arg(include);
    let cc = cc.arg("-L").arg(lib).args(["-l:libdrystone.so.1", "-Wl,-rpath,$ORIGIN/../lib", "-s"]);
    Ok(cc.arg("-o").arg(to_bin).run()?)
}
