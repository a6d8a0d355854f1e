//! What a device holds, as arrays: segments, and the blocks that tile them.
//!
//! A mapped segment is given as its backed parts, each a segment, as in snapshots.

use std::ffi::{c_int, c_void};

use drystone::{BlockState, BlockView, SegmentKind, SizeClass};

use crate::barrier::answer;
use crate::device::Device;
use crate::out::{not_null, put};
use crate::snapshot::backed_runs;
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{free, process, registry};

/// Contiguous memory, tiled by blocks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CSegment {
    /// Where it starts.
    pub address: *mut c_void,
    /// Its size.
    pub bytes: usize,
    /// The stream that it was obtained for.
    pub stream: *mut CUstream_st,
    /// Its pool; 0, 0 is the default pool, and one that was released.
    pub id0: u64,
    /// See `id0`.
    pub id1: u64,
    /// How many blocks it has.
    pub block_count: usize,
    /// 1 if it holds blocks up to 1 MiB, 0 if larger ones.
    pub is_small: u8,
    /// 1 if it is virtual memory, 0 if one allocation of the driver.
    pub is_mapped: u8,
}

/// A piece of a segment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBlock {
    /// Where it starts.
    pub address: *mut c_void,
    /// Its size.
    pub bytes: usize,
    /// What the program asked for; 0 if it is neither live nor pending.
    pub requested_bytes: usize,
    /// The stream in whose order it is used.
    pub stream: *mut CUstream_st,
    /// The device.
    pub device: c_int,
    /// 1 if it is in the program's hands.
    pub is_live: u8,
    /// 1 if the program freed it, but another stream may still be using it.
    pub is_pending: u8,
}

/// Writes what a device holds: segments in address order, and all their blocks in the same order.
/// The counts are of what there is room for, and become those of what there is.
///
/// Statuses: BUFFER_TOO_SMALL (nothing is written but the counts), INVALID_VALUE (a count is null,
/// or an array that has room), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
///
/// # Safety
/// The counts are null or readable and writable, and each array has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_layout(
    device: c_int,
    segments: *mut CSegment,
    segment_count: *mut usize,
    blocks: *mut CBlock,
    block_count: *mut usize,
) -> Status {
    answer(|| {
        not_null(segment_count, "segment_count")?;
        not_null(block_count, "block_count")?;
        // SAFETY: not null, and readable by the caller's word.
        let segment_room = unsafe { segment_count.read_unaligned() };
        // SAFETY: as above.
        let block_room = unsafe { block_count.read_unaligned() };
        if segment_room > 0 {
            not_null(segments, "segments")?;
        }
        if block_room > 0 {
            not_null(blocks, "blocks")?;
        }
        process::check()?;
        let (found_segments, found_blocks) = layout(registry::get(device)?);
        // SAFETY: writable by the caller's word.
        unsafe { put(segment_count, found_segments.len()) };
        // SAFETY: as above.
        unsafe { put(block_count, found_blocks.len()) };
        if segment_room < found_segments.len() || block_room < found_blocks.len() {
            let message = format!(
                "room for {segment_room} segments and {block_room} blocks; there are {} and {}",
                found_segments.len(),
                found_blocks.len()
            );
            return Err(Failure::new(Status::BufferTooSmall, message));
        }
        // SAFETY: there is room by the caller's word.
        unsafe { found_segments.as_ptr().copy_to(segments, found_segments.len()) };
        // SAFETY: as above.
        unsafe { found_blocks.as_ptr().copy_to(blocks, found_blocks.len()) };
        Ok(())
    })
}

/// Writes what is known of the live block that starts at an address, on whichever device.
///
/// Statuses: INVALID_VALUE (`block` is null), UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE,
/// EXITING, FORKED. Any thread.
///
/// # Safety
/// `block` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_block_at(ptr: *mut c_void, block: *mut CBlock) -> Status {
    answer(|| {
        not_null(block, "block")?;
        process::check()?;
        let device = free::owner(ptr as u64)?;
        let found = describe(device, &device.allocator.block_at(ptr as u64)?);
        // SAFETY: writable by the caller's word.
        unsafe { put(block, found) };
        Ok(())
    })
}

fn layout(device: &Device) -> (Vec<CSegment>, Vec<CBlock>) {
    let (mut segments, mut blocks) = (Vec::new(), Vec::new());
    for segment in device.allocator.snapshot() {
        let (id0, id1) = device.pools.name_of(segment.pool).unwrap_or((0, 0));
        for (address, bytes, run) in backed_runs(&segment) {
            segments.push(CSegment {
                address: address as usize as *mut c_void,
                bytes: bytes as usize,
                stream: device.handle_at(segment.stream) as usize as *mut CUstream_st,
                id0,
                id1,
                block_count: run.len(),
                is_small: u8::from(segment.class == SizeClass::Small),
                is_mapped: u8::from(segment.kind == SegmentKind::Mapped),
            });
            blocks.extend(run.iter().map(|block| describe(device, block)));
        }
    }
    (segments, blocks)
}

fn describe(device: &Device, block: &BlockView) -> CBlock {
    let is_pending = matches!(block.state, BlockState::Pending | BlockState::Quarantined);
    CBlock {
        address: block.address as usize as *mut c_void,
        bytes: block.bytes as usize,
        requested_bytes: block.requested_bytes as usize,
        stream: device.handle_at(block.stream) as usize as *mut CUstream_st,
        device: device.ordinal.cast_signed(),
        is_live: u8::from(block.state == BlockState::Live),
        is_pending: u8::from(is_pending),
    }
}
