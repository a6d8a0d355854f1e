//! What programs built for CUDA 12 and for CUDA 13 find.

use std::ffi::{CStr, c_int, c_uint, c_void};

use crate::library::{Runtime, function};

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
    let Some(runtime) = Runtime::load("13") else { return };
    let create = function!(runtime.cudaStreamCreate(*mut *mut c_void));
    let begin = function!(runtime.cudaStreamBeginCapture(*mut c_void, c_int));
    let get = function!(runtime.cudaGetDeviceProperties(*mut u8, c_int));
    let end = function!(runtime.cudaStreamEndCapture(*mut c_void, *mut *mut c_void));
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
    extern "C" fn end(_: *mut c_void) {}
    let Some(runtime) = Runtime::load("13") else { return };
    let new_graph = function!(runtime.cudaGraphCreate(*mut *mut c_void, c_uint));
    let create = function!(runtime.cudaUserObjectCreate(
        *mut *mut c_void, *mut c_void, Option<extern "C" fn(*mut c_void)>, c_uint, c_uint
    ));
    let retain = function!(runtime.cudaGraphRetainUserObject(
        *mut c_void, *mut c_void, c_uint, c_uint
    ));
    let release = function!(runtime.cudaGraphReleaseUserObject(*mut c_void, *mut c_void, c_uint));
    let (mut graph, mut object) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(new_graph(&raw mut graph, 0), 0);
    assert_eq!(create(&raw mut object, graph, Some(end), 1, 1), 0);
    assert_eq!(retain(graph, object, 1, 0), 0);
    assert_eq!(release(graph, object, 1), 0);
    assert_ne!(retain(graph, graph, 1, 0), 0, "that is no object");
}

#[test]
fn captures_are_told_as_each_version_asks() {
    let (mut status, mut id) = (-1, 0);
    let Some(runtime) = Runtime::load("12") else { return };
    let tell = function!(runtime.cudaStreamGetCaptureInfo(*mut c_void, *mut c_int, *mut u64));
    assert_eq!(tell(std::ptr::null_mut(), &raw mut status, &raw mut id), 0);
    assert_eq!(status, 0);
    let Some(runtime) = Runtime::load("13") else { return };
    let tell = function!(runtime.cudaStreamGetCaptureInfo(
        *mut c_void, *mut c_int, *mut u64, *mut *mut c_void, *mut *const *mut c_void,
        *mut *const c_void, *mut usize
    ));
    let (mut graph, mut nodes, mut edges, mut count) =
        (std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 7);
    status = -1;
    let outcome = tell(
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
