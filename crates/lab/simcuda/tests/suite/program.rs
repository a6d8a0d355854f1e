//! Tests as programs of their own, and short forms of what all of them say.

use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status};
use drystone_testkit::SimCuda;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::ptr::null_mut;

/// The folder of the simulated libraries; `None` says that the test skips.
pub(crate) fn libraries() -> Option<PathBuf> {
    let folder = std::env::var_os("DRYSTONE_SIMCUDA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: DRYSTONE_SIMCUDA does not name the built libraries");
    }
    folder
}

/// The test that a closure stands in.
fn test_of<F>(_: &F) -> &'static str {
    let name = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    name.split_once("::").map_or(name, |(_, test)| test)
}

/// How the program ended that a closure of a test is: `None` in the program itself, or where there
/// is nothing to run on.
pub(crate) fn run_alone(conf: &str, body: impl FnOnce()) -> Option<Output> {
    ended(conf, test_of(&body), body)
}

fn ended(conf: &str, test: &str, body: impl FnOnce()) -> Option<Output> {
    if std::env::var_os("SIMCUDA_TEST_PROGRAM").is_some() {
        body();
        return None;
    }
    let folder = libraries()?;
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    program.env("SIMCUDA_TEST_PROGRAM", "1").env("SIMCUDA_CONF", conf);
    program.env("LD_LIBRARY_PATH", folder).env("RUST_BACKTRACE", "0");
    Some(program.output().unwrap())
}

/// The same of a program that starts CUDA first.
pub(crate) fn run(conf: &str, body: impl FnOnce()) -> Option<Output> {
    ended(conf, test_of(&body), || {
        start();
        body();
    })
}

/// Runs a test as a program, which must end well. It starts CUDA first.
pub(crate) fn passes(conf: &str, body: impl FnOnce()) {
    let test = test_of(&body);
    must_pass(test, run(conf, body));
}

/// The same of one that does not.
pub(crate) fn passes_alone(conf: &str, body: impl FnOnce()) {
    let test = test_of(&body);
    must_pass(test, run_alone(conf, body));
}

fn must_pass(test: &str, output: Option<Output>) {
    let Some(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {}\n{said}\n{complained}", output.status);
    assert!(said.contains("1 passed"), "{test} ran nothing:\n{said}");
}

/// Calls a CUDA function, which must give a result; success unless said otherwise.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        cu!($function($($argument),*) => CUDA_SUCCESS)
    };
    ($function:ident($($argument:expr),* $(,)?) => $result:ident) => {{
        // SAFETY: a call of the simulated driver, which checks whatever it is handed.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        assert_eq!(result, cudarc::driver::sys::CUresult::$result, stringify!($function));
    }};
}
pub(crate) use cu;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const GRANULE: usize = 2 * MIB;

/// Initialises CUDA and makes the first device's primary context current.
pub(crate) fn start() {
    cu!(cuInit(0));
    use_device(0);
}

pub(crate) fn use_device(ordinal: i32) -> sys::CUcontext {
    let mut context = null_mut();
    cu!(cuDevicePrimaryCtxRetain(&mut context, ordinal));
    cu!(cuCtxSetCurrent(context));
    context
}

pub(crate) fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    cu!(cuMemAlloc_v2(&mut address, bytes));
    address
}

pub(crate) fn stream() -> sys::CUstream {
    let mut stream = null_mut();
    cu!(cuStreamCreate(&mut stream, 1));
    stream
}

pub(crate) fn event(flags: u32) -> sys::CUevent {
    let mut event = null_mut();
    cu!(cuEventCreate(&mut event, flags));
    event
}

/// What is allocated on a device, by the API itself.
pub(crate) fn used_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    cu!(cuMemGetInfo_v2(&mut free, &mut total));
    total - free
}

pub(crate) fn told_of<T: Default>(address: u64, attribute: sys::CUpointer_attribute) -> T {
    let mut told = T::default();
    cu!(cuPointerGetAttribute((&raw mut told).cast(), attribute, address));
    told
}

pub(crate) fn word_at(address: u64) -> u32 {
    let mut seen = 0u32;
    cu!(cuMemcpyDtoH_v2((&raw mut seen).cast(), address, 4));
    seen
}

pub(crate) const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
pub(crate) const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
pub(crate) const ACTIVE: Status = Status::CU_STREAM_CAPTURE_STATUS_ACTIVE;
pub(crate) const INVALIDATED: Status = Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED;

pub(crate) fn status_of(stream: sys::CUstream) -> Status {
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    cu!(cuStreamIsCapturing(stream, &mut status));
    status
}

/// A structure of CUDA's that is plain data, for which zeroes are a value.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: those that tests ask for are plain data.
    unsafe { std::mem::zeroed() }
}

/// Properties of memory on a device, which others may be given.
pub(crate) fn properties(ordinal: i32) -> sys::CUmemAllocationProp {
    let mut properties: sys::CUmemAllocationProp = zeroed();
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes =
        sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = location(ordinal);
    properties
}

pub(crate) fn pool_properties() -> sys::CUmemPoolProps {
    let mut properties: sys::CUmemPoolProps = zeroed();
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(0);
    properties
}

pub(crate) fn location(ordinal: i32) -> sys::CUmemLocation {
    let mut location: sys::CUmemLocation = zeroed();
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    set_id(&mut location, ordinal);
    location
}

/// Sets the ordinal, which newer bindings have in a union: it is the second word of two.
fn set_id(location: &mut sys::CUmemLocation, ordinal: i32) {
    let words = std::ptr::from_mut(location).cast::<i32>();
    // SAFETY: the structure is two words of 32 bits.
    unsafe { words.wrapping_add(1).write(ordinal) };
}

pub(crate) fn access(ordinal: i32) -> sys::CUmemAccessDesc {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sys::CUmemAccessDesc { location: location(ordinal), flags }
}

pub(crate) fn create(bytes: usize) -> u64 {
    let mut handle = 0;
    cu!(cuMemCreate(&mut handle, bytes, &properties(0), 0));
    handle
}

pub(crate) fn reserve(bytes: usize) -> u64 {
    let mut address = 0;
    cu!(cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    address
}

/// Maps memory, and opens it to a device.
pub(crate) fn map(address: u64, bytes: usize, handle: u64, ordinal: i32) {
    cu!(cuMemMap(address, bytes, 0, handle, 0));
    cu!(cuMemSetAccess(address, bytes, &access(ordinal), 1));
}

/// The control functions of the simulated driver.
pub(crate) fn sim() -> SimCuda {
    SimCuda::find().unwrap()
}

/// Puts a fresh device by the environment's settings instead of the first one.
pub(crate) fn reset() {
    sim().reset_device(0, "").unwrap();
}

pub(crate) fn launch(stream: sys::CUstream, ns: u64) {
    sim().launch(0, stream.cast(), ns).unwrap();
}
