//! What is told of kernels: attributes, names, handles, how many blocks fit on a processor.
//!
//! The figures are those of a small kernel on a device of compute capability 9.0; none is compiled.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::context::{device, make_current};
use crate::driver::{self, Handle, Out};
use crate::error::{self, Outcome};
use crate::export::{adapt, exports};
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

fn check(host: *const c_void) -> Outcome {
    make_current()?;
    if kernel::is_kernel(host) { Ok(()) } else { Err(error::INVALID_DEVICE_FUNCTION) }
}

/// Ten times the major number and the minor one.
fn compute_capability() -> c_int {
    driver::attribute(device(), 75) * 10 + driver::attribute(device(), 76)
}

fn blocks(threads: u64, shared_bytes: u64) -> u64 {
    if threads > THREADS_MAX || shared_bytes > BLOCK_SHARED_BYTES {
        return 0;
    }
    let by_shared = PROCESSOR_SHARED_BYTES / (shared_bytes + RESERVED_SHARED_BYTES);
    PROCESSOR_BLOCKS.min(PROCESSOR_THREADS / threads).min(by_shared)
}

exports! {
    fn cudaFuncGetAttributes(to: Out<Attributes>, host: *const c_void) {
        check(host)?;
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
        to.tell(attributes)
    }

    /// Sets one attribute of a kernel, which changes nothing.
    fn cudaFuncSetAttribute(host: *const c_void, _attribute: c_int, _value: c_int) { check(host) }

    /// Says what a kernel would rather have, which changes nothing.
    fn cudaFuncSetCacheConfig(host: *const c_void, _preference: c_int) { check(host) }

    fn cudaFuncGetName(to: Out<*const c_char>, host: *const c_void) {
        make_current()?;
        let name = kernel::name(host).ok_or(error::INVALID_DEVICE_FUNCTION)?;
        to.tell(ptr::with_exposed_provenance(name))
    }

    /// Gives a handle to a kernel: its host function.
    fn cudaGetKernel(to: Out<Handle>, host: *const c_void) {
        check(host)?;
        to.tell(host.cast_mut())
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        to: Out<c_int>, host: *const c_void, threads: c_int, shared_bytes: usize
    ) {
        check(host)?;
        let Ok(threads @ 1..) = u64::try_from(threads) else { return Err(error::INVALID_VALUE) };
        let blocks = blocks(threads, u64::try_from(shared_bytes).unwrap_or(u64::MAX));
        to.tell(c_int::try_from(blocks).unwrap_or(c_int::MAX))
    }
}

adapt! {
    __cudaGetKernel(to: Out<Handle>, host: *const c_void) => cudaGetKernel(to, host);
    cudaGetFuncBySymbol(to: Out<Handle>, host: *const c_void) => cudaGetKernel(to, host);
    /// The same with flags, which change nothing.
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags (
        to: Out<c_int>, host: *const c_void, threads: c_int, shared_bytes: usize, _flags: c_uint
    ) => cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, host, threads, shared_bytes);
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
