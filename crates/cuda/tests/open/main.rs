//! Opening a device where the driver is missing, old, incomplete, or promises too much.
//!
//! Each test compiles a small `libcuda.so` and runs a process that finds it first. B35: whatever
//! is found, the answer is an error that says what to do, never a panic.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::Path;
use std::process::Command;

use drystone_cuda::{CudaDevice, CudaOptions, device_count};
use drystone_driver::{Driver, MemoryPoolConfig, Stream};

const OPEN: &str = "DRYSTONE_CUDA_OPEN";
/// What else the process has loaded, where that is set.
const LOADED: &str = "DRYSTONE_CUDA_LOADED";

/// The process that is run: says what opening came to.
#[test]
fn opens_what_it_finds() {
    if env::var_os(OPEN).is_none() {
        return;
    }
    let loaded = env::var_os(LOADED).map(|name| {
        // SAFETY: nothing happens when these are loaded.
        unsafe { libloading::Library::new(name) }.unwrap()
    });
    match CudaDevice::open(0, &CudaOptions::default()) {
        Err(error) => println!("refused: {error}"),
        Ok(device) => {
            println!("{:?}", device.info());
            let uids =
                [0, 1, 2, 0x7000, 0x7000, 0x8000].map(|handle| device.stream_uid(Stream(handle)));
            println!("uids: {:?}", uids.map(|uid| uid.map_err(|error| error.code)));
            // What is offered would trap: nothing stands behind these drivers.
            if !device.info().has_virtual_memory {
                println!("{}", device.reserve(2 << 20, 0).unwrap_err());
            }
            if !device.info().has_async_malloc {
                let config = MemoryPoolConfig::default();
                println!("{}", device.create_memory_pool(&config).unwrap_err());
                println!("{}", device.free_async(512, Stream::DEFAULT).unwrap_err());
            }
        }
    }
    println!("count: {:?}", device_count());
    drop(loaded);
}

/// What that process says with such a driver first on the library path.
fn with_driver(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    compile(&folder.path().join("libcuda.so"), flags);
    run(folder.path())
}

fn compile(to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/open/driver.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(to);
    assert!(compiler.arg(source).args(flags).status().unwrap().success());
}

fn run(library_path: &Path) -> String {
    run_in(&mut Command::new(env::current_exe().unwrap()), library_path)
}

fn run_in(child: &mut Command, library_path: &Path) -> String {
    child.args(["--exact", "opens_what_it_finds", "--nocapture"]).env(OPEN, "1");
    let output = child.env("LD_LIBRARY_PATH", library_path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("count: "), "{said}");
    said
}

#[track_caller]
fn assert_says(said: &str, expected: &str) {
    assert!(said.contains(expected), "not said: {expected}\n{said}");
}

#[test]
fn b35_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path());
    if !said.contains("refused: ") {
        eprintln!("skipped: this machine has a driver where it is always found");
        return;
    }
    assert_says(&said, "no CUDA driver: libcuda.so.1, libcuda.so could not be loaded");
    assert_says(&said, "install the NVIDIA driver");
    assert_says(&said, "count: Err(NoLibrary");
}

#[test]
fn b35_an_old_driver() {
    let said = with_driver(&["-DVERSION=11080", "-DWITHOUT_STREAM_ID"]);
    assert_says(&said, "the CUDA driver offers CUDA 11.8, 12.0 or later is needed");
}

#[test]
fn b35_an_incomplete_driver() {
    let said = with_driver(&["-DWITHOUT_STREAM_ID"]);
    assert_says(&said, "the CUDA driver has no function cuStreamGetId");
}

#[test]
fn b35_the_toolkits_stub() {
    let stub = "is the stub that CUDA's toolkit has for linking";
    assert_says(&with_driver(&["-DVERSION_RESULT=34"]), stub);
    assert_says(&with_driver(&["-DINIT_RESULT=34"]), stub);
}

/// What the CUDA runtime uses is `libcuda.so.1`, whatever else there is.
#[test]
fn the_driver_that_others_use_goes_first_and_a_stub_is_passed_over() {
    for (first, second) in [("libcuda.so.1", "libcuda.so"), ("libcuda.so", "libcuda.so.1")] {
        let folder = tempfile::tempdir().unwrap();
        compile(&folder.path().join(first), &[]);
        compile(&folder.path().join(second), &["-DINIT_RESULT=34"]);
        assert_says(&run(folder.path()), "has_virtual_memory: false");
    }
    let folder = tempfile::tempdir().unwrap();
    compile(&folder.path().join("libcuda.so.1"), &[]);
    compile(&folder.path().join("libcuda.so"), &["-DINIT_RESULT=100"]);
    assert_says(&run(folder.path()), "has_virtual_memory: false");
}

#[test]
fn two_drivers_in_one_process_are_refused_with_words() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = ["libcuda.so.1", "libcuda.so"].map(|name| folder.path().join(name));
    compile(&own, &[]);
    compile(&other, &[]);
    let run_beside = || {
        let mut child = Command::new(env::current_exe().unwrap());
        run_in(child.env(LOADED, "libcuda.so"), folder.path())
    };
    let refused = "refused: two CUDA drivers in one process: libcuda.so is loaded";
    assert_says(&run_beside(), refused);
    // Under another name it is the same.
    std::fs::remove_file(&other).unwrap();
    std::os::unix::fs::symlink("libcuda.so.1", &other).unwrap();
    assert_says(&run_beside(), "has_virtual_memory: false");
}

#[test]
fn b35_no_device() {
    let said = with_driver(&["-DINIT_RESULT=100"]);
    assert_says(&said, "the CUDA driver sees no device; CUDA_VISIBLE_DEVICES may hide them");
    assert_says(&said, "count: Ok(0)");
    let said = with_driver(&["-DDEVICES=0"]);
    assert_says(&said, "the CUDA driver sees no device; CUDA_VISIBLE_DEVICES may hide them");
}

#[test]
fn b35_a_driver_that_refuses_names_call_error_and_number() {
    let said = with_driver(&["-DINIT_RESULT=803"]);
    assert_says(&said, "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (CUDA error 803)");
    let said = with_driver(&["-DRETAIN_RESULT=803"]);
    assert_says(&said, "cuDevicePrimaryCtxRetain failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

#[test]
fn b35_what_a_driver_has_no_functions_for_is_not_offered() {
    let said = with_driver(&[]);
    assert_says(&said, "has_virtual_memory: false, has_async_malloc: false");
    assert_says(&said, "has_gpu_direct_rdma: false, is_integrated: false, shareable_handle: None");
    let refused = "failed: not supported by this device";
    assert_says(&said, &format!("cuMemAddressReserve {refused} (2097152 bytes)"));
    assert_says(&said, &format!("cuMemPoolCreate {refused}"));
    assert_says(&said, &format!("cudaFreeAsync {refused} (address 0x200)"));
    let said = with_driver(&["-DMEMORY_POOLS"]);
    assert_says(&said, "has_virtual_memory: false, has_async_malloc: true");
}

#[test]
fn i11_a_stream_that_is_being_captured_is_never_asked_for_its_id() {
    let refused = ["Err(CaptureUnsupported)"; 6].join(", ");
    assert_says(&with_driver(&[]), &format!("uids: [{refused}]"));
}

#[test]
fn what_a_driver_promises_and_refuses_is_not_offered() {
    for flags in [&["-DVIRTUAL_MEMORY"][..], &["-DVIRTUAL_MEMORY", "-DWSL"]] {
        let said = with_driver(flags);
        assert_says(&said, "has_virtual_memory: true, has_async_malloc: false");
        assert_says(&said, "is_integrated: false, shareable_handle: PosixFd");
    }
}
