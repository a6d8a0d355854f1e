//! What is imported from `libcuda.so.1`: CUDA's driver API, and the simulated driver's own few.
//!
//! An address is a pointer here, as in the runtime API; CUDA's `CUdeviceptr` looks the same to the
//! ABI. Every handle is a pointer; a stream has its own type, since null means two things. `safe`
//! are those that take no pointer but handles, which the driver checks, and room for answers.

use crate::error::{self, Outcome, Status};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

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

/// Where a program wants an answer: null, or room for one. Rust makes none: whoever calls an
/// exported function passes it, and by CUDA's contract it is good while the call lasts.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes an answer, unless there is no room.
    pub fn write(self, answer: T) -> Option<()> {
        // SAFETY: the caller passes room for an answer, or null.
        (!self.0.is_null()).then(|| unsafe { self.0.write(answer) })
    }

    /// Writes an answer; null is refused.
    pub fn tell(self, answer: T) -> Outcome {
        self.write(answer).ok_or(error::INVALID_VALUE)
    }
}

/// Where memory is, for pools and advice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// 1: a device.
    pub kind: c_int,
    pub ordinal: c_int,
}

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
    pub safe fn cuInit(flags: c_uint) -> Status;
    pub safe fn cuDriverGetVersion(version: Out<c_int>) -> Status;
    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        function: Out<*mut c_void>,
        version: c_int,
        flags: u64,
        found: &mut c_int,
    ) -> Status;

    pub safe fn cuDeviceGetCount(count: &mut c_int) -> Status;
    pub fn cuDeviceGetName(name: *mut c_char, size: c_int, device: c_int) -> Status;
    pub safe fn cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: c_int) -> Status;
    pub safe fn cuDeviceTotalMem_v2(bytes: &mut usize, device: c_int) -> Status;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status;
    pub safe fn cuDevicePrimaryCtxRetain(context: &mut Handle, device: c_int) -> Status;
    pub fn cuDevicePrimaryCtxReset_v2(device: c_int) -> Status;
    pub safe fn cuDevicePrimaryCtxGetState(
        device: c_int,
        flags: Out<c_uint>,
        is_active: &mut c_int,
    ) -> Status;
    pub safe fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> Status;
    pub safe fn cuCtxGetCurrent(context: &mut Handle) -> Status;
    pub fn cuCtxSetCurrent(context: Handle) -> Status;
    pub safe fn cuCtxGetDevice(device: &mut c_int) -> Status;
    pub fn cuCtxEnablePeerAccess(context: Handle, flags: c_uint) -> Status;
    pub fn cuCtxDisablePeerAccess(context: Handle) -> Status;

    pub safe fn cuMemAlloc_v2(address: Out<Address>, size: usize) -> Status;
    pub safe fn cuMemAllocPitch_v2(
        address: Out<Address>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: c_uint,
    ) -> Status;
    pub fn cuMemFree_v2(address: Address) -> Status;
    pub safe fn cuMemHostAlloc(address: Out<Address>, size: usize, flags: c_uint) -> Status;
    pub fn cuMemFreeHost(address: Address) -> Status;
    pub fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, a: Address) -> Status;

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
    pub fn cuMemsetD2D8_v2(to: Address, pitch: usize, value: u8, w: usize, h: usize) -> Status;
    pub fn cuMemsetD2D8Async(
        to: Address,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: Stream,
    ) -> Status;
    pub fn cuMemsetD8_v2(to: Address, value: u8, size: usize) -> Status;
    pub fn cuMemsetD8Async(to: Address, value: u8, size: usize, stream: Stream) -> Status;

    pub fn simcuda_count(name: *const c_char) -> c_int;
    pub safe fn simcuda_launch(ordinal: c_int, stream: Stream, ns: u64) -> c_int;
    pub safe fn simcuda_place_count() -> c_int;
    pub safe fn simcuda_place_is_told(place: c_int) -> c_int;
    pub safe fn simcuda_place_attribute(place: c_int, number: c_int) -> c_int;
    pub safe fn simcuda_place_bytes(place: c_int) -> u64;
    pub safe fn simcuda_place_used_bytes(place: c_int) -> u64;
    pub safe fn simcuda_place_uuid(place: c_int, uuid: &mut [u8; 16]);
    pub fn simcuda_place_name(place: c_int, name: *mut c_char, room: u64);
}

/// An attribute of a device. What it does not tell is zero.
pub fn attribute(device: c_int, attribute: c_int) -> c_int {
    let mut value = 0;
    // SAFETY: the pointer is to a local.
    unsafe { cuDeviceGetAttribute(&raw mut value, attribute, device) };
    value
}
