//! Programs that use the CUDA runtime's stream-ordered memory and know nothing of the library that
//! is preloaded to them, on the simulated devices. A program checks by itself what it is given.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{CONF, Program, all_are_run, library};
use drystone_testkit::describe;

/// A program, linked with a version of the runtime.
fn program(name: &str, runtime: u32) -> Option<Program> {
    let runtime = format!("-l:libcudart.so.{runtime}");
    Program::new(&format!("runtime/{name}"), &[&runtime, "-lcuda"])
}

fn passes_preloaded(name: &str) {
    let Some(program) = program(name, 13) else { return };
    program.passes(Some(library()), CONF);
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
    let Some(program) = program("serves.c", 12) else { return };
    program.passes(Some(library()), CONF);
}

#[test]
fn without_the_library_memory_is_the_drivers() {
    let Some(program) = program("passes_through.c", 13) else { return };
    program.passes(None, CONF);
    // Preloaded, the same program is served.
    let preloaded = program.command(Some(library()), CONF).output().unwrap();
    assert!(!preloaded.status.success(), "{}", describe(&preloaded));
}

#[test]
fn wrong_options_leave_the_drivers_memory_and_say_so_once() {
    let Some(program) = program("passes_through.c", 13) else { return };
    let mut command = program.command(Some(library()), CONF);
    let output = command.env("DRYSTONE_CONF", "limit:much").output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "drystone: device 0 is left to the driver: ";
    assert!(said.starts_with(expected) && said.contains("limit"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn every_program_is_run() {
    all_are_run("runtime", FILES, &["runtime.h", "passes_through.c"]);
}
