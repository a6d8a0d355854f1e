//! The driver past the crate: what a test sets up, and how it sees what a call did.

use cudarc::driver::sys::{self, CUresult};

#[track_caller]
fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// The calling thread's context, 0 for none.
pub(crate) fn current() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one pointer.
    ok(unsafe { sys::cuCtxGetCurrent(&raw mut context) });
    context.expose_provenance()
}

pub(crate) fn set_current(context: usize) {
    // SAFETY: a context of the driver's, or null.
    ok(unsafe { sys::cuCtxSetCurrent(std::ptr::with_exposed_provenance_mut(context)) });
}

/// The primary context of a device.
pub(crate) fn primary(ordinal: i32) -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one pointer.
    ok(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, ordinal) });
    context.expose_provenance()
}

/// A context of a device that the program makes; current from then on.
pub(crate) fn create_context(ordinal: i32) -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one pointer.
    ok(unsafe { sys::cuCtxCreate_v4(&raw mut context, std::ptr::null_mut(), 0, ordinal) });
    context.expose_provenance()
}

pub(crate) fn destroy_context(context: usize) {
    // SAFETY: the caller made it and does not use it again, nor what is of it.
    ok(unsafe { sys::cuCtxDestroy_v2(std::ptr::with_exposed_provenance_mut(context)) });
}

/// The newest CUDA that the driver serves, such as 12050.
pub(crate) fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: writes one number.
    ok(unsafe { sys::cuDriverGetVersion(&raw mut version) });
    version
}

/// Free memory of the current context's device.
pub(crate) fn free_bytes() -> u64 {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers.
    ok(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    free as u64
}

/// What free memory may differ by for reasons of its own on a real device: the driver takes memory
/// in pieces, keeps some for page tables, and other programs come and go.
const TOLERANCE_BYTES: u64 = 64 << 20;

fn is_simulated() -> bool {
    let mut name = [0; 96];
    // SAFETY: writes at most so many characters, the last of which is 0.
    ok(unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, 0) });
    // SAFETY: ends with 0, as above.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) };
    name.to_bytes().windows(9).any(|part| part == b"Simulated")
}

/// Of the current context's device, so many bytes are taken that were free before: exactly, or
/// about so many on a real one.
#[track_caller]
pub(crate) fn assert_taken(before_bytes: u64, bytes: u64) {
    let free_bytes = free_bytes();
    let off = before_bytes.abs_diff(free_bytes + bytes);
    let tolerance = if is_simulated() { 0 } else { TOLERANCE_BYTES };
    assert!(off <= tolerance, "{before_bytes} bytes were free, {free_bytes} are; {bytes} taken?");
}

/// A stream of the current context that does not synchronise with the default one.
pub(crate) fn create_stream() -> u64 {
    let mut stream = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: writes one handle.
    ok(unsafe { sys::cuStreamCreate(&raw mut stream, flags) });
    stream.expose_provenance() as u64
}

fn stream(handle: u64) -> sys::CUstream {
    std::ptr::with_exposed_provenance_mut(handle as usize)
}

pub(crate) fn destroy_stream(handle: u64) {
    // SAFETY: the caller made it and does not use it again.
    ok(unsafe { sys::cuStreamDestroy_v2(stream(handle)) });
}

/// Begins a capture that forbids unsafe calls to every thread.
pub(crate) fn begin_capture(handle: u64) {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a live stream.
    ok(unsafe { sys::cuStreamBeginCapture_v2(stream(handle), mode) });
}

/// Ends a capture; false if it was broken.
pub(crate) fn end_capture(handle: u64) -> bool {
    let mut graph = std::ptr::null_mut();
    // SAFETY: a live stream; writes one handle.
    let result = unsafe { sys::cuStreamEndCapture(stream(handle), &raw mut graph) };
    result == CUresult::CUDA_SUCCESS
}

pub(crate) fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the caller says that so much memory is there.
    ok(unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) });
}

/// The same in a stream's order.
pub(crate) fn write_on(address: u64, bytes: &[u8], handle: u64) {
    let (from, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the caller says that so much memory is there.
    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(address, from, len, stream(handle)) });
}

/// Plain memory of the current context's device.
pub(crate) fn malloc(bytes: u64) -> u64 {
    let mut address = 0;
    // SAFETY: writes one address.
    ok(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes as usize) });
    address
}

pub(crate) fn read(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: the caller says that so much memory is there.
    ok(unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, len) });
    bytes
}

/// The ordinal of the device that memory lies on.
pub(crate) fn ordinal_of(address: u64) -> i32 {
    let mut ordinal = -1_i32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let to = (&raw mut ordinal).cast();
    // SAFETY: the attribute is an int.
    ok(unsafe { sys::cuPointerGetAttribute(to, attribute, address) });
    ordinal
}

/// `CUmemLocation` of a device, with one layout for all bindings.
#[repr(C)]
struct Location(u32, i32);

/// What a device may do with mapped memory: 0 nothing, 3 read and write.
pub(crate) fn mapped_access(address: u64, ordinal: i32) -> u64 {
    let (mut flags, location) = (0, Location(1, ordinal));
    // SAFETY: reads a location, writes one number.
    ok(unsafe { sys::cuMemGetAccess(&raw mut flags, (&raw const location).cast(), address) });
    flags
}

/// What a device may do with memory of a pool: 0 nothing, 3 read and write.
pub(crate) fn pool_access(pool: u64, ordinal: i32) -> u32 {
    let mut flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
    let mut location = Location(1, ordinal);
    let pool = std::ptr::with_exposed_provenance_mut(pool as usize);
    // SAFETY: reads a location, writes one number.
    ok(unsafe { sys::cuMemPoolGetAccess(&raw mut flags, pool, (&raw mut location).cast()) });
    flags as u32
}

/// How the memory behind a handle can be shared, as bits.
pub(crate) fn requested_handle(handle: u64) -> u32 {
    // SAFETY: a plain C struct, of which all zeroes are a value.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    let to = &raw mut properties;
    // SAFETY: writes the properties.
    ok(unsafe { sys::cuMemGetAllocationPropertiesFromHandle(to, handle) });
    properties.requestedHandleTypes.0
}

fn pool_attribute(pool: u64, attribute: sys::CUmemPool_attribute) -> u64 {
    let mut value = 0_u64;
    let pool = std::ptr::with_exposed_provenance_mut(pool as usize);
    // SAFETY: writes at most 64 bits.
    ok(unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) });
    value
}

/// One of the three flags of reuse, in the order of the driver.
pub(crate) fn pool_flag(pool: u64, number: u32) -> bool {
    use sys::CUmemPool_attribute as Attribute;
    let attribute = match number {
        1 => Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        2 => Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        _ => Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    };
    pool_attribute(pool, attribute) as u32 != 0
}

pub(crate) fn pool_threshold(pool: u64) -> u64 {
    pool_attribute(pool, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
}
