//! What each pool, size and stream of a device has, as an array.

use std::ffi::c_int;

use drystone::{PoolId, PoolStreamStats, SizeClass};

use crate::barrier::answer;
use crate::device::Device;
use crate::out::{not_null, put};
use crate::statistics::CGauge;
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{process, registry};

/// What one pool, size of blocks and stream have, in bytes. A block counts for the pool and stream
/// that it was requested for. The peaks of several entries need not have been at one time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CPoolStreamStats {
    /// The stream.
    pub stream: *mut CUstream_st,
    /// The pool; 0, 0 is the default pool, and one without a name.
    pub id0: u64,
    /// See `id0`.
    pub id1: u64,
    /// Live and pending blocks.
    pub active_bytes: CGauge,
    /// Live blocks.
    pub allocated_bytes: u64,
    /// Free blocks. With backend `async` free memory is in no entry.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// 1 if it is about blocks up to 1 MiB, 0 if about larger ones.
    pub is_small: u8,
    /// 1 if the pool was released.
    pub is_released: u8,
    /// 1 if it is about a block that grows in place, which has a pool of its own without a name.
    pub is_growing: u8,
}

/// Writes what each pool, size of blocks and stream of a device has: those that have anything, or
/// had since `drystone_reset_peaks`, in no particular order. The count is of what there is room
/// for, and becomes that of what there is.
///
/// Statuses: BUFFER_TOO_SMALL (nothing is written but the count), INVALID_VALUE (the count is null,
/// or the array, and there is room), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any
/// thread.
///
/// # Safety
/// The count is null or readable and writable, and the array has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_get_pool_stream_stats(
    device: c_int,
    entries: *mut CPoolStreamStats,
    count: *mut usize,
) -> Status {
    answer(|| {
        not_null(count, "count")?;
        // SAFETY: not null, and readable by the caller's word.
        let room = unsafe { count.read_unaligned() };
        if room > 0 {
            not_null(entries, "entries")?;
        }
        process::check()?;
        let device = registry::get(device)?;
        let found = device.allocator.pool_stream_stats();
        let found: Vec<_> = found.iter().map(|stats| describe(device, stats)).collect();
        // SAFETY: writable by the caller's word.
        unsafe { put(count, found.len()) };
        if room < found.len() {
            let message = format!("room for {room} entries; there are {}", found.len());
            return Err(Failure::new(Status::BufferTooSmall, message));
        }
        // SAFETY: there is room by the caller's word.
        unsafe { found.as_ptr().copy_to(entries, found.len()) };
        Ok(())
    })
}

fn describe(device: &Device, stats: &PoolStreamStats) -> CPoolStreamStats {
    let name = device.pools.name_of(stats.pool);
    let is_nameless = name.is_none() && stats.pool != PoolId::DEFAULT.index();
    let (id0, id1) = name.unwrap_or((0, 0));
    CPoolStreamStats {
        stream: device.handle_at(stats.stream) as usize as *mut CUstream_st,
        id0,
        id1,
        active_bytes: stats.active_bytes.into(),
        allocated_bytes: stats.allocated_bytes,
        free_bytes: stats.free_bytes,
        largest_free_bytes: stats.largest_free_bytes,
        is_small: u8::from(stats.class == SizeClass::Small),
        is_released: u8::from(is_nameless && !stats.is_growing),
        is_growing: u8::from(stats.is_growing),
    }
}
