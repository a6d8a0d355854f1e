//! Programs that use the CUDA runtime's stream-ordered memory and know nothing of the library that
//! is preloaded to them, on the simulated devices. A program checks by itself what it is given.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{checked_library, command, describe, root, simulated_cuda};

/// Two devices, the oracle on.
const CONF: &str = "devices:2,memory:4GiB,oracle:true";

/// A program, compiled for a version of the runtime.
struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
    simulated: PathBuf,
}

impl Program {
    /// `None` where there is no simulated driver. Linked with the library it is not preloaded.
    fn new(name: &str, runtime: u32, is_linked: bool) -> Option<Self> {
        let simulated = simulated_cuda()?;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path);
        compiler.arg(root().join("crates/capi/tests/preload").join(name));
        compiler.args(["-Wl,--no-as-needed", "-lpthread"]);
        if is_linked {
            compiler.arg("-L").arg(checked_library().parent().unwrap()).arg("-ldrystone");
        }
        compiler.arg("-L").arg(&simulated).arg(format!("-l:libcudart.so.{runtime}")).arg("-lcuda");
        let output = compiler.output().unwrap();
        assert!(output.status.success(), "{}", describe(&output));
        Some(Self { _folder: folder, path, simulated })
    }

    /// Runs it, with a library preloaded.
    fn run(&self, preloaded: Option<&Path>, options: &str) -> Output {
        let mut command = command(&self.path, Some(&self.simulated), CONF);
        command.env("DRYSTONE_CONF", options);
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        command.output().unwrap()
    }

    /// It succeeds, and the library says nothing. The simulator may, of what a program does wrong.
    fn passes(&self, preloaded: Option<&Path>) {
        let output = self.run(preloaded, "");
        assert!(output.status.success(), "{}", describe(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("drystone") && output.stdout.is_empty(), "{}", describe(&output));
    }
}

fn passes_preloaded(name: &str) {
    let Some(program) = Program::new(name, 13, false) else { return };
    program.passes(Some(checked_library()));
}

/// One test for each program that is to be served.
macro_rules! programs {
    ($($test:ident: $file:literal;)*) => {
        $(
            #[test]
            fn $test() {
                passes_preloaded($file);
            }
        )*

        const FILES: &[&str] = &[$($file),*];
    };
}

programs! {
    requests_are_served_and_pools_tell_it: "serves.c";
    b05_a_block_is_ordered_after_the_stream_it_is_freed_on: "b05_stream_order.c";
    i11_b22_a_capture_gets_memory_of_the_graphs: "i11_capture.c";
    pools_that_are_not_plain_stay_the_drivers: "pools.c";
    b03_devices_are_told_apart: "b03_devices.c";
    b18_threads_free_each_others_blocks: "b18_threads.c";
    b31_b33_memory_runs_out_and_comes_back: "b31_out_of_memory.c";
    b55_b56_p6_exit_and_forked_children_are_quiet: "b55_exit.c";
}

#[test]
fn the_runtime_of_cuda_12_is_stood_in_for_as_well() {
    let Some(program) = Program::new("serves.c", 12, false) else { return };
    program.passes(Some(checked_library()));
}

#[test]
fn a_program_that_is_only_linked_keeps_the_runtimes_memory() {
    let Some(program) = Program::new("passes_through.c", 13, true) else { return };
    program.passes(None);
    // Another library that is preloaded is not this one.
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("libother.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&other);
    assert!(compiler.status().unwrap().success());
    program.passes(Some(&other));
    // Preloaded, the same program is served.
    assert!(!program.run(Some(checked_library()), "").status.success());
}

#[test]
fn wrong_options_leave_the_runtimes_memory_and_say_so() {
    let Some(program) = Program::new("passes_through.c", 13, false) else { return };
    let output = program.run(Some(checked_library()), "limit:much");
    assert!(output.status.success(), "{}", describe(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.starts_with("drystone: preload: ")), "{said}");
    assert!(said.contains("limit") && said.lines().count() <= 8, "{said}");
}

#[test]
fn programs_without_cuda_do_not_notice() {
    let output = Command::new("true").env("LD_PRELOAD", checked_library()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", describe(&output));
}

#[test]
fn every_program_is_run() {
    let others = ["runtime.h", "passes_through.c"];
    for entry in std::fs::read_dir(root().join("crates/capi/tests/preload")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(FILES.contains(&&*name) || others.contains(&&*name), "{name}");
    }
}
