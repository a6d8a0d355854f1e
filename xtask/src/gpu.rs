//! What needs a GPU: `cargo xtask gpu`.
//!
//! Everything is packed in one folder, with a script, `xtask/gpu/run`, that runs it on any machine
//! with a driver and Python; nothing is built or fetched there. Where this machine has a GPU, it is
//! run at once. Invariant: no program or library of the folder needs a newer C library than the
//! wheel in it, so what runs PyTorch runs all of it.

use std::env::consts::ARCH;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::{TORCH_VERSION, root, run, target};
use crate::files::{copy, made_folder};
use crate::toolchain::Toolchain;
use crate::wheel::{self, ShimArgs, WheelArgs};
use crate::wheel_tools;
use crate::{capi, simcuda, torch};

/// What cargo builds, and how.
const BUILDS: [(&str, &[&str]); 5] = [
    ("suite", &["test", "--no-run", "--package", "drystone", "--test", "suite"]),
    ("device", &["test", "--no-run", "--package", "drystone-cuda", "--test", "device"]),
    ("cudarc", &["test", "--no-run", "--package", "drystone-preload", "--test", "cudarc"]),
    ("inference", &["zigbuild", "--release", "--package", "drystone-cudarc"]),
    ("measure", &["zigbuild", "--release", "--package", "drystone-cuda"]),
];

/// What the folder may weigh: as much as can be sent to most places that have a GPU.
const BYTES_MAX: u64 = 60 << 20;

/// Its folders, beside the script and the wheel.
const FOLDERS: [&str; 4] = ["bin", "include", "lib", "steps"];

/// Packs them, and runs them here where there is something to run them on.
pub fn gpu(is_simulated: bool, minutes: u32, out: Option<PathBuf>) -> Result<()> {
    let out = pack(out)?;
    let has_gpu = ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists());
    if !is_simulated && !has_gpu {
        println!(
            "no GPU here: copy {} to a machine that has one, and call ./run --minutes {minutes}",
            out.display()
        );
        return Ok(());
    }
    let mut all = if is_simulated { simulated()? } else { Command::new("python3") };
    all.arg(out.join("run")).args(["--minutes", &minutes.to_string()]);
    all.arg("--out").arg(target().join("gpu-results"));
    run(all)
}

/// Python on the simulated device: with PyTorch, unless it cannot be had.
fn simulated() -> Result<Command> {
    let mut python = match torch::set_up(TORCH_VERSION) {
        Ok(torch) => torch.python(),
        Err(error) => {
            eprintln!("without PyTorch: {error:#}");
            let mut python = Command::new("python3");
            python.env("LD_LIBRARY_PATH", simcuda::build()?);
            python
        }
    };
    python.env("SIMCUDA_CONF", REHEARSAL);
    Ok(python)
}

/// A whole device whose calls take as long as published, and kernels as those of a small model do.
/// One step asks for what captures forbid.
const REHEARSAL: &str =
    "memory:80GiB,strict:false,real_time:true,calls_take_time:true,kernel_us:20";

/// Puts everything into a folder, stripped, and returns the folder.
pub fn pack(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = out.unwrap_or_else(|| target().join("gpu"));
    for name in FOLDERS {
        // What an earlier pack had and this one has not.
        match fs::remove_dir_all(out.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {name} of an earlier pack"));
            }
            _ => {}
        }
    }
    let programs = out.join("bin");
    made_folder(programs.clone())?;
    let out = made_folder(out)?;
    let tools = wheel_tools::tools()?;
    for (name, arguments) in BUILDS {
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(programs.join(name)).arg(build(name, arguments, &tools)?);
        run(strip)?;
    }
    let wheel = wheel::wheel(&WheelArgs { out: None, shims: ShimArgs::default() })?;
    copy(&wheel, &out.join(wheel.file_name().context("a wheel has a name")?))?;
    c_example(&out)?;
    let scripts = root().join("xtask/gpu");
    for name in ["run", "README.md"] {
        copy(&scripts.join(name), &out.join(name))?;
    }
    copy_python(&scripts.join("steps"), &out.join("steps"))?;
    copy(&root().join("python/tests/sharing.py"), &out.join("steps/sharing.py"))?;
    let bytes = size_of(&out)?;
    ensure!(bytes <= BYTES_MAX, "{} has {bytes} bytes, {BYTES_MAX} may be", out.display());
    println!("{}: {:.1} MiB", out.display(), bytes as f64 / f64::from(1 << 20));
    Ok(out)
}

fn copy_python(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let path = entry.with_context(|| format!("read {}", from.display()))?.path();
        if let (Some(name), true) = (path.file_name(), path.extension() == Some("py".as_ref())) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// All bytes of a folder's files.
fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry.with_context(|| format!("read {}", folder.display()))?;
        let data = entry.metadata().with_context(|| format!("look at {:?}", entry.path()))?;
        bytes += if data.is_dir() { size_of(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

/// Builds a program and returns its path.
fn build(name: &str, arguments: &[&str], tools: &Path) -> Result<PathBuf> {
    let mut cargo = wheel_tools::with(tools, tools.join("cargo-zigbuild"))?;
    cargo.args(arguments).args(["--message-format", "json-render-diagnostics", "--target"]);
    cargo.arg(wheel_tools::triple(ARCH));
    if arguments[0] == "zigbuild" {
        cargo.args(["--example", name]);
    }
    let output = cargo.current_dir(root()).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("building {name} failed: {}", output.status);
    }
    let messages = String::from_utf8(output.stdout)?;
    let executable = messages.lines().find_map(|line| {
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
    let files = [(capi::LIBRARY, capi::VERSIONED), (capi::PRELOAD, capi::PRELOAD)];
    for (from, to) in files.into_iter().chain([(capi::HEADER, capi::HEADER)]) {
        copy(&native.join(from), &out.join(to))?;
    }
    let document = fs::read_to_string(root().join("docs/use/c-api.md"))?;
    let code = document.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let (code, _) = code.context("docs/use/c-api.md has no example")?;
    let source = out.join("example.c");
    fs::write(&source, code)?;
    let mut cc = Toolchain::portable(ARCH)?.cc()?;
    cc.arg("-O2").arg(&source).arg("-I").arg(out.join("include")).arg("-L").arg(out.join("lib"));
    cc.args(["-l:libdrystone.so.1", "-Wl,-rpath,$ORIGIN/../lib", "-s", "-o"]);
    cc.arg(out.join("bin/example"));
    run(cc)
}
