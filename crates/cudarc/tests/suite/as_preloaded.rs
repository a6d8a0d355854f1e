//! After `install` programs see what they see where the library is preloaded, and without either:
//! the programs in C that are preloaded to in `crates/preload/tests`, run from here.
//!
//! A program is compiled as a library, which looks the driver's functions up where cudarc does. A
//! process of this test loads it, after `install` or without, and calls its `main`.

use std::env;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr;

use drystone::Options;
use drystone_cudarc::install;
use drystone_testkit::{compile_c, describe};
use libloading::os::unix::{Library, Symbol};

const PROGRAM: &str = "DRYSTONE_TEST_PROGRAM";
const CASE: &str = "DRYSTONE_TEST_CASE";
const INSTALLS: &str = "DRYSTONE_TEST_INSTALLS";

/// Compiles a program of `crates/preload/tests`; `None` where there is no simulated driver.
fn compiled(source: &str, arguments: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let Some(simulated) = env::var_os("DRYSTONE_SIMCUDA") else {
        eprintln!("{source} skipped: no simulated libcuda; `cargo xtask test` builds it");
        return None;
    };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("program.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests").join(source);
    let arguments = [&["-DWAY=3", "-shared", "-fPIC"], arguments].concat();
    compile_c(&source, &path, Path::new(&simulated), &arguments).unwrap();
    Some((place, path))
}

/// Runs a program in a process of its own.
fn run(program: &Path, case: &str, conf: &str, installs: bool) -> Output {
    let mut child = Command::new("timeout");
    child.arg("100").arg(env::current_exe().unwrap());
    child.args(["--exact", "as_preloaded::the_program", "--nocapture", "--quiet"]);
    child.env(PROGRAM, program).env(CASE, case).env("SIMCUDA_CONF", conf);
    child.env("LD_LIBRARY_PATH", env::var_os("DRYSTONE_SIMCUDA").unwrap());
    if installs {
        child.env(INSTALLS, "1");
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    output
}

/// Not a test: what the process of a program does.
#[test]
fn the_program() {
    let Some(program) = env::var_os(PROGRAM) else { return };
    if env::var_os(INSTALLS).is_some() {
        install(&Options::from_env().unwrap()).unwrap();
    }
    let name = CString::new(env::var(CASE).unwrap()).unwrap();
    let mut arguments = [c"program".as_ptr(), name.as_ptr(), ptr::null()];
    // SAFETY: the program looks its functions up, and does nothing else yet.
    let library = unsafe { Library::new(program) }.unwrap();
    type Main = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    // SAFETY: every program has a `main`, which takes these or nothing.
    let main: Symbol<Main> = unsafe { library.get(b"main") }.unwrap();
    // SAFETY: two C strings and a null.
    assert_eq!(unsafe { main(2, arguments.as_mut_ptr()) }, 0);
    // Handlers at exit are its own.
    std::mem::forget(library);
}

/// A program that checks by itself what it is given.
fn passes(name: &str, conf: &str) {
    let Some((_place, program)) = compiled(&format!("driver/{name}"), &[]) else { return };
    let output = run(&program, "", conf, true);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("drystone"), "{}", describe(&output));
}

/// A part of the program whose calls the device refuses while Drystone holds memory unused.
fn gets_what_is_unused(part: &str) {
    let Some((_place, program)) = compiled("driver/refused.c", &[]) else { return };
    let conf = "memory:1GiB,context:64MiB,driver_room:64MiB,oracle:true";
    let output = run(&program, part, conf, true);
    // Beside what the harness says.
    assert!(!String::from_utf8_lossy(&output.stdout).contains("cu"), "{}", describe(&output));
}

/// A case of the program that prints what it sees.
fn sees_the_same(case: &str) {
    let Some((_place, program)) = compiled("behaves.c", &["-l:libcudart.so.13"]) else { return };
    // Some cases hand over handles that are gone, on purpose.
    let conf = "devices:2,memory:4GiB,oracle:true,stale_handles_end:false";
    let [plain, installed] = [false, true].map(|installs| {
        let output = run(&program, case, conf, installs);
        let said = String::from_utf8(output.stdout).unwrap();
        // Beside what the harness says of its time.
        let lines = said.lines().filter(|line| !line.contains("finished in"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(plain.len() > 8, "{plain:?}");
    assert_eq!(installed, plain);
}

/// One device, so that a thread's context is remembered.
const ONE: &str = "memory:4GiB,oracle:true,backing:true";
const TWO: &str = "devices:2,memory:4GiB,oracle:true";
/// Less than the program would cache.
const TIGHT: &str = "memory:1GiB,oracle:true";
/// Memory is never short, and an event that is recorded at a miss tells nothing in time.
const ROOMY: &str = "memory:80GiB,oracle:true,event_latency_us:1000";
/// 1,000 streams and threads: neither the oracle nor bytes.
const CHURN: &str = "memory:80GiB";

// The one that uses the C interface is left out: that comes with the preloaded library.
macro_rules! programs {
    ($($test:ident: $file:literal on $conf:expr;)*) => {
        $(
            #[test]
            fn $test() {
                passes($file, $conf);
            }
        )*
    };
}

programs! {
    requests_are_served_and_a_hit_asks_nothing: "serves.c" on ONE;
    b05_streams_that_come_and_go_stay_ordered: "b05_streams.c" on ONE;
    what_a_program_orders_itself_serves_another_stream: "own_order.c" on ROOMY;
    b18_threads_record_and_wait_while_others_allocate: "b18_own_order.c" on TIGHT;
    b07_what_is_ready_at_once_is_so_on_any_stream: "b07_plain.c" on TIGHT;
    i11_b22_in_a_capture_memory_is_the_graphs: "i11_capture.c" on ONE;
    i11_b23_what_a_thread_captures_others_do_not_break: "i11_thread_capture.c" on ONE;
    b03_contexts_and_devices_are_told_apart: "b03_contexts.c" on TWO;
    after_a_reset_nothing_old_is_given_out: "reset.c" on ONE;
    b55_b56_p6_exit_and_forked_children_are_quiet: "b55_exit.c" on ONE;
    b18_threads_free_each_others_blocks: "b18_threads.c" on ONE;
    b01_b04_b20_streams_and_threads_leave_nothing_behind: "b20_churn.c" on CHURN;
}

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

// Exit is left out: its handlers would be the harness's.
parts! {
    b31_memory_that_was_refused_is_given_back: "memory";
    b31_the_drivers_own_pools_get_what_is_unused: "pools";
    b31_code_is_loaded_where_memory_is_unused: "code";
    b31_graphs_streams_events_and_contexts_get_what_is_unused: "others";
    i11_in_a_capture_nothing_is_given_back: "captured";
    b18_memory_is_given_back_while_others_miss: "threads";
}

macro_rules! cases {
    ($($test:ident: $case:literal;)*) => {
        $(
            #[test]
            fn $test() {
                sees_the_same($case);
            }
        )*
    };
}

// Those of the runtime, which goes past `install`, are left out.
cases! {
    attributes_and_ranges_of_addresses: "attributes";
    what_other_processes_may_have: "sharing";
    errors_of_wrong_calls: "errors";
    threads_without_a_context: "threads";
    free_memory_of_the_device: "information";
    i11_captures: "captures";
    pools_that_come_and_go: "pools";
    events_and_waits: "orders";
}
