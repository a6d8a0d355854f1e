//! What programs built for CUDA 12 and for CUDA 13 find.

use std::ffi::{CStr, c_int, c_uint, c_void};

use crate::library::Runtime;

type GetProperties = extern "C" fn(*mut u8, c_int) -> c_int;

#[test]
fn each_library_tells_its_version_and_exports_names_under_it() {
    let versions: [(&str, &CStr, &CStr, c_int); 2] = [
        ("12", c"libcudart.so.12", c"libcudart.so.13", 12_080),
        ("13", c"libcudart.so.13", c"libcudart.so.12", 13_000),
    ];
    for (version, own, other, number) in versions {
        let Some(runtime) = Runtime::load(version) else { return };
        assert_eq!(runtime.number(c"cudaRuntimeGetVersion"), number);
        for name in [c"cudaMalloc", c"cudaGetDeviceProperties", c"__cudaRegisterFatBinary"] {
            assert!(runtime.has_version(name, own), "{name:?} {own:?}");
            assert!(!runtime.has_version(name, other), "{name:?} {other:?}");
        }
    }
}

#[test]
fn properties_are_laid_out_for_each_version() {
    let records: [(&str, &CStr, usize, usize); 3] = [
        ("13", c"cudaGetDeviceProperties", 1008, 384),
        ("12", c"cudaGetDeviceProperties_v2", 1032, 388),
        ("12", c"cudaGetDeviceProperties", 728, 388),
    ];
    for (version, name, size, processors_at) in records {
        let Some(runtime) = Runtime::load(version) else { return };
        let get: GetProperties = runtime.function(name);
        let mut record = vec![0xAA_u8; 2048];
        assert_eq!(get(record.as_mut_ptr(), 0), 0);
        let processors = record[processors_at..processors_at + 4].try_into().unwrap();
        assert_eq!(i32::from_ne_bytes(processors), 132);
        // Nothing is written behind the record, and all of it is.
        assert!(record[size..].iter().all(|byte| *byte == 0xAA));
        assert_ne!(record[size - 4..size], [0xAA; 4]);
        assert_eq!(get(record.as_mut_ptr(), 64), 101);
        assert_eq!(get(std::ptr::null_mut(), 0), 1);
    }
}

/// As PyTorch asks where an expandable segment begins in a capture.
#[test]
fn properties_may_be_asked_for_in_a_capture() {
    type Begin = extern "C" fn(*mut c_void, c_int) -> c_int;
    let Some(runtime) = Runtime::load("13") else { return };
    let create: extern "C" fn(*mut *mut c_void) -> c_int = runtime.function(c"cudaStreamCreate");
    let begin: Begin = runtime.function(c"cudaStreamBeginCapture");
    let get: GetProperties = runtime.function(c"cudaGetDeviceProperties");
    let end: extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int =
        runtime.function(c"cudaStreamEndCapture");
    let (mut stream, mut graph) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(create(&raw mut stream), 0);
    assert_eq!(begin(stream, 0), 0);
    let mut record = vec![0_u8; 2048];
    assert_eq!(get(record.as_mut_ptr(), 0), 0);
    assert_ne!(record[0], 0, "a name");
    assert_eq!(end(stream, &raw mut graph), 0);
}

/// As NCCL has a graph keep what a captured collective uses.
#[test]
fn graphs_keep_objects_of_the_program() {
    type Create = extern "C" fn(
        *mut *mut c_void,
        *mut c_void,
        Option<extern "C" fn(*mut c_void)>,
        c_uint,
        c_uint,
    ) -> c_int;
    type Retain = extern "C" fn(*mut c_void, *mut c_void, c_uint, c_uint) -> c_int;
    extern "C" fn end(_: *mut c_void) {}
    let Some(runtime) = Runtime::load("13") else { return };
    let new_graph: extern "C" fn(*mut *mut c_void, c_uint) -> c_int =
        runtime.function(c"cudaGraphCreate");
    let create: Create = runtime.function(c"cudaUserObjectCreate");
    let retain: Retain = runtime.function(c"cudaGraphRetainUserObject");
    let release: extern "C" fn(*mut c_void, *mut c_void, c_uint) -> c_int =
        runtime.function(c"cudaGraphReleaseUserObject");
    let (mut graph, mut object) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(new_graph(&raw mut graph, 0), 0);
    assert_eq!(create(&raw mut object, graph, Some(end), 1, 1), 0);
    assert_eq!(retain(graph, object, 1, 0), 0);
    assert_eq!(release(graph, object, 1), 0);
    assert_ne!(retain(graph, graph, 1, 0), 0, "that is no object");
}

#[test]
fn captures_are_told_as_each_version_asks() {
    type CaptureInfo12 = extern "C" fn(*mut c_void, *mut c_int, *mut u64) -> c_int;
    type CaptureInfo13 = extern "C" fn(
        *mut c_void,
        *mut c_int,
        *mut u64,
        *mut *mut c_void,
        *mut *const *mut c_void,
        *mut *const c_void,
        *mut usize,
    ) -> c_int;
    let (mut status, mut id) = (-1, 0);
    let Some(runtime) = Runtime::load("12") else { return };
    let told: CaptureInfo12 = runtime.function(c"cudaStreamGetCaptureInfo");
    assert_eq!(told(std::ptr::null_mut(), &raw mut status, &raw mut id), 0);
    assert_eq!(status, 0);
    let Some(runtime) = Runtime::load("13") else { return };
    let told: CaptureInfo13 = runtime.function(c"cudaStreamGetCaptureInfo");
    let (mut graph, mut nodes, mut edges, mut count) =
        (std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 7);
    status = -1;
    let outcome = told(
        std::ptr::null_mut(),
        &raw mut status,
        &raw mut id,
        &raw mut graph,
        &raw mut nodes,
        &raw mut edges,
        &raw mut count,
    );
    assert_eq!((outcome, status), (0, 0));
}
