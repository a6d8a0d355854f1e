//! The folder that `cargo xtask capi` makes is found by pkg-config and by CMake: the example of
//! `docs/use/c-api.md` is built by each, and runs.
//!
//! `DRYSTONE_LIBRARY` names the library in the folder.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::block_of_the_document;
use drystone_testkit::{describe, simulated_cuda};

const PROJECT: &str = "\
cmake_minimum_required(VERSION 3.15)
project(example C)
find_package(drystone 0.1 REQUIRED)
add_executable(example example.c)
target_link_libraries(example PRIVATE drystone::drystone)
";

/// The folder, moved to where it was not made: nothing in it may say where it lies.
fn moved(to: &Path) -> Option<PathBuf> {
    let Some(library) = env::var_os("DRYSTONE_LIBRARY").map(PathBuf::from) else {
        eprintln!("skipped: DRYSTONE_LIBRARY names no library; run `cargo xtask capi`");
        return None;
    };
    let made = library.parent()?.parent()?;
    let folder = to.join("drystone");
    run(Command::new("cp").arg("-a").arg(made).arg(&folder));
    Some(folder)
}

/// Whether a program is there; says so if not.
fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: there is no {program}");
    }
    is_there
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The example finds the library by the name with its number, and does what the document says.
fn does_what_it_says(program: &Path, folder: &Path) {
    let Some(simulated) = simulated_cuda() else { return };
    let folders = env::join_paths([folder.join("lib"), simulated]).unwrap();
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", folders));
    assert_eq!(said, block_of_the_document("text"));
    let needs = run(Command::new("readelf").args(["-d", "-W"]).arg(program));
    assert!(needs.contains(&format!("[{}]", common::SONAME)), "{needs}");
}

#[test]
fn pkg_config_finds_it() {
    let place = tempfile::tempdir().unwrap();
    let Some(folder) = moved(place.path()).filter(|_| is_there("pkg-config")) else { return };
    let source = place.path().join("example.c");
    fs::write(&source, block_of_the_document("c")).unwrap();
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig"));
    let flags =
        run(ask.args(["--cflags", "--libs", &format!("drystone = {}", env!("CARGO_PKG_VERSION"))]));
    let program = place.path().join("example");
    let mut compiler = Command::new("cc");
    run(compiler.arg(&source).arg("-o").arg(&program).args(flags.split_whitespace()));
    does_what_it_says(&program, &folder);
}

#[test]
fn cmake_finds_it() {
    let place = tempfile::tempdir().unwrap();
    let Some(folder) = moved(place.path()).filter(|_| is_there("cmake")) else { return };
    fs::write(place.path().join("example.c"), block_of_the_document("c")).unwrap();
    fs::write(place.path().join("CMakeLists.txt"), PROJECT).unwrap();
    let built = place.path().join("built");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(place.path()).arg("-B").arg(&built);
    run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", folder.display())));
    run(Command::new("cmake").arg("--build").arg(&built));
    does_what_it_says(&built.join("example"), &folder);
}
