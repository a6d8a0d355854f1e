//! What is done in parts, so that others' hits are served in between.

use super::request;
use crate::heap::trim::{RELEASED_AT_ONCE, Trim, Whose};
use crate::{
    Config, Fence, Freed, Giving, Heap, PoolId, Prefer, Reuse, SegmentKind, StateMachine, Step,
    StreamId,
};

const GRANULE: u64 = 2 << 20;

fn heap() -> (Heap, [StreamId; 2]) {
    let mut heap = Heap::new(Config::new(SegmentKind::Mapped, GRANULE, 1 << 40));
    let streams = [(); 2].map(|()| heap.add_stream());
    (heap, streams)
}

fn allocate(heap: &mut Heap, stream: StreamId, bytes: u64) -> u64 {
    request(heap, PoolId::DEFAULT, stream, bytes, Reuse::Ordered).address
}

/// Thousands of blocks wait for one stream, which comes to its end: they are freed in parts, each
/// of which leaves a heap whose every invariant holds.
#[test]
fn i9_what_waited_for_a_stream_is_freed_in_parts() {
    let (mut heap, [a, b]) = heap();
    let blocks: Vec<u64> = (0..2000).map(|_| allocate(&mut heap, a, 512)).collect();
    let mut last = None;
    for block in blocks {
        heap.record_stream(block, b).unwrap();
        let Ok(Freed::Plan(plan)) = heap.free(block) else { panic!("{b:?} may still use it") };
        let &[Step::Record { fence }] = plan.steps() else { panic!("{plan:?}") };
        let _ = heap.commit(*plan, 0);
        last = Some(fence);
    }
    let last = last.unwrap();
    let pending = |heap: &Heap| heap.stats().all.active_blocks.current;
    assert_eq!(pending(&heap), 2000);
    loop {
        let (part, before) = (heap.part_of(last), pending(&heap));
        heap.fence_passed(part);
        heap.check().unwrap();
        assert!((1..=256).contains(&(before - pending(&heap))), "{part:?}");
        if part == last {
            break;
        }
    }
    assert_eq!(pending(&heap), 0);
}

/// The end of a predecessor is nothing to wait for, whatever waits for who took its place.
#[test]
fn a_fence_of_a_stream_that_was_succeeded_has_no_parts() {
    let (mut heap, [a, b]) = heap();
    let old = Fence { stream: b, point: 1 };
    let plan = heap.retire_stream(b).unwrap();
    let _ = heap.commit(plan, 0);
    heap.fence_passed(old);
    let successor = heap.add_stream();
    assert_eq!(successor.index(), b.index());
    for _ in 0..600 {
        let block = allocate(&mut heap, a, 512);
        heap.record_stream(block, successor).unwrap();
        if let Ok(Freed::Plan(plan)) = heap.free(block) {
            let _ = heap.commit(*plan, 0);
        }
    }
    let of_old = Fence { point: u64::MAX, ..old };
    assert_eq!(heap.part_of(of_old), of_old);
}

fn synchronize(heap: &mut Heap) {
    let plan = heap.plan_synchronize();
    let _ = heap.commit(plan, 0);
}

/// A trim of a heap with thousands of small blocks looks at none that has no whole granule.
#[test]
fn a_trim_looks_at_what_it_could_give_back_alone() {
    let (mut heap, [a, _]) = heap();
    let blocks: Vec<u64> = (0..3000).map(|_| allocate(&mut heap, a, 512)).collect();
    for &block in blocks.iter().step_by(2) {
        assert!(matches!(heap.free(block), Ok(Freed::Done)));
    }
    synchronize(&mut heap);
    let starts = |heap: &mut Heap| Trim::of(heap, Whose::All).run_starts().len();
    assert_eq!(starts(&mut heap), 0);
    assert!(heap.plan_trim().is_none());
    for &block in blocks.iter().skip(1).step_by(2) {
        assert!(matches!(heap.free(block), Ok(Freed::Done)));
    }
    assert_eq!(starts(&mut heap), 1);
}

/// A granule of which one stream has the first half free, another the second.
#[test]
fn b13_a_trim_finds_what_is_whole_only_together() {
    let (mut heap, [a, b]) = heap();
    let halves = [(); 2].map(|()| allocate(&mut heap, a, GRANULE / 2));
    assert_eq!(halves[0] + GRANULE / 2, halves[1]);
    assert!(matches!(heap.free(halves[0]), Ok(Freed::Done)));
    synchronize(&mut heap);
    assert_eq!(allocate(&mut heap, b, GRANULE / 2), halves[0]);
    for half in halves {
        assert!(matches!(heap.free(half), Ok(Freed::Done)));
    }
    heap.check().unwrap();
    assert!(heap.plan_trim().is_none(), "the device may still be using them");
    synchronize(&mut heap);
    while let Some(plan) = heap.plan_trim() {
        let _ = heap.commit(plan, 0);
        heap.check().unwrap();
    }
    assert_eq!(heap.stats().all.reserved_bytes.current, 0);
}

/// Thousands of free granules, none beside another: plan by plan, all go back.
#[test]
fn a_trim_gives_back_in_parts() {
    let (mut heap, [a, _]) = heap();
    heap.headroom.config.prefer = Prefer::Memory;
    heap.headroom.config.left_per_handle = u64::MAX;
    let blocks: Vec<u64> = (0..2400).map(|_| allocate(&mut heap, a, GRANULE)).collect();
    for &block in blocks.iter().step_by(2) {
        assert!(matches!(heap.free(block), Ok(Freed::Done)));
    }
    synchronize(&mut heap);
    let mut plans = 0;
    while let Some(plan) = heap.plan_trim() {
        assert!(plan.steps().len() <= 2 * RELEASED_AT_ONCE);
        let _ = heap.commit(plan, 0);
        heap.check().unwrap();
        plans += 1;
    }
    assert_eq!((plans, heap.stats().all.reserved_bytes.current), (3, 1200 * GRANULE));
}

/// Whoever wants a little gets about that, and the rest stays cached.
#[test]
fn a_gift_of_some_bytes_is_no_more_than_a_handle_beyond() {
    let (mut heap, [a, _]) = heap();
    heap.headroom.config.prefer = Prefer::Memory;
    let blocks: Vec<u64> = (0..40).map(|_| allocate(&mut heap, a, GRANULE)).collect();
    for &block in &blocks {
        assert!(matches!(heap.free(block), Ok(Freed::Done)));
    }
    assert!(
        Giving::of(&mut heap).plan(1, None).is_none(),
        "its last use is not known to be complete"
    );
    synchronize(&mut heap);
    for (wanted_bytes, left) in [(1, 39), (GRANULE, 38), (5 * GRANULE, 33), (u64::MAX, 0)] {
        let plan = Giving::of(&mut heap).plan(wanted_bytes, None).unwrap();
        let _ = heap.commit(plan, 0);
        heap.check().unwrap();
        assert_eq!(heap.stats().all.reserved_bytes.current, left * GRANULE, "{wanted_bytes}");
    }
}
