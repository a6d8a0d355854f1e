//! What is told of kernels: attributes, names, handles, how many blocks fit on a processor.
//!
//! The figures are those of a small kernel on a device of compute capability 9.0; none is compiled.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::context::{self, in_context};
use crate::driver::{self, Handle, Status};
use crate::error;
use crate::kernel::{self, BLOCK_SHARED_BYTES, THREADS_MAX};

/// What one processor may have at once.
const PROCESSOR_THREADS: u64 = 2048;
const PROCESSOR_BLOCKS: u64 = 32;
const PROCESSOR_SHARED_BYTES: u64 = 233_472;
/// What CUDA itself uses of each block's shared memory.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// What is told of a kernel, as CUDA lays it out.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    threads_max: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    caches_all: c_int,
    dynamic_shared_bytes_max: c_int,
    preferred_shared_carveout: c_int,
    clusters_and_reserved: [c_int; 22],
}

/// Does what is asked of a kernel, if it is one.
fn of_kernel(host: *const c_void, call: impl FnOnce() -> Status) -> Status {
    in_context(|| if kernel::is_kernel(host) { call() } else { error::INVALID_DEVICE_FUNCTION })
}

/// Tells a kernel's attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFuncGetAttributes(to: *mut Attributes, host: *const c_void) -> Status {
    of_kernel(host, || {
        if to.is_null() {
            return error::INVALID_VALUE;
        }
        let device = compute_capability();
        let version = kernel::architecture(host, device).unwrap_or(device);
        let attributes = Attributes {
            threads_max: c_int::try_from(THREADS_MAX).unwrap_or(c_int::MAX),
            registers: 32,
            ptx_version: version,
            binary_version: version,
            dynamic_shared_bytes_max: c_int::try_from(BLOCK_SHARED_BYTES).unwrap_or(c_int::MAX),
            preferred_shared_carveout: -1,
            ..Attributes::default()
        };
        // SAFETY: the caller passes room for the attributes.
        unsafe { to.write(attributes) };
        error::SUCCESS
    })
}

/// Ten times the major number and the minor one.
fn compute_capability() -> c_int {
    let part = |attribute| {
        let mut value = 0;
        let device = context::device();
        // SAFETY: the pointer is to a local.
        unsafe { driver::cuDeviceGetAttribute(&raw mut value, attribute, device) };
        value
    };
    part(75) * 10 + part(76)
}

/// Sets one attribute of a kernel, which changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFuncSetAttribute(
    host: *const c_void,
    _attribute: c_int,
    _value: c_int,
) -> Status {
    of_kernel(host, || error::SUCCESS)
}

/// Says what a kernel would rather have, which changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFuncSetCacheConfig(host: *const c_void, _preference: c_int) -> Status {
    of_kernel(host, || error::SUCCESS)
}

/// Tells a kernel's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFuncGetName(to: *mut *const c_char, host: *const c_void) -> Status {
    in_context(|| match kernel::name(host) {
        _ if to.is_null() => error::INVALID_VALUE,
        None => error::INVALID_DEVICE_FUNCTION,
        Some(name) => {
            // SAFETY: the caller passes room for a pointer.
            unsafe { to.write(ptr::with_exposed_provenance(name)) };
            error::SUCCESS
        }
    })
}

macro_rules! handles {
    ($($name:ident)*) => {$(
        /// Gives a handle to a kernel: its host function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: *mut Handle, host: *const c_void) -> Status {
            of_kernel(host, || {
                if to.is_null() {
                    return error::INVALID_VALUE;
                }
                // SAFETY: the caller passes room for a handle.
                unsafe { to.write(host.cast_mut()) };
                error::SUCCESS
            })
        }
    )*};
}

handles! { __cudaGetKernel cudaGetKernel cudaGetFuncBySymbol }

/// How many blocks a processor holds at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    to: *mut c_int,
    host: *const c_void,
    threads: c_int,
    shared_bytes: usize,
) -> Status {
    of_kernel(host, || {
        let Ok(threads @ 1..) = u64::try_from(threads) else {
            return error::INVALID_VALUE;
        };
        if to.is_null() {
            return error::INVALID_VALUE;
        }
        let blocks = blocks(threads, u64::try_from(shared_bytes).unwrap_or(u64::MAX));
        // SAFETY: the caller passes room for a number.
        unsafe { to.write(c_int::try_from(blocks).unwrap_or(c_int::MAX)) };
        error::SUCCESS
    })
}

fn blocks(threads: u64, shared_bytes: u64) -> u64 {
    if threads > THREADS_MAX || shared_bytes > BLOCK_SHARED_BYTES {
        return 0;
    }
    let by_shared = PROCESSOR_SHARED_BYTES / (shared_bytes + RESERVED_SHARED_BYTES);
    PROCESSOR_BLOCKS.min(PROCESSOR_THREADS / threads).min(by_shared)
}

/// The same with flags, which change nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: *mut c_int,
    host: *const c_void,
    threads: c_int,
    shared_bytes: usize,
    _flags: c_uint,
) -> Status {
    // SAFETY: the contract is the same.
    unsafe { cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, host, threads, shared_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_layout_of_cuda() {
        assert_eq!(size_of::<Attributes>(), 144);
        assert_eq!(std::mem::offset_of!(Attributes, dynamic_shared_bytes_max), 44);
    }

    #[test]
    fn blocks_are_limited_by_threads_by_number_and_by_shared_memory() {
        assert_eq!(blocks(1024, 0), 2);
        assert_eq!(blocks(32, 0), 32);
        assert_eq!(blocks(128, 232_448), 1);
        assert_eq!(blocks(1025, 0), 0);
    }
}
