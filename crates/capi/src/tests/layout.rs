//! What a device holds, and each pool and stream, as arrays; blocks put back where they were.

use super::*;
use crate::layout::*;
use crate::memory_provider::{DRYSTONE_POOL_UNSPLIT, drystone_pool_create_plain};
use crate::pool_stream_stats::*;

fn layout(device: c_int, room: usize) -> (Status, Vec<CSegment>, Vec<CBlock>) {
    let (mut segment_count, mut block_count) = (room, room);
    let mut segments = Vec::with_capacity(room);
    let mut blocks = Vec::with_capacity(room);
    // SAFETY: there is room for as many.
    let status = unsafe {
        drystone_layout(
            device,
            segments.as_mut_ptr(),
            &raw mut segment_count,
            blocks.as_mut_ptr(),
            &raw mut block_count,
        )
    };
    if status == Status::Ok {
        // SAFETY: as many were written.
        unsafe { segments.set_len(segment_count) };
        // SAFETY: as above.
        unsafe { blocks.set_len(block_count) };
    } else {
        assert!(segment_count <= 1 << 20 && block_count <= 1 << 20);
    }
    (status, segments, blocks)
}

fn in_pool(device: c_int, size: usize) -> *mut c_void {
    let mut out = ptr::null_mut();
    // SAFETY: the pointer is that of a local.
    let status = unsafe { drystone_allocate_from_pool(&raw mut out, size, device, DEFAULT, 5, 6) };
    assert_eq!(status, Status::Ok, "{}", message());
    out
}

#[test]
fn the_layout_has_every_block_once_and_its_pool() {
    let _held = HELD.read();
    let device = 26;
    assert_eq!(layout(device, 4).1.len(), 0);
    assert_eq!(drystone_pool_create(device, 5, 6), Status::Ok);
    let (_, plain) = allocate(1000, device, DEFAULT);
    let private = in_pool(device, 3 * MIB);
    assert_eq!(layout(device, 1).0, Status::BufferTooSmall);
    assert!(message().contains("room for 1 segments and 1 blocks; there are 2 and 4"));
    let (status, segments, blocks) = layout(device, 8);
    assert_eq!(status, Status::Ok);
    let described: Vec<_> = segments
        .iter()
        .map(|one| (one.bytes, one.id0, one.id1, one.is_small, one.is_mapped, one.block_count))
        .collect();
    assert_eq!(described, [(2 * MIB, 0, 0, 1, 1, 2), (4 * MIB, 5, 6, 0, 1, 2)]);
    let live: Vec<_> = blocks.iter().filter(|block| block.is_live == 1).collect();
    assert_eq!(live.len(), 2);
    for (block, ptr, size) in [(live[0], plain, 1000), (live[1], private, 3 * MIB)] {
        assert_eq!((block.address, block.requested_bytes, block.device), (ptr, size, device));
        let mut found = *block;
        found.bytes = 0;
        // SAFETY: the pointer is that of a local.
        assert_eq!(unsafe { drystone_block_at(ptr, &raw mut found) }, Status::Ok);
        assert_eq!(found.bytes, block.bytes);
    }
    let inside = plain.wrapping_byte_add(1);
    let mut found = blocks[0];
    // SAFETY: the pointer is that of a local.
    assert_eq!(unsafe { drystone_block_at(inside, &raw mut found) }, Status::InteriorPointer);
    // SAFETY: null is refused.
    let refused = unsafe { drystone_block_at(plain, ptr::null_mut()) };
    assert_eq!(refused, Status::InvalidValue);
    for ptr in [plain, private] {
        assert_eq!(drystone_deallocate(ptr), Status::Ok);
    }
}

fn pool_stream_stats(device: c_int, room: usize) -> Result<Vec<CPoolStreamStats>, (Status, usize)> {
    let (mut count, mut entries) = (room, Vec::with_capacity(room));
    // SAFETY: there is room for as many.
    let status =
        unsafe { drystone_get_pool_stream_stats(device, entries.as_mut_ptr(), &raw mut count) };
    if status != Status::Ok {
        return Err((status, count));
    }
    // SAFETY: as many were written.
    unsafe { entries.set_len(count) };
    entries.sort_by_key(|one| (one.id0, one.is_released, one.stream as usize, one.is_small));
    Ok(entries)
}

#[test]
fn each_pool_size_and_stream_has_peaks_of_its_own() {
    let _held = HELD.read();
    let device = 29;
    let side = stream(simulated(29).unwrap().create_stream().0);
    // What is free on the default stream goes to whoever asks.
    // SAFETY: a C string.
    assert_eq!(unsafe { drystone_configure(device, c"prefer:memory".as_ptr()) }, Status::Ok);
    assert_eq!(drystone_pool_create(device, 5, 6), Status::Ok);
    let (_, gone) = allocate(40 * MIB, device, DEFAULT);
    assert_eq!(drystone_deallocate(gone), Status::Ok);
    let blocks = [
        allocate(1000, device, DEFAULT).1,
        allocate(3 * MIB, device, side).1,
        in_pool(device, MIB),
    ];
    assert_eq!(pool_stream_stats(device, 3).err(), Some((Status::BufferTooSmall, 4)));
    assert!(message().contains("room for 3 entries; there are 4"), "{}", message());
    let brief = |one: &CPoolStreamStats| {
        let active = one.active_bytes;
        let bytes = [active.current, active.peak, one.allocated_bytes].map(|bytes| bytes as usize);
        ((one.id0, one.id1), one.stream, one.is_small, one.is_released, bytes)
    };
    let described =
        |room| pool_stream_stats(device, room).unwrap().iter().map(brief).collect::<Vec<_>>();
    let large = ((0, 0), DEFAULT, 0, 0, [0, 40 * MIB, 0]);
    let small = ((0, 0), DEFAULT, 1, 0, [1024; 3]);
    let other = ((0, 0), side, 0, 0, [3 * MIB; 3]);
    assert_eq!(described(8), [large, small, other, ((5, 6), DEFAULT, 1, 0, [MIB; 3])]);
    let found = pool_stream_stats(device, 4).unwrap();
    assert_eq!(found[0].free_bytes, found[0].largest_free_bytes);
    let held = found.iter().map(|one| one.active_bytes.current + one.free_bytes).sum::<u64>();
    assert_eq!(held, stats(device).reserved_bytes.current);

    assert_eq!(drystone_reset_peaks(device), Status::Ok);
    assert_eq!(drystone_pool_destroy(device, 5, 6), Status::Ok);
    let released = ((0, 0), DEFAULT, 1, 1, [MIB; 3]);
    // The other stream took what it asked for of the large block, and the rest stayed.
    let large = ((0, 0), DEFAULT, 0, 0, [0; 3]);
    assert_eq!(described(4), [large, small, other, released]);
    for block in blocks {
        assert_eq!(drystone_deallocate(block), Status::Ok);
    }
    // SAFETY: null is refused.
    let refused =
        unsafe { drystone_get_pool_stream_stats(device, ptr::null_mut(), ptr::null_mut()) };
    assert_eq!(refused, Status::InvalidValue);
    let mut room = 1;
    // SAFETY: as above.
    let refused = unsafe { drystone_get_pool_stream_stats(device, ptr::null_mut(), &raw mut room) };
    assert_eq!((refused, room), (Status::InvalidValue, 1));
}

#[test]
fn blocks_of_a_pool_are_put_back_as_they_were() {
    let _held = HELD.read();
    let device = 27;
    assert_eq!(drystone_pool_create(device, 5, 6), Status::Ok);
    let sizes = [3 * MIB, 5 * MIB + 1, 2 * MIB];
    let blocks = sizes.map(|size| in_pool(device, size));
    let before = layout(device, 16).2;
    for ptr in blocks {
        assert_eq!(drystone_deallocate(ptr), Status::Ok);
    }
    let other = in_pool(device, 7 * MIB);
    let put = |at: usize| {
        let known = before.iter().find(|block| block.address == blocks[at]).unwrap();
        drystone_allocate_at(blocks[at], known.bytes, sizes[at], device, DEFAULT, 5, 6)
    };
    assert_eq!(put(1), Status::InvalidValue);
    assert!(message().contains("the memory is not all free memory of pool 5, 6"), "{}", message());
    assert_eq!(drystone_deallocate(other), Status::Ok);
    assert_eq!([put(2), put(0), put(1)], [Status::Ok; 3]);
    let now = layout(device, 16).2;
    let brief = |blocks: &[CBlock]| -> Vec<_> {
        blocks
            .iter()
            .map(|one| (one.address, one.bytes, one.requested_bytes, one.is_live))
            .collect()
    };
    assert_eq!(brief(&now), brief(&before));
    assert_eq!(drystone_check(device), Status::Ok);
    let unknown = drystone_allocate_at(blocks[0], 512, 1, device, DEFAULT, 9, 9);
    assert_eq!(unknown, Status::UnknownPool);
}

/// Counts what it gave and got back; its memory is no device's.
unsafe extern "C" fn allocate_far(counts: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes > 64 * MIB {
        return ptr::null_mut();
    }
    // SAFETY: the test's own counters.
    let counts = unsafe { &mut *counts.cast::<[usize; 2]>() };
    counts[0] += 1;
    (counts[0] << 42) as *mut c_void
}

unsafe extern "C" fn free_far(counts: *mut c_void, ptr: *mut c_void, bytes: usize) {
    assert!(!ptr.is_null() && bytes >= 2 * MIB);
    // SAFETY: as above.
    let counts = unsafe { &mut *counts.cast::<[usize; 2]>() };
    counts[1] += 1;
}

#[test]
fn a_pools_memory_is_what_the_program_gives() {
    let _held = HELD.read();
    let device = 28;
    let mut counts = [0_usize; 2];
    let data = (&raw mut counts).cast::<c_void>();
    let over = |allocate, id1| {
        // SAFETY: such functions, or null.
        unsafe { drystone_pool_create_plain(device, 5, id1, allocate, Some(free_far), data, 0) }
    };
    assert_eq!(over(None, 6), Status::InvalidValue);
    assert_eq!([over(Some(allocate_far), 6), over(Some(allocate_far), 6)], [Status::Ok; 2]);
    let block = in_pool(device, 3 * MIB);
    assert_eq!(block as usize, 1 << 42);
    let mut out = ptr::null_mut();
    // SAFETY: the pointer is that of a local.
    let refused =
        unsafe { drystone_allocate_from_pool(&raw mut out, 100 * MIB, device, DEFAULT, 5, 6) };
    assert_eq!(refused, Status::OutOfMemory);
    assert_eq!(drystone_deallocate(block), Status::Ok);
    for _ in 0..2 {
        // SAFETY: the counters are not in use.
        assert_eq!(unsafe { data.cast::<[usize; 2]>().read() }, [1, 0]);
        assert_eq!(drystone_pool_destroy(device, 5, 6), Status::Ok);
    }
    // SAFETY: nothing is written.
    assert_eq!(unsafe { drystone_trim(device, ptr::null_mut()) }, Status::Ok);
    assert_eq!(counts, [1, 1]);
}

#[test]
fn blocks_of_an_unsplit_pool_share_no_segment() {
    let _held = HELD.read();
    let device = 28;
    // SAFETY: such functions, or null.
    let create = |allocate, free, flags| unsafe {
        drystone_pool_create_plain(device, 5, 8, allocate, free, ptr::null_mut(), flags)
    };
    let unsplit = DRYSTONE_POOL_UNSPLIT;
    assert_eq!(create(Some(allocate_far), None, unsplit), Status::InvalidValue);
    assert_eq!(create(None, None, 2 | unsplit), Status::InvalidValue);
    assert_eq!(create(None, None, unsplit), Status::Ok);
    let from_pool = |bytes: usize| {
        let mut out = ptr::null_mut();
        // SAFETY: the pointer is that of a local.
        let status =
            unsafe { drystone_allocate_from_pool(&raw mut out, bytes, device, DEFAULT, 5, 8) };
        assert_eq!(status, Status::Ok);
        out
    };
    let blocks = [1, 1, 3 * MIB].map(from_pool);
    let (status, segments, _) = layout(device, 64);
    assert_eq!(status, Status::Ok);
    let mut own: Vec<_> = segments.iter().filter(|segment| segment.id1 == 8).collect();
    own.sort_by_key(|segment| (segment.bytes, segment.address));
    let sizes: Vec<_> = own.iter().map(|s| (s.bytes / MIB, s.block_count)).collect();
    assert_eq!(sizes, [(2, 1), (2, 1), (4, 1)]);
    for block in blocks {
        assert_eq!(drystone_deallocate(block), Status::Ok);
    }
    assert_eq!(drystone_pool_destroy(device, 5, 8), Status::Ok);
}
