//! NVML: it tells of every device of the machine, and starts nothing of CUDA.

use std::env;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::process::Command;
use std::ptr;

use crate::library::{Runtime, function};

/// Set in a process of the test's own.
const OWN: &str = "DRYSTONE_NVML_TEST";

#[test]
fn where_nvml_is_forbidden_it_starts_and_tells_of_no_device() {
    let Some(nvml) = Runtime::open("libnvidia-ml.so.1") else { return };
    let name = "nvml::where_nvml_is_forbidden_it_starts_and_tells_of_no_device";
    if env::var_os(OWN).is_some() {
        assert_eq!(nvml.call(c"nvmlInit_v2"), 0);
        // NVML_ERROR_NO_PERMISSION, by whichever call needs the device.
        assert_eq!(memory_of(&nvml, 0), Err(4));
        return;
    }
    let mut own = Command::new(env::current_exe().unwrap());
    own.args(["--exact", "--test-threads=1", name]);
    own.env(OWN, "1").env("SIMCUDA_CONF", "memory:8GiB,nvml:false");
    let output = own.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The memory of a device, or the first error.
fn memory_of(nvml: &Runtime, index: c_uint) -> Result<[c_ulonglong; 3], c_int> {
    let find = function!(nvml.nvmlDeviceGetHandleByIndex_v2(c_uint, *mut *mut c_void));
    let ask = function!(nvml.nvmlDeviceGetMemoryInfo(*mut c_void, *mut [c_ulonglong; 3]));
    let (mut device, mut memory) = (ptr::null_mut(), [0; 3]);
    let told = match find(index, &raw mut device) {
        0 => ask(device, &raw mut memory),
        error => error,
    };
    if told == 0 { Ok(memory) } else { Err(told) }
}

/// Asks NVML, then starts CUDA in a forked child. Returns devices as NVML counts them, and what
/// `cuInit` said in the child.
fn ask_and_fork(nvml: &Runtime) -> (c_uint, c_int) {
    assert_eq!(nvml.call(c"nvmlInit_v2"), 0);
    let mut count = 0;
    assert_eq!(function!(nvml.nvmlDeviceGetCount_v2(*mut c_uint))(&raw mut count), 0);
    for index in 0..count {
        assert_eq!(memory_of(nvml, index), Ok([8 << 30, 8 << 30, 0]));
    }
    let cuda = Runtime::open("libcuda.so.1").unwrap();
    let init = function!(cuda.cuInit(c_uint));
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(init(0)) };
    }
    let mut status = 0;
    // SAFETY: waits for the own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    (count, libc::WEXITSTATUS(status))
}

#[test]
fn every_device_is_told_of_and_cuda_may_start_in_a_forked_child() {
    let Some(nvml) = Runtime::open("libnvidia-ml.so.1") else { return };
    if let Some(wanted) = env::var_os(OWN) {
        assert_eq!(format!("{:?}", ask_and_fork(&nvml)), wanted.to_str().unwrap());
        return;
    }
    for (visible, wanted) in [(None, "(2, 0)"), (Some("1"), "(2, 0)"), (Some(""), "(2, 100)")] {
        let mut own = Command::new(env::current_exe().unwrap());
        own.args(["--exact", "--test-threads=1"]);
        own.arg("nvml::every_device_is_told_of_and_cuda_may_start_in_a_forked_child");
        own.env(OWN, wanted).env("SIMCUDA_CONF", "devices:2,memory:8GiB");
        own.env_remove("CUDA_VISIBLE_DEVICES");
        own.envs(visible.map(|visible| ("CUDA_VISIBLE_DEVICES", visible)));
        let output = own.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
