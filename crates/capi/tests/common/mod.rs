//! The library as it is shipped, C programs against it, and the simulated driver they run on.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "no test uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Cargo's target folder.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// What the library is called in the programs that are linked with it: with the number of the
/// binary interface.
pub const SONAME: &str = "libdrystone.so.1";

/// The library with its own checks on, built once: no test links it, so it is built here.
pub fn checked_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "drystone-library", "--target-dir"]);
        let output = build.arg(target()).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let library = target().join("debug/libdrystone.so");
        // The name that programs ask for.
        let named = library.with_file_name(SONAME);
        let _ = std::fs::remove_file(&named);
        std::os::unix::fs::symlink("libdrystone.so", &named).unwrap();
        library
    })
}

/// The first block of code in a language in `docs/use/c-api.md`: `c` is the example, `text` what it
/// prints.
pub fn block_of_the_document(language: &str) -> String {
    let document = std::fs::read_to_string(root().join("docs/use/c-api.md")).unwrap();
    let (_, rest) = document.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Compiles a program against the header and the library, strictly.
pub fn compile(source: &Path, program: &Path, simulated: Option<&Path>) {
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let mut compiler = Command::new(if is_cpp { "c++" } else { "cc" });
    compiler.arg(if is_cpp { "-std=c++11" } else { "-std=gnu11" });
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).arg(source);
    compiler.arg("-I").arg(root().join("crates/capi/include"));
    compiler.arg("-L").arg(checked_library().parent().unwrap()).arg("-ldrystone");
    if let Some(folder) = simulated {
        compiler.arg("-L").arg(folder).arg("-lcuda");
    }
    compiler.args(["-lpthread", "-ldl"]);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program, ready to run on the simulated devices that `conf` describes; without a driver if
/// there is no folder.
pub fn command(program: &Path, simulated: Option<&Path>, conf: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg("100").arg(program);
    let mut folders = vec![checked_library().parent().unwrap()];
    folders.extend(simulated);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
    command.env("SIMCUDA_CONF", conf).env_remove("DRYSTONE_CONF").env("RUST_BACKTRACE", "0");
    command
}
