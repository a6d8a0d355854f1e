//! So much and no more is given back, and what was used last goes last.

use super::{heap_of, request};
use crate::{Giving, Heap, PoolId, Prefer, Reuse, StateMachine, StreamId};

const GRANULE: u64 = 2 << 20;

/// A heap with free blocks of so many granules each, apart from each other, in the order freed.
fn free_blocks(granules: &[u64]) -> (Heap, StreamId, Vec<u64>) {
    let mut heap = heap_of(Prefer::Memory);
    let stream = heap.add_stream();
    let mut block =
        |bytes| request(&mut heap, PoolId::DEFAULT, stream, bytes, Reuse::Ordered).address;
    let blocks: Vec<u64> = granules
        .iter()
        .map(|granules| {
            let address = block(granules * GRANULE);
            block(GRANULE);
            address
        })
        .collect();
    (heap, stream, blocks)
}

fn pass(heap: &mut Heap, stream: StreamId) {
    let plan = heap.plan_mark(stream).unwrap();
    let fence = crate::plan::recorded(plan.steps()).next().unwrap();
    let _ = heap.commit(plan, 0);
    heap.fence_passed(fence);
}

/// Gives back until nothing more comes, and returns how much that was.
fn give(heap: &mut Heap, bytes: u64, since: Option<&crate::Points>) -> u64 {
    let reserved = |heap: &Heap| heap.stats().all.reserved_bytes.current;
    let before = reserved(heap);
    while let given = before - reserved(heap)
        && let Some(plan) = Giving::of(heap).plan(bytes.saturating_sub(given), since)
    {
        let _ = heap.commit(plan, 0);
        heap.check().unwrap();
    }
    before - reserved(heap)
}

#[test]
fn no_more_is_given_than_asked_for() {
    let (mut heap, stream, blocks) = free_blocks(&[8, 8, 8]);
    blocks.iter().for_each(|&block| drop(heap.free(block).unwrap()));
    assert_eq!(give(&mut heap, GRANULE, None), 0, "it may still be in use");
    pass(&mut heap, stream);
    assert_eq!(give(&mut heap, 3 * GRANULE, None), 3 * GRANULE);
    assert_eq!(give(&mut heap, 1, None), GRANULE);
    assert_eq!(give(&mut heap, u64::MAX, None), 20 * GRANULE);
    assert_eq!(give(&mut heap, u64::MAX, None), 0);
}

#[test]
fn only_what_was_free_at_some_moment_goes_by_its_points() {
    let (mut heap, stream, blocks) = free_blocks(&[8, 4, 2]);
    let _ = heap.free(blocks[0]).unwrap();
    let _ = heap.free(blocks[1]).unwrap();
    pass(&mut heap, stream);
    let then = Giving::of(&mut heap).points();
    let _ = heap.free(blocks[2]).unwrap();
    // Used in between, too.
    let again = request(&mut heap, PoolId::DEFAULT, stream, 4 * GRANULE, Reuse::Ordered);
    assert_eq!(again.address, blocks[1]);
    let _ = heap.free(again.address).unwrap();
    pass(&mut heap, stream);
    assert_eq!(give(&mut heap, u64::MAX, Some(&then)), 8 * GRANULE);
    assert_eq!(give(&mut heap, u64::MAX, None), 6 * GRANULE);
}

/// What a request takes of handles that others made, in granules, and what that creates.
fn adopted(sizes: &[u64], request: u64) -> (u64, u64) {
    let mut heap = heap_of(Prefer::Balanced);
    let stream = heap.add_stream();
    let sizes = sizes.iter().map(|granules| granules * GRANULE);
    assert_eq!(Giving::of(&mut heap).adopt(sizes.clone()).len(), sizes.len());
    let before = heap.vm.figures().idle_bytes;
    assert_eq!(before, heap.stats().all.reserved_bytes.current);
    request_of(&mut heap, stream, request * GRANULE);
    heap.check().unwrap();
    let (taken, held) = (before - heap.vm.figures().idle_bytes, heap.stats().all.reserved_bytes);
    (taken / GRANULE, (held.current - before) / GRANULE)
}

fn request_of(heap: &mut Heap, stream: StreamId, bytes: u64) {
    request(heap, PoolId::DEFAULT, stream, bytes, Reuse::Ordered);
}

#[test]
fn what_others_made_backs_a_request_before_anything_is_created() {
    assert_eq!(adopted(&[32, 32, 32], 96), (96, 0));
    assert_eq!(adopted(&[32, 64], 40), (64, 0), "the rest is free beside it");
    assert_eq!(adopted(&[4, 64, 32], 100), (100, 0));
    assert_eq!(adopted(&[64, 1], 1), (1, 0), "the least that does");
    assert_eq!(adopted(&[16, 64], 20), (64, 0), "one that does for all");
    assert_eq!(adopted(&[16, 18], 20), (34, 0), "one that does for the rest");
    let (taken, created) = adopted(&[32], 96);
    assert!(taken + created >= 96 && created > 0);
}

#[test]
fn no_more_is_adopted_than_the_limit_leaves_room_for_and_nothing_of_no_size() {
    let mut heap = heap_of(Prefer::Balanced);
    heap.set_limit(5 * GRANULE);
    let adopted = Giving::of(&mut heap).adopt([2, 2, 2, 1].map(|granules| granules * GRANULE));
    assert_eq!((adopted.len(), heap.stats().all.reserved_bytes.current), (2, 4 * GRANULE));
    for bytes in [0, 1, GRANULE + 1, u64::MAX, GRANULE << 16] {
        assert!(Giving::of(&mut heap).adopt([bytes]).is_empty(), "{bytes}");
    }
    heap.check().unwrap();
}

/// Nothing is used of it, whenever it came.
#[test]
fn what_backs_nothing_goes_with_what_was_not_used_for_long() {
    let (mut heap, stream, _blocks) = free_blocks(&[4]);
    let then = Giving::of(&mut heap).points();
    pass(&mut heap, stream);
    assert_eq!(Giving::of(&mut heap).adopt([8 * GRANULE, GRANULE]).len(), 2);
    assert_eq!(give(&mut heap, u64::MAX, Some(&then)), 9 * GRANULE);
}
