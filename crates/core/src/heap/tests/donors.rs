//! How many free blocks a request looks at for a remap.

use super::{heap_of, request};
use crate::headroom::Room;
use crate::heap::Heap;
use crate::heap::search::{LOOK, LOOKED};
use crate::{Freed, Giving, Outcome, PoolId, Prefer, Reuse, StateMachine, Step, StreamId};

const GRANULE: u64 = 2 << 20;

/// So many holes of a granule between live blocks, each a handle of its own.
fn with_holes(prefer: Prefer, holes: usize) -> (Heap, StreamId) {
    with_holes_in(heap_of(prefer), holes)
}

fn with_holes_in(mut heap: Heap, holes: usize) -> (Heap, StreamId) {
    heap.headroom.config.left_per_handle = u64::MAX;
    let stream = heap.add_stream();
    let blocks: Vec<u64> = (0..2 * holes).map(|_| allocate(&mut heap, stream, 1)).collect();
    for &block in blocks.iter().step_by(2) {
        assert!(matches!(heap.free(block), Ok(Freed::Done)));
    }
    (heap, stream)
}

fn allocate(heap: &mut Heap, stream: StreamId, granules: u64) -> u64 {
    request(heap, PoolId::DEFAULT, stream, granules * GRANULE, Reuse::MayWait).address
}

/// How many free blocks are looked at for a request.
fn looked(heap: &mut Heap, stream: StreamId, granules: u64) -> usize {
    LOOKED.set(0);
    // With a window to be had, a request is made once.
    let block = allocate(heap, stream, granules);
    assert!(matches!(heap.free(block), Ok(Freed::Done)));
    heap.check().unwrap();
    LOOKED.get()
}

#[test]
fn a_remap_looks_at_a_bound_of_blocks_once_they_have_enough() {
    let (mut heap, stream) = with_holes(Prefer::Memory, 3 * LOOK);
    looked(&mut heap, stream, 8);
    let granules = heap.stats().all.reserved_bytes.current / GRANULE;
    assert_eq!(granules, 6 * LOOK as u64);
    for asked in [8, 64, LOOK as u64] {
        let looked = looked(&mut heap, stream, asked);
        assert!((1..=LOOK).contains(&looked), "{looked} blocks for {asked} granules");
    }
    // As far as it takes: nothing is created while there is enough.
    assert_eq!(looked(&mut heap, stream, 3 * LOOK as u64), 3 * LOOK);
    assert_eq!(heap.stats().all.reserved_bytes.current / GRANULE, granules);
}

/// The last that were filed are looked at first: those that came home from the window.
#[test]
fn a_remap_finds_what_its_window_leads_to_among_thousands() {
    let (mut heap, stream) = with_holes(Prefer::Memory, 3 * LOOK);
    for granules in [8, 100, 8, 100] {
        looked(&mut heap, stream, granules);
    }
    let remapped = heap.stats().granule_remaps;
    let before = heap.remap_stats().aliases;
    for granules in [100, 8, 8, 100] {
        looked(&mut heap, stream, granules);
    }
    assert!(heap.stats().granule_remaps > remapped);
    assert_eq!(heap.remap_stats().aliases, before, "a window is mapped anew");
}

/// Addresses for what neighbours gave may be refused again and again.
#[test]
fn where_addresses_are_refused_what_is_free_serves_before_what_neighbours_gave() {
    let mut heap = heap_of(Prefer::Memory);
    heap.headroom.room = Room::Needed;
    let (mut heap, stream) = with_holes_in(heap, 16);
    heap.headroom.room = Room::Whole;
    looked(&mut heap, stream, 8);
    heap.headroom.room = Room::Needed;
    assert_eq!(Giving::of(&mut heap).adopt([12 * GRANULE]).len(), 1);
    let served = heap.request(PoolId::DEFAULT, stream, 12 * GRANULE, Reuse::MayWait);
    let Ok(Outcome::Plan(plan)) = served else { panic!("{served:?}") };
    assert!(!plan.steps().iter().any(|step| matches!(step, Step::Reserve { .. })), "{plan:?}");
}
