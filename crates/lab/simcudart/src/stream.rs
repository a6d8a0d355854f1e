//! Streams and their capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use crate::driver::{Address, Handle, HostFunction, Status, Stream, StreamCallback};
use crate::forward::{forward, per_thread};

forward! {
    cudaStreamCreateWithPriority =>
        cuStreamCreateWithPriority(stream: *mut Stream, flags: c_uint, priority: c_int);
    cudaStreamDestroy => cuStreamDestroy_v2(stream: Stream);
    cudaStreamQuery / cudaStreamQuery_ptsz => cuStreamQuery(stream: Stream);
    cudaStreamSynchronize / cudaStreamSynchronize_ptsz => cuStreamSynchronize(stream: Stream);
    cudaStreamWaitEvent / cudaStreamWaitEvent_ptsz =>
        cuStreamWaitEvent(stream: Stream, event: Handle, flags: c_uint);
    cudaStreamGetPriority / cudaStreamGetPriority_ptsz =>
        cuStreamGetPriority(stream: Stream, priority: *mut c_int);
    cudaStreamGetFlags / cudaStreamGetFlags_ptsz =>
        cuStreamGetFlags(stream: Stream, flags: *mut c_uint);
    cudaStreamGetId / cudaStreamGetId_ptsz =>
        cuStreamGetId(stream: Stream, id: *mut c_ulonglong);
    cudaStreamAddCallback / cudaStreamAddCallback_ptsz =>
        cuStreamAddCallback(stream: Stream, function: StreamCallback, data: Address, flags: c_uint);
    cudaLaunchHostFunc / cudaLaunchHostFunc_ptsz =>
        cuLaunchHostFunc(stream: Stream, function: HostFunction, data: Address);
    cudaStreamBeginCapture / cudaStreamBeginCapture_ptsz =>
        cuStreamBeginCapture_v2(stream: Stream, mode: c_int);
    cudaStreamEndCapture / cudaStreamEndCapture_ptsz =>
        cuStreamEndCapture(stream: Stream, graph: *mut Handle);
    cudaStreamIsCapturing / cudaStreamIsCapturing_ptsz =>
        cuStreamIsCapturing(stream: Stream, status: *mut c_int);
    cudaStreamBeginCaptureToGraph / cudaStreamBeginCaptureToGraph_ptsz =>
        cuStreamBeginCaptureToGraph(
            stream: Stream, graph: Handle, dependencies: *const Handle, edges: *const c_void,
            count: usize, mode: c_int);
    cudaStreamUpdateCaptureDependencies_v2 / cudaStreamUpdateCaptureDependencies_v2_ptsz =>
        cuStreamUpdateCaptureDependencies_v2(
            stream: Stream, dependencies: *mut Handle, edges: *const c_void, count: usize,
            flags: c_uint);
    cudaStreamGetDevice / cudaStreamGetDevice_ptsz =>
        cuStreamGetDevice(stream: Stream, device: *mut c_int);
    cudaStreamCopyAttributes / cudaStreamCopyAttributes_ptsz =>
        cuStreamCopyAttributes(to: Stream, from: Stream);
    cudaStreamGetAttribute / cudaStreamGetAttribute_ptsz =>
        cuStreamGetAttribute(stream: Stream, attribute: c_int, value: *mut c_void);
    cudaStreamSetAttribute / cudaStreamSetAttribute_ptsz =>
        cuStreamSetAttribute(stream: Stream, attribute: c_int, value: *const c_void);
    cudaThreadExchangeStreamCaptureMode => cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    cudaStreamGetCaptureInfo_v3 / cudaStreamGetCaptureInfo_v3_ptsz => cuStreamGetCaptureInfo_v3(
        stream: Stream,
        status: *mut c_int,
        id: *mut c_ulonglong,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        edges: *mut *const c_void,
        count: *mut usize);
}

/// Makes a stream that the default stream of the device waits for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreate(stream: *mut Stream) -> Status {
    // SAFETY: the caller passes room for a handle.
    unsafe { cudaStreamCreateWithPriority(stream, 0, 0) }
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut Stream, flags: c_uint) -> Status {
    // SAFETY: the caller passes room for a handle.
    unsafe { cudaStreamCreateWithPriority(stream, flags, 0) }
}

/// As CUDA 11.3 had it: without what joins the nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: Stream,
    status: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut Handle,
    dependencies: *mut *const Handle,
    count: *mut usize,
) -> Status {
    let edges = ptr::null_mut();
    // SAFETY: the contract is the same; null is allowed for what is not wanted.
    unsafe { cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count) }
}

/// As CUDA 10 had it: the status and the capture's number only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo_v1(
    stream: Stream,
    status: *mut c_int,
    id: *mut c_ulonglong,
) -> Status {
    let (graph, dependencies, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the contract is the same; null is allowed for what is not wanted.
    unsafe { cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count) }
}

/// `cudaStreamUpdateCaptureDependencies` of CUDA 12.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamUpdateCaptureDependencies_v1(
    stream: Stream,
    dependencies: *mut Handle,
    count: usize,
    flags: c_uint,
) -> Status {
    let edges = ptr::null();
    // SAFETY: the contract is the same; no edge data means the usual one.
    unsafe { cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags) }
}

per_thread! {
    cudaStreamUpdateCaptureDependencies_v1_ptsz => cudaStreamUpdateCaptureDependencies_v1(
        stream: Stream, dependencies: *mut Handle, count: usize, flags: c_uint);
    cudaStreamGetCaptureInfo_v2_ptsz => cudaStreamGetCaptureInfo_v2(
        stream: Stream,
        status: *mut c_int,
        id: *mut c_ulonglong,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        count: *mut usize);
    cudaStreamGetCaptureInfo_v1_ptsz => cudaStreamGetCaptureInfo_v1(
        stream: Stream, status: *mut c_int, id: *mut c_ulonglong);
}
