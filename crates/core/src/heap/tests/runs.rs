//! Runs of free blocks of several streams: which one serves, and how many blocks are looked at.

use super::{heap_of, request};
use crate::fence::StreamOrder;
use crate::headroom::Look;
use crate::heap::search::LOOKED;
use crate::plan::Request;
use crate::{FreeError, Granted, Heap, PoolId, Prefer, Reuse, SizeClass, StateMachine, StreamId};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn heap() -> Heap {
    heap_of(Prefer::Memory)
}

fn take(heap: &mut Heap, stream: StreamId, bytes: u64) -> Granted {
    request(heap, PoolId::DEFAULT, stream, bytes, Reuse::MayWait)
}

fn give(heap: &mut Heap, grant: Granted) {
    assert!(matches!(heap.free(grant.address).unwrap(), crate::Freed::Done));
}

/// The size of the run that would serve a request, and how many blocks were looked at.
fn run(heap: &mut Heap, stream: StreamId, bytes: u64) -> (Option<(u64, u64)>, usize) {
    let list =
        heap.pools.list_in(&mut heap.space, PoolId::DEFAULT.index, SizeClass::Small, stream.index);
    LOOKED.set(0);
    let run = heap
        .search(Request { list, requested: bytes, bytes, reuse: Reuse::MayWait, look: Look::Past })
        .run(StreamOrder::Unrecorded);
    let blocks = &heap.space.blocks;
    let place = run.map(|run| (blocks[run.first].address, blocks[run.last].end()));
    (place, LOOKED.get())
}

/// Until then they do not share a segment.
#[test]
fn where_there_is_no_more_memory_small_blocks_and_large_ones_share_it() {
    let mut heap = heap();
    heap.headroom.config.left_per_handle = u64::MAX;
    let stream = heap.add_stream();
    let large = [(); 4].map(|()| take(&mut heap, stream, 3 * MIB / 2));
    let small = take(&mut heap, stream, KIB);
    assert!(small.address.abs_diff(large[0].address) > 1 << 30, "they share a segment");
    let reserved_bytes = heap.stats().all.reserved_bytes.current;
    heap.set_limit(reserved_bytes);
    // No whole granule is free with it.
    give(&mut heap, large[1]);
    let filling = take(&mut heap, stream, MIB);
    assert!(small.address.abs_diff(filling.address) < 2 * MIB);
    let beside = take(&mut heap, stream, MIB);
    assert_eq!(beside.address, large[1].address);
    heap.check().unwrap();
    let refuses = |heap: &mut Heap| {
        heap.request(PoolId::DEFAULT, stream, 3 * MIB / 2, Reuse::MayWait).is_err()
    };
    assert!(refuses(&mut heap));
    give(&mut heap, filling);
    let other = take(&mut heap, stream, 3 * MIB / 2);
    assert!(other.address.abs_diff(small.address) < 2 * MIB);
    assert!(refuses(&mut heap));
    assert_eq!(heap.stats().all.reserved_bytes.current, reserved_bytes);
    heap.check().unwrap();
}

/// Behind more blocks than the search for its reason walks.
#[test]
fn p3_a_bad_free_is_explained_among_many_blocks() {
    let mut heap = heap();
    let stream = heap.add_stream();
    let grants: Vec<Granted> = (0..20_000).map(|_| take(&mut heap, stream, KIB)).collect();
    let (block, freed) = (grants[19_990], grants[19_995]);
    give(&mut heap, freed);
    let address = block.address + 700;
    let inside = FreeError::Interior { address, block_address: block.address, block_bytes: KIB };
    assert_eq!(heap.free(address).unwrap_err(), inside);
    for address in [freed.address, freed.address + 512] {
        assert_eq!(heap.free(address).unwrap_err(), FreeError::AlreadyFree { address });
    }
    let address = (2 << 40) - 512;
    assert_eq!(heap.free(address).unwrap_err(), FreeError::Unknown { address });
    heap.check().unwrap();
}

#[test]
fn free_blocks_that_are_too_small_are_not_looked_at() {
    let mut heap = heap();
    let (a, b) = (heap.add_stream(), heap.add_stream());
    let grants: Vec<Granted> = (0..20_000).map(|_| take(&mut heap, a, 512)).collect();
    grants.iter().step_by(2).for_each(|&grant| give(&mut heap, grant));
    assert_eq!(run(&mut heap, b, MIB / 2), (None, 0));
    // Of thousands that are large enough, some will do.
    let (found, looked) = run(&mut heap, b, 512);
    assert!(found.is_some() && looked <= 1025, "{looked} blocks were looked at");
}

#[test]
fn blocks_of_two_streams_that_lie_together_are_found_and_are_all_that_is_looked_at() {
    let mut heap = heap();
    let (a, b) = (heap.add_stream(), heap.add_stream());
    let grants: Vec<Granted> = (0..4096).map(|_| take(&mut heap, a, KIB)).collect();
    grants[..1600].iter().step_by(2).for_each(|&grant| give(&mut heap, grant));
    // The first sixteen become the other stream's.
    let theirs: Vec<Granted> = (0..16).map(|_| take(&mut heap, b, KIB)).collect();
    heap.check().unwrap();
    theirs.iter().for_each(|&grant| give(&mut heap, grant));
    heap.check().unwrap();
    assert_eq!(run(&mut heap, b, 3 * KIB), (None, 0));
    let first = theirs[4].address;
    give(&mut heap, grants[9]);
    heap.space.end_trails();
    heap.check().unwrap();
    let (found, looked) = run(&mut heap, b, 3 * KIB);
    assert_eq!(found, Some((first, first + 3 * KIB)));
    assert_eq!(looked, 1);
    take(&mut heap, b, 3 * KIB);
    heap.check().unwrap();
}
