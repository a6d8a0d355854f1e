//! The library with its own checks on, C programs that know nothing of it, and the simulated driver
//! they run on.
#![allow(dead_code, reason = "no test uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use drystone_testkit::{compile_c, describe, simulated_cuda};

/// Two devices, the oracle on.
pub const CONF: &str = "devices:2,memory:4GiB,oracle:true";

/// The folder of this crate.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// The library, built once: no test links it.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "drystone-preload", "--target-dir"]);
        let output = build.arg(target()).current_dir(folder()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target().join("debug/libdrystone_preload.so")
    })
}

/// A program in C.
pub struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
    simulated: PathBuf,
}

impl Program {
    /// Compiles a source of `tests`; `None` where there is no simulated driver. `arguments` may
    /// name libraries of its folder.
    pub fn new(source: &str, arguments: &[&str]) -> Option<Self> {
        let simulated = simulated_cuda()?;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        compile_c(&folder().join("tests").join(source), &path, &simulated, arguments).unwrap();
        Some(Self { _folder: place, path, simulated })
    }

    /// The same with a library beside it, compiled of another source.
    pub fn with_library(source: &str, library: &str, arguments: &[&str]) -> Option<Self> {
        let simulated = simulated_cuda()?;
        let place = tempfile::tempdir().unwrap();
        let beside = place.path().join("libstand-in.so");
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libstand-in.so"];
        compile_c(&folder().join("tests").join(library), &beside, &simulated, &shared).unwrap();
        let path = place.path().join("program");
        let folder_of = place.path().to_string_lossy();
        let (search, rpath) = (format!("-L{folder_of}"), format!("-Wl,-rpath,{folder_of}"));
        let named = format!("-DSTAND_IN=\"{}\"", beside.display());
        let arguments = [&[&*search, &rpath, &named], arguments].concat();
        compile_c(&folder().join("tests").join(source), &path, &simulated, &arguments).unwrap();
        Some(Self { _folder: place, path, simulated })
    }

    /// Ready to run, with a library preloaded.
    pub fn command(&self, preloaded: Option<&Path>, conf: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg("100").arg(&self.path).env("LD_LIBRARY_PATH", &self.simulated);
        command.env("SIMCUDA_CONF", conf).env_remove("DRYSTONE_CONF").env("RUST_BACKTRACE", "0");
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        command
    }

    /// Ready to run, with a library that it loads by itself.
    pub fn covered(&self, library: &Path, conf: &str) -> Command {
        let mut command = self.command(None, conf);
        command.env("COVERED", library);
        command
    }

    /// It succeeds, and the library says nothing.
    pub fn passes(&self, preloaded: Option<&Path>, conf: &str) {
        passes(self.command(preloaded, conf));
    }
}

/// A program succeeds, and the library says nothing. The simulator may, of what it does wrong.
pub fn passes(mut program: Command) {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("drystone") && output.stdout.is_empty(), "{}", describe(&output));
}

/// Every source of a folder is among these, or among the others.
pub fn all_are_run(sources: &str, files: &[&str], others: &[&str]) {
    for entry in std::fs::read_dir(folder().join("tests").join(sources)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(files.contains(&&*name) || others.contains(&&*name), "{name}");
    }
}
