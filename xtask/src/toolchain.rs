//! What compiles and links: this machine's own compiler, or Zig for one with an old C library.
//!
//! Lives here: how cargo builds crates, how C is compiled, and how a shared library is linked from
//! an archive with a script that names and versions what it exports. Invariant: what is made by Zig
//! runs wherever the wheels of PyTorch do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::command::{run, target};
use crate::wheel_tools::{self, GLIBC};

/// Where a script's assignments end, and the versions begin.
const VERSIONS: &str = "VERSION {";

/// Who compiles, and for which machine.
pub struct Toolchain {
    /// The folder of Zig and its like, and the machine; none for this one as it is.
    portable: Option<(PathBuf, String)>,
}

impl Toolchain {
    /// Of this machine, as it is.
    pub fn local() -> Self {
        Self { portable: None }
    }

    /// For a machine such as `aarch64`, with a C library as old as that of PyTorch's wheels.
    pub fn portable(machine: &str) -> Result<Self> {
        Ok(Self { portable: Some((wheel_tools::tools()?, machine.to_owned())) })
    }

    /// Builds crates, and returns where cargo leaves what they make.
    pub fn cargo(&self, packages: &[&str]) -> Result<PathBuf> {
        let Some((tools, machine)) = &self.portable else {
            let mut build = Command::new("cargo");
            build.args(["build", "--quiet", "--release"]);
            build.args(packages.iter().flat_map(|name| wheel_tools::package(name)));
            run(build)?;
            return Ok(target().join("release"));
        };
        let mut build = wheel_tools::with(tools, "cargo")?;
        build.args(["zigbuild", "--quiet", "--release", "--target"]);
        build.arg(wheel_tools::triple(machine));
        build.args(packages.iter().flat_map(|name| wheel_tools::package(name)));
        build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        run(build)?;
        Ok(wheel_tools::built(machine))
    }

    /// The compiler of C, which also links.
    pub fn cc(&self) -> Result<Command> {
        let Some((tools, machine)) = &self.portable else { return Ok(Command::new("cc")) };
        let mut cc = zig(tools)?;
        cc.args(["cc", "-target"]);
        cc.arg(format!("{machine}-linux-gnu.{}.{}", GLIBC.0, GLIBC.1));
        Ok(cc)
    }

    /// A linker of a shared library with all of an archive, by a script.
    pub fn linker(&self, archive: &Path, script: &Path, out: &Path) -> Result<Command> {
        let mut link = self.cc()?;
        link.args(["-shared", "-fPIC"]);
        let Some((tools, _)) = &self.portable else {
            link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive").arg(script);
            link.args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"]);
            return Ok(link);
        };
        // Zig takes no scripts but those of versions: its linker does the assignments before.
        let text =
            fs::read_to_string(script).with_context(|| format!("read {}", script.display()))?;
        let (assignments, versions) = split(&text);
        let file = |ending: &str| out.with_extension(ending);
        for (ending, text) in [("names", assignments), ("versions", versions)] {
            let file = file(ending);
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        let mut whole = zig(tools)?;
        whole.args(["ld.lld", "-r", "--whole-archive"]).arg(archive).arg("--no-whole-archive");
        whole.arg(file("names")).arg("-o").arg(file("o"));
        run(whole)?;
        link.arg(file("o"));
        link.arg(format!("-Wl,--version-script={}", file("versions").display()));
        link.args(["-s", "-lpthread", "-ldl", "-lm", "-lunwind"]);
        Ok(link)
    }

    /// The machine that it is for, as wheels name it.
    pub fn machine(&self) -> &str {
        self.portable.as_ref().map_or(env::consts::ARCH, |(_, machine)| machine)
    }
}

fn zig(tools: &Path) -> Result<Command> {
    let mut zig = wheel_tools::with(tools, tools.join("python"))?;
    zig.args(["-m", "ziglang"]);
    Ok(zig)
}

/// A linker script's assignments, and its versions without what is around them.
fn split(script: &str) -> (&str, &str) {
    let Some((assignments, versions)) = script.split_once(VERSIONS) else { return (script, "") };
    let versions = versions.trim_end();
    (assignments, versions.strip_suffix('}').unwrap_or(versions))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_script_is_taken_apart() {
        let script = "a = b;\nVERSION { v { global: a*; local: *; }; }\n";
        assert_eq!(split(script), ("a = b;\n", " v { global: a*; local: *; }; "));
        assert_eq!(split("a = b;\n"), ("a = b;\n", ""));
    }
}
