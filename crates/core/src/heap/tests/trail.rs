//! Trails of blocks (I18): what is taken back, and that nobody can tell.

use super::{heap_of, request};
use crate::{FreeError, Freed, Granted, Heap, PoolId, Prefer, Reuse, StateMachine, StreamId};

const MIB: u64 = 1 << 20;

fn heap() -> (Heap, StreamId, StreamId) {
    let mut heap = heap_of(Prefer::Balanced);
    let (a, b) = (heap.add_stream(), heap.add_stream());
    (heap, a, b)
}

fn take(heap: &mut Heap, stream: StreamId, bytes: u64) -> Granted {
    if let Some(grant) = heap.allocate(PoolId::DEFAULT, stream, bytes).unwrap() {
        return grant;
    }
    request(heap, PoolId::DEFAULT, stream, bytes, Reuse::Ordered)
}

fn give(heap: &mut Heap, grant: Granted) {
    assert!(matches!(heap.free(grant.address).unwrap(), Freed::Done));
    heap.check().unwrap();
}

fn unjoined(heap: &Heap) -> usize {
    heap.space.lists().iter().map(|list| list.trail.unjoined().len()).sum()
}

/// Blocks of 2 MiB and so on, cut from the front of what is free.
fn side_by_side(heap: &mut Heap, stream: StreamId, count: u64) -> Vec<Granted> {
    let sizes = || (2..2 + count).map(|mib| mib * MIB);
    let whole = take(heap, stream, sizes().sum::<u64>() + 2 * MIB);
    give(heap, whole);
    sizes().map(|bytes| take(heap, stream, bytes)).collect()
}

fn give_back(heap: &mut Heap, grants: &[Granted]) {
    grants.iter().rev().for_each(|&grant| give(heap, grant));
    assert_eq!(unjoined(heap), grants.len());
}

#[test]
fn the_same_sizes_are_taken_back() {
    let (mut heap, stream, _) = heap();
    let grants = side_by_side(&mut heap, stream, 4);
    for first in [3, 0, 2, 1] {
        give_back(&mut heap, &grants[first..]);
        for &grant in &grants[first..] {
            assert_eq!(take(&mut heap, stream, grant.bytes), grant);
            heap.check().unwrap();
        }
    }
    assert_eq!((unjoined(&heap), heap.stats().all.allocations.current), (0, 4));
}

#[test]
fn another_size_finds_all_joined() {
    let (mut heap, stream, _) = heap();
    let grants = side_by_side(&mut heap, stream, 4);
    give_back(&mut heap, &grants[1..]);
    // 3, 4 and 5 MiB: together they serve what none of them does.
    assert_eq!(take(&mut heap, stream, 11 * MIB).address, grants[1].address);
    assert_eq!(unjoined(&heap), 0);
    heap.check().unwrap();
    // The one before is still the last but one that was given.
    give(&mut heap, Granted { bytes: 11 * MIB, ..grants[1] });
    give(&mut heap, grants[0]);
    assert_eq!(unjoined(&heap), 2);
}

#[test]
fn a_free_out_of_order_ends_the_trail() {
    let (mut heap, stream, _) = heap();
    let grants = side_by_side(&mut heap, stream, 4);
    give_back(&mut heap, &grants[3..]);
    give(&mut heap, grants[1]);
    give(&mut heap, grants[2]);
    assert_eq!(unjoined(&heap), 0);
    assert_eq!(take(&mut heap, stream, 12 * MIB).address, grants[1].address);
}

#[test]
fn a_trail_that_is_too_long_begins_anew() {
    let (mut heap, stream, _) = heap();
    let grants = side_by_side(&mut heap, stream, 70);
    for &grant in grants.iter().rev() {
        give(&mut heap, grant);
    }
    assert_eq!(unjoined(&heap), 0);
    let all = grants.iter().map(|grant| grant.bytes).sum();
    assert_eq!(take(&mut heap, stream, all).address, grants[0].address);
}

#[test]
fn who_looks_sees_them_joined_and_changes_nothing() {
    let (mut heap, stream, _) = heap();
    let grants = side_by_side(&mut heap, stream, 3);
    give_back(&mut heap, &grants);
    let seen = |heap: &Heap| {
        let stats = heap.pool_stream_stats();
        (heap.snapshot(), stats, heap.largest_free_bytes(), heap.unused_bytes())
    };
    let before = seen(&heap);
    heap.space.end_trails();
    assert_eq!((unjoined(&heap), seen(&heap)), (0, before));
}

#[test]
fn p3_a_free_of_an_unjoined_block_is_refused() {
    let (mut heap, stream, other) = heap();
    let grants = side_by_side(&mut heap, stream, 2);
    give_back(&mut heap, &grants);
    for address in [grants[0].address, grants[1].address] {
        let error = FreeError::AlreadyFree { address };
        assert_eq!(heap.free(address).unwrap_err(), error);
        assert_eq!(heap.record_stream(address, other), Err(error.into()));
        assert_eq!(heap.size_of(address), Err(error));
    }
    assert_eq!(unjoined(&heap), 2);
}

/// A request for a place, a trim and a miss of another stream find what is free.
#[test]
fn whoever_looks_for_memory_finds_it() {
    let (mut heap, stream, other) = heap();
    let grant = side_by_side(&mut heap, stream, 1)[0];
    give_back(&mut heap, &[grant]);
    let place = grant.address..grant.address + grant.bytes;
    let placed = heap.allocate_at(PoolId::DEFAULT, stream, grant.bytes, place).unwrap();
    assert_eq!(placed, Some(grant));
    give(&mut heap, grant);
    assert_eq!(take(&mut heap, stream, grant.bytes), grant);
    give_back(&mut heap, &[grant]);
    assert!(heap.plan_trim().is_none(), "its last use is not known to be complete");
    assert_eq!(unjoined(&heap), 0);
    assert_eq!(take(&mut heap, stream, grant.bytes), grant);
    give_back(&mut heap, &[grant]);
    take(&mut heap, other, 2 * MIB);
    assert_eq!(unjoined(&heap), 0);
    heap.check().unwrap();
}

/// A heap that puts joins off gives the same addresses as one that never does.
#[test]
fn no_decision_is_another() {
    for seed in 1..=40_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let ((mut putting_off, stream, _), (mut joining, its_stream, _)) = (heap(), heap());
        let (mut live, mut put_off) = (Vec::new(), 0);
        for _ in 0..2000 {
            let last = live.len().saturating_sub(1);
            match random(8) {
                0..4 => {
                    let bytes = (1 + random(5)) * if random(2) == 0 { 20_000 } else { MIB };
                    let grant = take(&mut putting_off, stream, bytes);
                    assert_eq!(take(&mut joining, its_stream, bytes), grant, "seed {seed}");
                    live.push(grant);
                }
                choice if !live.is_empty() => {
                    let at = if choice < 7 { last } else { random(live.len() as u64) as usize };
                    let address = live.remove(at).address;
                    for heap in [&mut putting_off, &mut joining] {
                        assert!(matches!(heap.free(address).unwrap(), Freed::Done));
                    }
                    joining.space.end_trails();
                    put_off = put_off.max(unjoined(&putting_off));
                }
                _ => {}
            }
        }
        assert_eq!(putting_off.snapshot(), joining.snapshot(), "seed {seed}");
        assert!(put_off > 1, "seed {seed} puts nothing off");
    }
}
