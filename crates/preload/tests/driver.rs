//! Programs that call the CUDA driver, on the simulated devices: linked with it, by `dlsym`, and by
//! `cuGetProcAddress`. They know nothing of the library that is preloaded to them; a program checks
//! by itself what it is given.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{CONF, Program, all_are_run, library, passes};
use drystone_testkit::describe;

/// One device, so that a thread's context is remembered.
const ONE: &str = "memory:4GiB,oracle:true,backing:true";

/// What the driver refuses does not end the program.
const FORGIVING: &str = "memory:4GiB,strict:false";

/// A driver that does not tell whose a captured stream is.
const BEFORE_12_5: &str = "memory:4GiB,driver:12040";

/// Less than the program would cache.
const TIGHT: &str = "memory:1GiB,oracle:true";

/// Memory is never short, and an event that is recorded at a miss tells nothing in time.
const ROOMY: &str = "memory:80GiB,oracle:true,event_latency_us:1000";

/// 1,000 streams and threads: neither the oracle nor bytes.
const CHURN: &str = "memory:80GiB";

/// Two that reach each other, with bytes: a write that goes nowhere is refused.
const PEERS: &str = "devices:2,memory:1GiB,backing:true,strict:true";

fn passes_preloaded(name: &str, conf: &str) {
    for way in ["-DWAY=0", "-DWAY=1", "-DWAY=2"] {
        let source = format!("driver/{name}");
        let Some(program) = Program::new(&source, &[way, "-lcuda"]) else { return };
        program.passes(Some(library()), conf);
    }
}

/// One test for each program that is to be served.
macro_rules! programs {
    ($($test:ident: $file:literal on $conf:expr;)*) => {
        $(
            #[test]
            fn $test() {
                passes_preloaded($file, $conf);
            }
        )*

        const FILES: &[&str] = &[$($file),*];
    };
}

programs! {
    requests_are_served_and_a_hit_asks_nothing: "serves.c" on ONE;
    b05_streams_that_come_and_go_stay_ordered: "b05_streams.c" on ONE;
    what_a_program_orders_itself_serves_another_stream: "own_order.c" on ROOMY;
    b18_threads_record_and_wait_while_others_allocate: "b18_own_order.c" on TIGHT;
    b07_what_is_ready_at_once_is_so_on_any_stream: "b07_plain.c" on TIGHT;
    b06_a_stream_that_dies_before_the_free_is_not_asked: "b06_recorded_use.c" on ONE;
    i11_b22_in_a_capture_memory_is_the_graphs: "i11_capture.c" on ONE;
    i11_b23_what_a_thread_captures_others_do_not_break: "i11_thread_capture.c" on ONE;
    i11_a_stream_that_is_not_destroyed_keeps_its_capture: "i11_refused_destroy.c" on FORGIVING;
    i11_whose_a_captured_stream_is_nobody_asks: "i11_unseen.c" on BEFORE_12_5;
    b03_contexts_and_devices_are_told_apart: "b03_contexts.c" on CONF;
    b08_a_block_freed_in_another_context_is_waited_for: "b08_other_context.c" on ONE;
    i14_what_is_told_of_mappings_may_free_and_begins_no_capture: "i14_told_of_mappings.c" on ONE;
    i14_a_provider_may_use_what_the_driver_has: "i14_provider.c" on TIGHT;
    memory_moves_while_another_thread_or_device_writes_to_it: "moves_beside_writes.c" on PEERS;
    i11_a_move_of_one_device_breaks_no_capture_of_another: "moves_beside_captures.c" on PEERS;
    after_a_reset_nothing_old_is_given_out: "reset.c" on ONE;
    b55_b56_p6_exit_and_forked_children_are_quiet: "b55_exit.c" on ONE;
    look_ups_find_ours_where_the_drivers_would_be: "lookup.c" on ONE;
    b18_threads_free_each_others_blocks: "b18_threads.c" on ONE;
    b18_b20_threads_share_streams_that_come_and_go: "b18_streams_and_threads.c" on TIGHT;
    b01_b04_b20_streams_and_threads_leave_nothing_behind: "b20_churn.c" on CHURN;
}

/// The lines of a trace, all whole, after its two of head.
fn events_of(trace: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(trace).unwrap();
    assert!(text.starts_with("# gpu-alloc-trace v1\n") && text.ends_with('\n'));
    let is_event = |line: &str| matches!(line.as_bytes()[0], b'a' | b'f');
    let events = text.lines().skip(2);
    events.inspect(|line| assert!(is_event(line), "{line:?}")).count()
}

#[test]
fn a_recording_ends_with_a_reset_and_the_next_has_a_file_of_its_own() {
    let Some(program) = Program::new("driver/record_reset.c", &["-DWAY=0", "-lcuda"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = program.command(Some(library()), ONE);
    let output = recorded.env("DRYSTONE_RECORD", folder.path().join("trace.csv")).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(events_of(&folder.path().join("trace.csv")), 8000);
    assert_eq!(events_of(&folder.path().join("trace-reset1.csv")), 6);
}

/// All is bound at once, and closed then.
const NOW: &str = "-Wl,-z,now,-z,relro";

/// Contexts and what the driver makes for itself take room, which a full device has not.
const FULL: &str = "memory:1GiB,context:64MiB,driver_room:64MiB,oracle:true";

/// Runs a part of a program linked with the driver, bound late or at once, by `dlsym`, and by
/// `cuGetProcAddress`: where the library serves, where Drystone's memory is asked for by its own
/// interface, and where the library was not preloaded.
fn gets_what_is_unused(part: &str) {
    for way in [["-DWAY=0", "-Wl,-z,lazy"], ["-DWAY=0", NOW], ["-DWAY=1", NOW], ["-DWAY=2", NOW]] {
        let arguments = [&way[..], &["-lcuda"]].concat();
        let Some(program) = Program::new("driver/refused.c", &arguments) else { return };
        let mut serves = program.command(Some(library()), FULL);
        serves.arg(part);
        let [mut gives, mut covers] =
            [program.command(Some(library()), FULL), program.covered(library(), FULL)];
        for command in [&mut gives, &mut covers] {
            command.env("DRYSTONE_PRELOAD", "gives-back").args([part, "own"]);
        }
        for mut command in [serves, gives, covers] {
            let output = command.output().unwrap();
            let is_quiet = output.stdout.is_empty();
            assert!(output.status.success() && is_quiet, "{command:?} {}", describe(&output));
        }
    }
}

/// One test for each part.
macro_rules! parts {
    ($($test:ident: $part:literal;)*) => {
        $(
            #[test]
            fn $test() {
                gets_what_is_unused($part);
            }
        )*
    };
}

parts! {
    b31_memory_that_was_refused_is_given_back: "memory";
    b31_the_drivers_own_pools_get_what_is_unused: "pools";
    b31_code_is_loaded_where_memory_is_unused: "code";
    b31_graphs_streams_events_and_contexts_get_what_is_unused: "others";
    i11_in_a_capture_nothing_is_given_back: "captured";
    b18_memory_is_given_back_while_others_miss: "threads";
    b55_at_exit_nothing_is_given_back: "exit";
}

/// Runs the program that shares memory in both modes of the library; what it says besides.
fn shares(part: &[&str], options: &str) -> Vec<String> {
    let mut said = Vec::new();
    for way in ["-DWAY=0", "-DWAY=1", "-DWAY=2"] {
        let Some(program) = Program::new("driver/ipc.c", &[way, "-lcuda"]) else { break };
        for own in [&[][..], &["own"]] {
            let folder = tempfile::tempdir().unwrap();
            let device = folder.path().join("device");
            let conf = format!("{ONE},shared:{}", device.display());
            let mut command = program.command(Some(library()), &conf);
            if !own.is_empty() {
                command.env("DRYSTONE_PRELOAD", "gives-back");
            }
            command.env("DRYSTONE_CONF", options).args(part).args(own);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{way} {own:?} {}", describe(&output));
            said.push(String::from_utf8(output.stderr).unwrap());
        }
    }
    said
}

#[test]
fn memory_goes_to_other_processes_by_the_drivers_old_calls_and_nothing_is_left_of_the_dead() {
    for said in shares(&[], "") {
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("does not give its memory"), "{said}");
    }
}

#[test]
fn memory_that_cannot_be_shared_is_refused_as_the_driver_refuses_it() {
    for said in shares(&["refused"], "shareable:false") {
        assert!(said.contains("say shareable:true"), "{said}");
    }
}

#[test]
fn i16_what_libraries_register_stays_until_it_is_given_up() {
    for way in [&["-DWAY=0", "-lcuda", "-lstand-in"][..], &["-DWAY=1", "-DLOOKED_UP", "-lcuda"]] {
        let (source, library) = ("driver/registration.c", "driver/libraries.c");
        let Some(program) = Program::with_library(source, library, way) else { return };
        program.passes(Some(crate::library()), ONE);
        passes(program.covered(crate::library(), ONE));
    }
}

/// It chooses its devices by itself, so it asks the driver for nothing before.
#[test]
fn p4_every_function_may_fail_on_every_device() {
    if let Some(program) = Program::new("driver/every_call_fails.c", &["-DWAY=0", "-lcuda"]) {
        program.passes(Some(library()), FORGIVING);
    }
}

#[test]
fn every_program_is_run() {
    all_are_run(
        "driver",
        FILES,
        &[
            "driver.h",
            "record_reset.c",
            "every_call_fails.c",
            "refused.c",
            "ipc.c",
            "libraries.c",
            "registration.c",
        ],
    );
}
