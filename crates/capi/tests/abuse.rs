//! Programs in C that misuse the library, each in a process of its own, on the simulated driver.
//!
//! A program checks by itself what it is told, and succeeds with status 0. What it writes to
//! standard output is what the library was to write to standard error, line by line.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{checked_library, command, compile, root};
use drystone_testkit::{describe, simulated_cuda};

/// Two devices, the oracle on. An illegal call ends the program.
const CONF: &str = "devices:2,memory:4GiB,strict:true,oracle:true";

fn passes(name: &str, needs_driver: bool, arguments: &[&Path]) {
    let Some(simulated) = simulated_cuda() else { return };
    let simulated = needs_driver.then_some(&*simulated);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let is_linked = simulated.filter(|_| arguments.is_empty());
    compile(&root().join("crates/capi/tests/abuse").join(name), &program, is_linked);
    let output = command(&program, simulated, CONF).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let (expected, written) = (&output.stdout, &output.stderr);
    assert_eq!(String::from_utf8_lossy(written), String::from_utf8_lossy(expected));
}

/// One test for each program.
macro_rules! programs {
    ($($test:ident: $file:literal;)*) => {
        $(
            #[test]
            fn $test() {
                passes($file, true, &[]);
            }
        )*

        const FILES: &[&str] = &[$($file),*];
    };
}

programs! {
    p3_b42_b64_bad_frees_change_nothing: "p3_bad_frees.c";
    p4_every_function_may_fail_on_every_device: "every_call_fails.c";
    b36_b39_sizes_have_one_answer: "b39_sizes.c";
    b55_p6_frees_at_exit_succeed: "b55_exit.c";
    b56_p6_a_forked_child_is_refused: "b56_fork.c";
    b35_an_odd_driver_serves_or_says_why: "b35_odd_driver.c";
    b18_b20_threads_and_streams_come_and_go: "b18_threads.c";
    b57_a_thread_frees_while_it_ends: "b57_thread_end.c";
    b01_b04_b20_streams_and_threads_leave_nothing_behind: "b20_churn.c";
    b04_per_thread_streams_are_told_apart: "b04_per_thread_streams.c";
    b01_b02_b06_b14_handles_are_recycled: "b02_recycled_handle.c";
    b07_what_is_given_back_is_ready_on_any_stream: "b07_plain.c";
    b08_b16_a_failed_record_is_no_free_block: "b08_failed_record.c";
    b28_b30_b33_b62_memory_runs_out_and_comes_back: "b33_out_of_memory.c";
    a_device_that_was_reset_gives_no_old_memory: "device_reset.c";
    b11_what_a_peer_has_queued_is_waited_for: "b11_peer.c";
    b22_b27_i11_a_capture_survives: "b22_capture.c";
    b22_a_device_is_opened_while_a_graph_is_captured: "first_use_captured.c";
    b44_every_function_that_frees_keeps_count: "b44_frees.c";
    b52_options_are_settled_by_the_first_use: "b52_configure.c";
    b02_b03_b10_devices_are_told_apart: "b03_devices.c";
    p8_b26_a_pool_asks_its_filter: "p8_pool_filter.cpp";
    tensorrt_gets_memory_by_its_allocator: "tensorrt.cpp";
    p9_a_broken_heap_refuses_all_but_to_be_looked_at: "p9_poisoned.c";
    b53_many_pools_leave_addresses: "many_pools.c";
    memory_grows_in_place_by_its_address: "growable.c";
    who_is_told_of_mappings_waits_for_no_memory_that_grows: "growable_callback.c";
    memory_goes_to_another_process_and_back: "shared.c";
    a_snapshot_is_there_whole_or_not_at_all: "snapshot_file.c";
    b08_a_use_in_another_context_is_waited_for: "other_context.c";
}

#[test]
fn b55_without_a_driver_every_call_says_so() {
    passes("b55_no_driver.c", false, &[]);
}

#[test]
fn b43_two_copies_and_dlclose_with_live_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libother.so");
    std::fs::copy(checked_library(), &copy).unwrap();
    passes("b43_two_copies.c", true, &[checked_library(), &copy]);
}

#[test]
fn a_program_is_recorded_until_it_exits() {
    let Some(simulated) = simulated_cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, trace) = (folder.path().join("program"), folder.path().join("trace.csv"));
    let source = root().join("crates/capi/tests/abuse/b02_recycled_handle.c");
    compile(&source, &program, Some(&simulated));
    let mut recorded = command(&program, Some(&simulated), CONF);
    let output = recorded.env("DRYSTONE_RECORD", &trace).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let text = std::fs::read_to_string(&trace).unwrap();
    let count = |op: &str| text.lines().filter(|line| line.starts_with(op)).count();
    assert!(count("a,") > 3 && count("f,") > 3 && text.ends_with('\n'), "{text}");
    let output = recorded.env("DRYSTONE_RECORD", "/nowhere/trace.csv").output().unwrap();
    assert!(
        !output.status.success() && describe(&output).contains("DRYSTONE_RECORD: cannot write")
    );
}

/// Each line is there once, and whole: numbers are given out and taken back in turn.
#[test]
fn b56_a_recording_is_its_own_process_alone() {
    let Some(simulated) = simulated_cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, trace) = (folder.path().join("program"), folder.path().join("trace.csv"));
    compile(&root().join("crates/capi/tests/abuse/record_fork.c"), &program, Some(&simulated));
    let mut recorded = command(&program, Some(&simulated), CONF);
    let output = recorded.env("DRYSTONE_RECORD", &trace).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let text = std::fs::read_to_string(&trace).unwrap();
    let mut live = 0;
    for line in text.lines().skip(2) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), 6, "{line}");
        live += if fields[0] == "a" { 1 } else { -1 };
        assert!((0..=1).contains(&live), "{line}");
    }
    assert!(text.lines().count() > 100, "{text}");
}

#[test]
fn every_program_is_run() {
    let others = ["abuse.h", "b55_no_driver.c", "b43_two_copies.c", "record_fork.c"];
    for entry in std::fs::read_dir(root().join("crates/capi/tests/abuse")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(FILES.contains(&&*name) || others.contains(&&*name), "{name}");
    }
}
