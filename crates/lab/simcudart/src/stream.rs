//! Streams and their capture, and events.

use crate::context::make_current;
use crate::driver::{Address, Handle, HostFunction, IpcHandle, Stream, StreamCallback};
use crate::export::{adapt, forward};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

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
        stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Handle,
        dependencies: *mut *const Handle, edges: *mut *const c_void, count: *mut usize);
}

adapt! {
    cudaStreamCreate(stream: *mut Stream) => cudaStreamCreateWithPriority(stream, 0, 0);
    cudaStreamCreateWithFlags(stream: *mut Stream, flags: c_uint) =>
        cudaStreamCreateWithPriority(stream, flags, 0);
    /// As CUDA 11.3 had it: without what joins the nodes.
    cudaStreamGetCaptureInfo_v2 / cudaStreamGetCaptureInfo_v2_ptsz (
        stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Handle,
        nodes: *mut *const Handle, count: *mut usize
    ) => cudaStreamGetCaptureInfo_v3(
        stream, status, id, graph, nodes, ptr::null_mut(), count);
    /// As CUDA 10 had it: the status and the capture's number only.
    cudaStreamGetCaptureInfo_v1 / cudaStreamGetCaptureInfo_v1_ptsz (
        stream: Stream, status: *mut c_int, id: *mut c_ulonglong
    ) => cudaStreamGetCaptureInfo_v2(
        stream, status, id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    /// `cudaStreamUpdateCaptureDependencies` of CUDA 12.
    cudaStreamUpdateCaptureDependencies_v1 / cudaStreamUpdateCaptureDependencies_v1_ptsz (
        stream: Stream, nodes: *mut Handle, count: usize, flags: c_uint
    ) => cudaStreamUpdateCaptureDependencies_v2(
        stream, nodes, ptr::null(), count, flags);
}

forward! {
    cudaEventCreateWithFlags => cuEventCreate(event: *mut Handle, flags: c_uint);
    cudaEventDestroy => cuEventDestroy_v2(event: Handle);
    cudaEventRecord / cudaEventRecord_ptsz => cuEventRecord(event: Handle, stream: Stream);
    cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz =>
        cuEventRecordWithFlags(event: Handle, stream: Stream, flags: c_uint);
    cudaEventQuery => cuEventQuery(event: Handle);
    cudaEventSynchronize => cuEventSynchronize(event: Handle);
    cudaEventElapsedTime => cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle);
    cudaEventElapsedTime_v2 => cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle);
    cudaIpcGetEventHandle => cuIpcGetEventHandle(handle: *mut IpcHandle, event: Handle);
    cudaIpcOpenEventHandle => cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle);
}

adapt! {
    cudaEventCreate(event: *mut Handle) => cudaEventCreateWithFlags(event, 0);
}
