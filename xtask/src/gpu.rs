//! What needs a GPU: `cargo xtask gpu`.
//!
//! Everything is packed in one folder, with a script that runs it on any machine with a driver and
//! no Rust. Where this machine has a GPU, it is run at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{root, run};
use crate::simcuda::target;
use crate::{capi, simcuda};

/// What cargo builds, and how.
const BUILDS: [(&str, &[&str]); 4] = [
    ("suite", &["test", "--no-run", "--package", "drystone", "--test", "suite"]),
    ("device", &["test", "--no-run", "--package", "drystone-cuda", "--test", "device"]),
    ("inference", &["build", "--release", "--package", "drystone-cudarc"]),
    ("measure", &["build", "--release", "--package", "drystone-cuda"]),
];

const SCRIPT: &str = r#"#!/bin/sh
# Runs Drystone's tests, examples and measurements on this machine's GPU. Needs a driver only.
# MAPPINGS is where the search for the limit of mappings ends.
cd "$(dirname "$0")" || exit 1
failed=
step() {
    echo "== $*"
    "$@" || failed="$failed $1"
}
step ./suite gpu_
step ./device
step ./inference
step ./example
echo "== ./measure"
./measure --mappings "${MAPPINGS:-1000000}" > measurements.md || failed="$failed ./measure"
cat measurements.md
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
echo "all passed; the tables are in $PWD/measurements.md"
"#;

pub fn gpu(is_simulated: bool, out: Option<PathBuf>) -> Result<()> {
    let out = out.unwrap_or_else(|| target().join("gpu"));
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let out = out.canonicalize().with_context(|| format!("find {}", out.display()))?;
    for (name, arguments) in BUILDS {
        copy(&build(name, arguments)?, &out.join(name))?;
    }
    c_example(&out)?;
    let script = out.join("run.sh");
    fs::write(&script, SCRIPT).with_context(|| format!("write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let mut all = Command::new(&script);
    if is_simulated {
        all.env("LD_LIBRARY_PATH", simcuda::build()?).env("MAPPINGS", "20000");
    } else if !["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists()) {
        println!("no GPU here: copy {} to a machine that has one, and run run.sh", out.display());
        return Ok(());
    }
    run(all)
}

/// Builds a program and returns its path.
fn build(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).args(["--message-format", "json-render-diagnostics"]);
    if arguments[0] == "build" {
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

/// The C library, and the example of its document compiled against it.
fn c_example(out: &Path) -> Result<()> {
    let library = capi::build(None)?;
    for path in ["lib/libdrystone.so", "include/drystone.h"] {
        let to = out.join(path);
        fs::create_dir_all(to.parent().unwrap_or(out))?;
        copy(&library.join(path), &to)?;
    }
    let document = fs::read_to_string(root().join("docs/c-api.md"))?;
    let code = document.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let (code, _) = code.context("docs/c-api.md has no example")?;
    let source = out.join("example.c");
    fs::write(&source, code)?;
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-I").arg(out.join("include")).arg("-L").arg(out.join("lib"));
    cc.args(["-l:libdrystone.so", "-Wl,-rpath,$ORIGIN/lib", "-o"]).arg(out.join("example"));
    run(cc)
}

/// A program that is running may be replaced, not written to.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_file(to);
    let copied = fs::copy(from, to);
    copied.map(drop).with_context(|| format!("copy {} to {}", from.display(), to.display()))
}
