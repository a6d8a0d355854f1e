//! For engines that are linked with the driver.

use crate::calls::{alloc, free};
use crate::device::Stream;

unsafe extern "C" {
    #[link_name = "__real_cuMemAllocAsync"]
    fn real_alloc(out: *mut u64, bytes: usize, stream: Stream) -> u32;
    #[link_name = "__real_cuMemFreeAsync"]
    fn real_free(address: u64, stream: Stream) -> u32;
}

#[unsafe(export_name = "__wrap_cuMemAllocAsync")]
unsafe extern "C" fn watched_alloc(out: *mut u64, bytes: usize, stream: Stream) -> u32 {
    // SAFETY: the caller's own arguments.
    unsafe { alloc(real_alloc, out, bytes, stream) }
}

#[unsafe(export_name = "__wrap_cuMemFreeAsync")]
unsafe extern "C" fn watched_free(address: u64, stream: Stream) -> u32 {
    // SAFETY: the caller's own arguments.
    unsafe { free(real_free, address, stream) }
}
