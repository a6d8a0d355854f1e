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
