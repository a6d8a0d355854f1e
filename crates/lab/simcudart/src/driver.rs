//! What is imported from `libcuda.so.1`: CUDA's driver API, and the simulated driver's own few.
//!
//! An address is a pointer here, as in the runtime API; CUDA's `CUdeviceptr` looks the same to the
//! ABI. Every handle is a pointer; a stream has its own type, since null means two things.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// A result: zero, or an error's number, which is the same in both APIs.
pub type Status = c_int;
/// Device or host memory.
pub type Address = *mut c_void;
/// An event, graph, node, pool or context.
pub type Handle = *mut c_void;
/// A function that runs on the host in stream order.
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
/// The same with the stream and its error, as streams' callbacks have it.
pub type StreamCallback = Option<unsafe extern "C" fn(Stream, Status, *mut c_void)>;

/// A stream's handle; null is a default stream, of the device or of the thread.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Stream(pub *mut c_void);

/// A memory or event handle that another process may open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// Where memory is, for pools and advice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// 1: a device.
    pub kind: c_int,
    /// Its ordinal.
    pub ordinal: c_int,
}

/// A copy of rows, as the driver takes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2d {
    pub source_x: usize,
    pub source_y: usize,
    /// 1 host, 2 device, 4 whatever the address says.
    pub source_kind: c_uint,
    pub source_host: Address,
    pub source_device: Address,
    pub source_array: Handle,
    pub source_pitch: usize,
    pub target_x: usize,
    pub target_y: usize,
    pub target_kind: c_uint,
    pub target_host: Address,
    pub target_device: Address,
    pub target_array: Handle,
    pub target_pitch: usize,
    pub width: usize,
    pub height: usize,
}

unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> Status;
    pub fn cuDriverGetVersion(version: *mut c_int) -> Status;
    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_int,
        flags: u64,
        found: *mut c_int,
    ) -> Status;

    pub fn cuDeviceGetCount(count: *mut c_int) -> Status;
    pub fn cuDeviceGetName(name: *mut c_char, size: c_int, device: c_int) -> Status;
    pub fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Status;
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status;
    pub fn cuDeviceGetPCIBusId(id: *mut c_char, size: c_int, device: c_int) -> Status;
    pub fn cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) -> Status;
    pub fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Status;
    pub fn cuDeviceGetP2PAttribute(v: *mut c_int, a: c_int, from: c_int, to: c_int) -> Status;
    pub fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> Status;
    pub fn cuDevicePrimaryCtxReset_v2(device: c_int) -> Status;
    pub fn cuDevicePrimaryCtxGetState(d: c_int, flags: *mut c_uint, active: *mut c_int) -> Status;
    pub fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> Status;
    pub fn cuCtxGetCurrent(context: *mut Handle) -> Status;
    pub fn cuCtxSetCurrent(context: Handle) -> Status;
    pub fn cuCtxGetDevice(device: *mut c_int) -> Status;
    pub fn cuCtxSynchronize() -> Status;
    pub fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status;
    pub fn cuCtxGetLimit(value: *mut usize, limit: c_int) -> Status;
    pub fn cuCtxSetLimit(limit: c_int, value: usize) -> Status;
    pub fn cuCtxResetPersistingL2Cache() -> Status;
    pub fn cuCtxGetCacheConfig(preference: *mut c_int) -> Status;
    pub fn cuCtxSetCacheConfig(preference: c_int) -> Status;
    pub fn cuFlushGPUDirectRDMAWrites(target: c_int, scope: c_int) -> Status;
    pub fn cuProfilerStart() -> Status;
    pub fn cuProfilerStop() -> Status;
    pub fn cuCtxEnablePeerAccess(context: Handle, flags: c_uint) -> Status;
    pub fn cuCtxDisablePeerAccess(context: Handle) -> Status;

    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status;
    pub fn cuMemAlloc_v2(address: *mut Address, size: usize) -> Status;
    pub fn cuMemAllocPitch_v2(
        address: *mut Address,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) -> Status;
    pub fn cuMemAllocManaged(address: *mut Address, size: usize, flags: c_uint) -> Status;
    pub fn cuMemFree_v2(address: Address) -> Status;
    pub fn cuMemHostAlloc(address: *mut Address, size: usize, flags: c_uint) -> Status;
    pub fn cuMemFreeHost(address: Address) -> Status;
    pub fn cuMemHostRegister_v2(address: Address, size: usize, flags: c_uint) -> Status;
    pub fn cuMemHostUnregister(address: Address) -> Status;
    pub fn cuMemHostGetDevicePointer_v2(to: *mut Address, host: Address, f: c_uint) -> Status;
    pub fn cuMemHostGetFlags(flags: *mut c_uint, host: Address) -> Status;
    pub fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, a: Address) -> Status;
    pub fn cuIpcGetMemHandle(handle: *mut IpcHandle, address: Address) -> Status;
    pub fn cuIpcOpenMemHandle_v2(a: *mut Address, handle: IpcHandle, flags: c_uint) -> Status;
    pub fn cuIpcCloseMemHandle(address: Address) -> Status;
    pub fn cuIpcGetEventHandle(handle: *mut IpcHandle, event: Handle) -> Status;
    pub fn cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle) -> Status;

    pub fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) -> Status;
    pub fn cuDeviceGetMemPool(pool: *mut Handle, device: c_int) -> Status;
    pub fn cuDeviceSetMemPool(device: c_int, pool: Handle) -> Status;
    pub fn cuMemPoolCreate(pool: *mut Handle, properties: *const c_void) -> Status;
    pub fn cuMemPoolDestroy(pool: Handle) -> Status;
    pub fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> Status;
    pub fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) -> Status;
    pub fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) -> Status;
    pub fn cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize) -> Status;
    pub fn cuMemPoolGetAccess(flags: *mut c_int, pool: Handle, at: *mut Location) -> Status;
    pub fn cuMemGetDefaultMemPool(pool: *mut Handle, at: *mut Location, kind: c_int) -> Status;
    pub fn cuMemGetMemPool(pool: *mut Handle, at: *mut Location, kind: c_int) -> Status;
    pub fn cuMemSetMemPool(at: *mut Location, kind: c_int, pool: Handle) -> Status;
    pub fn cuMemPoolExportToShareableHandle(
        handle: *mut c_void,
        pool: Handle,
        kind: c_int,
        flags: c_ulonglong,
    ) -> Status;
    pub fn cuMemPoolImportFromShareableHandle(
        pool: *mut Handle,
        handle: *mut c_void,
        kind: c_int,
        flags: c_ulonglong,
    ) -> Status;
    pub fn cuMemPoolExportPointer(data: *mut c_void, address: Address) -> Status;
    pub fn cuMemPoolImportPointer(a: *mut Address, pool: Handle, data: *mut c_void) -> Status;
    pub fn cuMemAllocAsync(address: *mut Address, size: usize, stream: Stream) -> Status;
    pub fn cuMemAllocFromPoolAsync(
        address: *mut Address,
        size: usize,
        pool: Handle,
        stream: Stream,
    ) -> Status;
    pub fn cuMemFreeAsync(address: Address, stream: Stream) -> Status;

    pub fn cuMemcpy(to: Address, from: Address, size: usize) -> Status;
    pub fn cuMemcpyAsync(to: Address, from: Address, size: usize, stream: Stream) -> Status;
    pub fn cuMemcpyPeer(to: Address, tc: Handle, from: Address, fc: Handle, n: usize) -> Status;
    pub fn cuMemcpyPeerAsync(
        to: Address,
        to_context: Handle,
        from: Address,
        from_context: Handle,
        size: usize,
        stream: Stream,
    ) -> Status;
    pub fn cuMemcpy2D_v2(copy: *const Copy2d) -> Status;
    pub fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: Stream) -> Status;
    pub fn cuMemcpyBatchAsync_v2(
        to: *mut Address,
        from: *mut Address,
        sizes: *mut usize,
        count: usize,
        attributes: *mut c_void,
        attribute_indices: *mut usize,
        attribute_count: usize,
        stream: Stream,
    ) -> Status;
    pub fn cuMemsetD2D8_v2(to: Address, pitch: usize, value: u8, w: usize, h: usize) -> Status;
    pub fn cuMemsetD2D8Async(
        to: Address,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: Stream,
    ) -> Status;
    pub fn cuMemAdvise_v2(a: Address, size: usize, advice: c_int, at: Location) -> Status;
    pub fn cuMemPrefetchAsync_v2(
        address: Address,
        size: usize,
        to: Location,
        flags: c_uint,
        stream: Stream,
    ) -> Status;
    pub fn cuMemRangeGetAttribute(
        value: *mut c_void,
        size: usize,
        attribute: c_int,
        address: Address,
        count: usize,
    ) -> Status;
    pub fn cuMemsetD8_v2(to: Address, value: u8, size: usize) -> Status;
    pub fn cuMemsetD8Async(to: Address, value: u8, size: usize, stream: Stream) -> Status;

    pub fn cuStreamCreateWithPriority(s: *mut Stream, flags: c_uint, priority: c_int) -> Status;
    pub fn cuStreamDestroy_v2(stream: Stream) -> Status;
    pub fn cuStreamQuery(stream: Stream) -> Status;
    pub fn cuStreamSynchronize(stream: Stream) -> Status;
    pub fn cuStreamWaitEvent(stream: Stream, event: Handle, flags: c_uint) -> Status;
    pub fn cuStreamGetPriority(stream: Stream, priority: *mut c_int) -> Status;
    pub fn cuStreamGetFlags(stream: Stream, flags: *mut c_uint) -> Status;
    pub fn cuStreamGetId(stream: Stream, id: *mut c_ulonglong) -> Status;
    pub fn cuStreamAddCallback(s: Stream, f: StreamCallback, d: Address, flags: c_uint) -> Status;
    pub fn cuLaunchHostFunc(stream: Stream, function: HostFunction, data: Address) -> Status;
    pub fn cuStreamBeginCapture_v2(stream: Stream, mode: c_int) -> Status;
    pub fn cuStreamEndCapture(stream: Stream, graph: *mut Handle) -> Status;
    pub fn cuStreamIsCapturing(stream: Stream, status: *mut c_int) -> Status;
    pub fn cuStreamGetCaptureInfo_v3(
        stream: Stream,
        status: *mut c_int,
        id: *mut c_ulonglong,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        edges: *mut *const c_void,
        count: *mut usize,
    ) -> Status;
    pub fn cuStreamBeginCaptureToGraph(
        stream: Stream,
        graph: Handle,
        dependencies: *const Handle,
        edges: *const c_void,
        count: usize,
        mode: c_int,
    ) -> Status;
    pub fn cuStreamUpdateCaptureDependencies_v2(
        stream: Stream,
        dependencies: *mut Handle,
        edges: *const c_void,
        count: usize,
        flags: c_uint,
    ) -> Status;
    pub fn cuStreamGetDevice(stream: Stream, device: *mut c_int) -> Status;
    pub fn cuStreamCopyAttributes(to: Stream, from: Stream) -> Status;
    pub fn cuStreamGetAttribute(stream: Stream, attribute: c_int, value: *mut c_void) -> Status;
    pub fn cuStreamSetAttribute(stream: Stream, attribute: c_int, value: *const c_void) -> Status;
    pub fn cuStreamAttachMemAsync(s: Stream, a: Address, size: usize, flags: c_uint) -> Status;
    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> Status;

    pub fn cuEventCreate(event: *mut Handle, flags: c_uint) -> Status;
    pub fn cuEventDestroy_v2(event: Handle) -> Status;
    pub fn cuEventRecord(event: Handle, stream: Stream) -> Status;
    pub fn cuEventRecordWithFlags(event: Handle, stream: Stream, flags: c_uint) -> Status;
    pub fn cuEventQuery(event: Handle) -> Status;
    pub fn cuEventSynchronize(event: Handle) -> Status;
    pub fn cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle) -> Status;

    pub fn cuGraphCreate(graph: *mut Handle, flags: c_uint) -> Status;
    pub fn cuGraphDestroy(graph: Handle) -> Status;
    pub fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, f: c_ulonglong) -> Status;
    pub fn cuGraphInstantiateWithParams(e: *mut Handle, graph: Handle, p: *mut c_void) -> Status;
    pub fn cuGraphClone(clone: *mut Handle, graph: Handle) -> Status;
    pub fn cuGraphUpload(exec: Handle, stream: Stream) -> Status;
    pub fn cuGraphExecGetFlags(exec: Handle, flags: *mut c_ulonglong) -> Status;
    pub fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: *mut c_void) -> Status;
    pub fn cuGraphExecDestroy(exec: Handle) -> Status;
    pub fn cuGraphLaunch(exec: Handle, stream: Stream) -> Status;
    pub fn cuUserObjectCreate(
        object: *mut Handle,
        pointer: *mut c_void,
        destroy: HostFunction,
        references: c_uint,
        flags: c_uint,
    ) -> Status;
    pub fn cuUserObjectRetain(object: Handle, count: c_uint) -> Status;
    pub fn cuUserObjectRelease(object: Handle, count: c_uint) -> Status;
    pub fn cuGraphRetainUserObject(
        graph: Handle,
        object: Handle,
        count: c_uint,
        flags: c_uint,
    ) -> Status;
    pub fn cuGraphReleaseUserObject(graph: Handle, object: Handle, count: c_uint) -> Status;
    pub fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> Status;

    pub fn simcuda_count(name: *const c_char) -> c_int;
    pub fn simcuda_launch(ordinal: c_int, stream: Stream, ns: u64) -> c_int;
    pub fn simcuda_place_count() -> c_int;
    pub fn simcuda_place_is_told(place: c_int) -> c_int;
    pub fn simcuda_place_attribute(place: c_int, number: c_int) -> c_int;
    pub fn simcuda_place_bytes(place: c_int) -> u64;
    pub fn simcuda_place_used_bytes(place: c_int) -> u64;
    pub fn simcuda_place_uuid(place: c_int, uuid: *mut [u8; 16]);
    pub fn simcuda_place_name(place: c_int, name: *mut c_char, room: u64);
}
