//! The stream-ordered functions of the CUDA runtime, for programs that this library is preloaded
//! to: they get Drystone's memory, and all else they ask the runtime for.
//!
//! Invariants: without `LD_PRELOAD` naming this library each function is the runtime's. Handles of
//! pools are always the driver's own, so that whatever is not stood in for can be passed on: other
//! pools, graph memory, frees of what is not ours, and every failure but a lack of memory, so that
//! the runtime names it and it becomes the thread's last error as ever (B31). `blocks` gives and
//! takes, `pools` says which pools are stood in for, `runtime` is what lies behind.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::barrier::barrier;
use crate::out::put;
use crate::{process, registry};

mod blocks;
mod pools;
mod runtime;

use blocks::{free_in_order, free_when_idle, serve, with_room};
use pools::{Access, Properties};
use runtime::{Code, Handle, SUCCESS, StreamHandle, is_active};

/// Where no stream is the thread's own.
const fn per_thread(stream: StreamHandle) -> StreamHandle {
    if stream.is_null() { ptr::without_provenance_mut(2) } else { stream }
}

/// `cudaMalloc`: the runtime's, with the memory that we hold unused.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(to: *mut *mut c_void, bytes: usize) -> Code {
    // SAFETY: by the caller's word.
    with_room(|| unsafe { runtime::cudaMalloc(to, bytes) })
}

/// `cudaFree`, which also takes stream-ordered memory.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFree(address: *mut c_void) -> Code {
    if free_when_idle(address) {
        return SUCCESS;
    }
    // SAFETY: by the caller's word.
    unsafe { runtime::cudaFree(address) }
}

/// `cudaMallocAsync`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocAsync(
    to: *mut *mut c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Code {
    // SAFETY: by the caller's word.
    let runtimes = || unsafe { runtime::cudaMallocAsync(to, bytes, stream) };
    // SAFETY: by the caller's word.
    unsafe { serve(to, bytes, None, stream, runtimes) }
}

/// `cudaMallocAsync` of programs compiled for a default stream per thread.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocAsync_ptsz(
    to: *mut *mut c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Code {
    // SAFETY: by the caller's word.
    let runtimes = || unsafe { runtime::cudaMallocAsync_ptsz(to, bytes, stream) };
    // SAFETY: by the caller's word.
    unsafe { serve(to, bytes, None, per_thread(stream), runtimes) }
}

/// `cudaMallocFromPoolAsync`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocFromPoolAsync(
    to: *mut *mut c_void,
    bytes: usize,
    pool: Handle,
    stream: StreamHandle,
) -> Code {
    // SAFETY: by the caller's word.
    let runtimes = || unsafe { runtime::cudaMallocFromPoolAsync(to, bytes, pool, stream) };
    // SAFETY: by the caller's word.
    unsafe { serve(to, bytes, Some(pool), stream, runtimes) }
}

/// `cudaMallocFromPoolAsync` of programs compiled for a default stream per thread.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocFromPoolAsync_ptsz(
    to: *mut *mut c_void,
    bytes: usize,
    pool: Handle,
    stream: StreamHandle,
) -> Code {
    // SAFETY: by the caller's word.
    let runtimes = || unsafe { runtime::cudaMallocFromPoolAsync_ptsz(to, bytes, pool, stream) };
    // SAFETY: by the caller's word.
    unsafe { serve(to, bytes, Some(pool), per_thread(stream), runtimes) }
}

/// `cudaFreeAsync`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFreeAsync(address: *mut c_void, stream: StreamHandle) -> Code {
    if free_in_order(address, stream) {
        return SUCCESS;
    }
    // SAFETY: by the caller's word.
    unsafe { runtime::cudaFreeAsync(address, stream) }
}

/// `cudaFreeAsync` of programs compiled for a default stream per thread.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFreeAsync_ptsz(address: *mut c_void, stream: StreamHandle) -> Code {
    if free_in_order(address, per_thread(stream)) {
        return SUCCESS;
    }
    // SAFETY: by the caller's word.
    unsafe { runtime::cudaFreeAsync_ptsz(address, stream) }
}

/// `cudaMemPoolGetAttribute`: what is reserved and used is the sum of both allocators'.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolGetAttribute(
    pool: Handle,
    attribute: c_int,
    value: *mut c_void,
) -> Code {
    // SAFETY: by the caller's word.
    let code = unsafe { runtime::cudaMemPoolGetAttribute(pool, attribute, value) };
    let ours = || {
        let all = pools::device_behind(pool)?.allocator.stats().all;
        let (reserved, used) = (all.reserved_bytes, all.allocated_bytes);
        let figures = [reserved.current, reserved.peak, used.current, used.peak];
        figures.get(usize::try_from(attribute - RESERVED_CURRENT).ok()?).copied()
    };
    let is_figure = code == SUCCESS && attribute >= RESERVED_CURRENT;
    if let Some(ours) = is_figure.then(|| barrier(None, ours)).flatten() {
        let value = value.cast::<u64>();
        // SAFETY: the runtime has written these attributes as such numbers.
        let runtimes = unsafe { value.read_unaligned() };
        // SAFETY: the same place.
        unsafe { put(value, runtimes + ours) };
    }
    code
}

/// Followed by its high mark, and the same of what is used.
const RESERVED_CURRENT: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED_HIGH: c_int = 8;

/// `cudaMemPoolSetAttribute`: the runtime keeps them; setting a high mark resets ours.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolSetAttribute(
    pool: Handle,
    attribute: c_int,
    value: *mut c_void,
) -> Code {
    // SAFETY: by the caller's word.
    let code = unsafe { runtime::cudaMemPoolSetAttribute(pool, attribute, value) };
    if code == SUCCESS && matches!(attribute, RESERVED_HIGH | USED_HIGH) {
        let reset = || pools::device_behind(pool).map(|device| device.allocator.reset_peaks());
        barrier(None, reset);
    }
    code
}

/// `cudaMemPoolSetAccess`: who may use the pool's memory may use ours.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolSetAccess(
    pool: Handle,
    access: *const c_void,
    count: usize,
) -> Code {
    /// `cudaErrorPeerAccessUnsupported`.
    const UNSUPPORTED: Code = 217;
    // SAFETY: by the caller's word.
    let code = unsafe { runtime::cudaMemPoolSetAccess(pool, access, count) };
    let may = is_active() && code == SUCCESS && !access.is_null() && process::check().is_ok();
    let ordinal = may.then(|| barrier(None, || pools::device_of(pool))).flatten();
    let Some(ordinal) = ordinal else { return code };
    // SAFETY: so many, by the caller's word; the runtime has read them.
    let access = unsafe { std::slice::from_raw_parts(access.cast::<Access>(), count) };
    let peers = access.iter().filter_map(|access| access.grants_to());
    let opened = barrier(false, || {
        let mut peers = peers.filter(|&peer| peer != ordinal).peekable();
        // A device that cannot be opened is the runtime's alone.
        let device = peers.peek().and_then(|_| registry::get(ordinal).ok());
        device.is_none_or(|device| {
            peers.all(|peer| device.allocator.enable_peer_access(peer.cast_unsigned()).is_ok())
        })
    });
    if opened { code } else { UNSUPPORTED }
}

/// `cudaMemPoolTrimTo`: what we hold unused goes back as well, if that is more than is to be kept.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolTrimTo(pool: Handle, keep_bytes: usize) -> Code {
    // SAFETY: by the caller's word.
    let code = unsafe { runtime::cudaMemPoolTrimTo(pool, keep_bytes) };
    let trim = || {
        let allocator = &pools::device_behind(pool)?.allocator;
        let (_, reserved) = allocator.allocated_and_reserved_bytes();
        // Waits until the device is idle, which the driver need not: it knows what is complete.
        (reserved > keep_bytes as u64).then(|| allocator.trim().ok())?
    };
    if code == SUCCESS {
        barrier(None, trim);
    }
    code
}

/// `cudaMemPoolCreate`: a pool of plain device memory is stood in for.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolCreate(
    pool: *mut Handle,
    properties: *const Properties,
) -> Code {
    // SAFETY: by the caller's word.
    let code = unsafe { runtime::cudaMemPoolCreate(pool, properties.cast()) };
    if code == SUCCESS && is_active() {
        // SAFETY: the runtime has written it.
        let pool = unsafe { pool.read_unaligned() };
        // SAFETY: the runtime has read them.
        let properties = unsafe { properties.read_unaligned() };
        barrier((), || pools::created(pool, &properties));
    }
    code
}

/// `cudaMemPoolDestroy`: its blocks stay valid.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolDestroy(pool: Handle) -> Code {
    if is_active() {
        barrier((), || pools::forget(pool));
    }
    // SAFETY: by the caller's word.
    unsafe { runtime::cudaMemPoolDestroy(pool) }
}
