//! A block that several handles back gets one.

use drystone_core::{SharedBy, StateMachine, Step, StreamId, Whole};

use super::{GRANULE, MIB};
use crate::world::{Fate, Setup, World};

/// A world of single granules on a device with room for so many more; the second of three blocks
/// begins and ends within a granule.
fn three(room: u64) -> (World, StreamId, [u64; 3]) {
    let bytes = (9 + room) * GRANULE;
    let setup = Setup { capacity_bytes: bytes, device_bytes: bytes, ..Setup::default() };
    let mut world = World::new(&setup);
    let stream = world.reference.streams[0];
    let blocks = [3 * MIB, 5 * GRANULE, 3 * MIB].map(|one| world.allocate(stream, one).unwrap());
    (world, stream, blocks)
}

fn handles(world: &mut World, address: u64) -> usize {
    Whole::of(&mut world.heap).handles(address).unwrap()
}

fn make_whole(world: &mut World, address: u64) {
    while world.make_whole(address, Fate::Complete) {
        world.verify();
    }
}

#[test]
fn a_block_becomes_one_handle_and_what_lies_beside_it_keeps_its_bytes() {
    let (mut world, _, [before, block, after]) = three(20);
    assert_eq!(handles(&mut world, block), 6);
    make_whole(&mut world, block + 3 * MIB);
    assert_eq!(handles(&mut world, block), 1);
    assert_eq!(world.heap.stats().moves, 1);
    // Its ends are others', too, which are not torn apart.
    assert_eq!([before, after].map(|one| handles(&mut world, one)), [1, 1]);
    let moved_bytes = world.heap.stats().moved_bytes;
    assert_eq!(moved_bytes, 8 * GRANULE);
    let plan = Whole::of(&mut world.heap).plan_release(moved_bytes).unwrap();
    assert!(plan.steps().iter().all(|step| matches!(step, Step::Release { .. })));
    world.heap.abandon(plan, 0);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 8 * GRANULE);
    world.finish();
}

#[test]
fn a_handle_of_any_size_serves_and_goes_back_like_others() {
    let (mut world, stream, [before, block, after]) = three(20);
    make_whole(&mut world, block);
    world.free(block);
    let parts = [2 * GRANULE, 3 * GRANULE].map(|bytes| world.allocate(stream, bytes).unwrap());
    world.verify();
    parts.into_iter().chain([before, after]).for_each(|address| world.free(address));
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn what_must_not_move_stays_as_it_is() {
    let (mut world, _, [before, block, after]) = three(20);
    assert!(Whole::of(&mut world.heap).handles(block + 64 * GRANULE).is_err());
    world.pin(before);
    assert!(!world.make_whole(block, Fate::Complete), "a granule of it is pinned");
    world.unpin(0);
    world.heap.share(after..after + 1, SharedBy::Range).unwrap();
    assert!(!world.make_whole(block, Fate::Complete), "others have a granule of it");
    make_whole(&mut world, before);
    assert_eq!(world.heap.stats().moves, 1);
    let pool = world.add_pool();
    let at = world.pools.iter().position(|&(other, _)| other == pool).unwrap();
    let stream = world.reference.streams[0];
    let private = world.allocate_with(
        at,
        stream,
        4 * GRANULE,
        drystone_core::Captured::None,
        (0, Fate::Complete),
    );
    assert!(!world.make_whole(private.unwrap(), Fate::Complete), "a graph may use it");
    world.finish();
}

#[test]
fn room_is_made_by_giving_back_what_is_unused_or_nothing_is_begun() {
    let (mut world, _, [_, block, _]) = three(0);
    make_whole(&mut world, block);
    assert_eq!((handles(&mut world, block), world.heap.stats().moves), (6, 0));
    world.finish();
    let (mut world, stream, [_, block, _]) = three(6);
    let unused = world.allocate(stream, 7 * GRANULE).unwrap();
    world.free(unused);
    world.synchronize(Fate::Complete);
    make_whole(&mut world, block);
    assert_eq!((handles(&mut world, block), world.heap.stats().moves), (1, 1));
    world.finish();
}

/// A full world, in which a block is a window over two places.
fn windowed() -> (World, StreamId, u64) {
    let bytes = 6 * GRANULE;
    let setup = Setup { capacity_bytes: bytes, device_bytes: bytes, ..Setup::default() };
    let mut world = World::new(&setup);
    let stream = world.reference.streams[0];
    let blocks = [2, 1, 2, 1].map(|one| world.allocate(stream, one * GRANULE).unwrap());
    world.free(blocks[0]);
    world.free(blocks[2]);
    let window = world.allocate(stream, 4 * GRANULE).unwrap();
    (world, stream, window)
}

#[test]
fn idle_windows_over_it_go_first() {
    let (mut world, stream, window) = windowed();
    assert!(!world.make_whole(window, Fate::Complete), "it is mapped elsewhere");
    world.free(window);
    world.synchronize(Fate::Complete);
    let block = world.allocate(stream, 2 * GRANULE).unwrap();
    assert_eq!(world.heap.remap_stats().aliases, 4);
    make_whole(&mut world, block);
    assert_eq!((handles(&mut world, block), world.heap.remap_stats().aliases), (1, 0));
    world.finish();
}

/// Each step fails once, and the undo of it stops at each place that it may: the bytes are where
/// they were, and the same is done the next time.
#[test]
fn a_step_fails_and_it_can_be_tried_again() {
    for after in 0.. {
        for stop in std::iter::once(None).chain((0..2).map(Some)) {
            let (mut world, _, [_, block, _]) = three(20);
            let plan = Whole::of(&mut world.heap).plan(block).unwrap();
            let steps = plan.steps().len();
            world.heap.abandon(plan, 0);
            if after >= steps {
                return;
            }
            world.make_whole(block, Fate::Fail { after, stop });
            world.verify();
            assert_eq!(world.heap.stats().moves, 0);
            make_whole(&mut world, block);
            assert_eq!(handles(&mut world, block), 1);
            world.finish();
        }
    }
}

#[test]
fn what_is_freed_while_it_moves_is_free_afterwards() {
    let (mut world, _, blocks) = three(20);
    assert!(world.make_whole(blocks[1], Fate::Open { done: usize::MAX }));
    blocks.into_iter().for_each(|address| world.free(address));
    world.verify();
    world.resume(0, Fate::Complete);
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn idle_windows_stay_where_the_block_cannot_move() {
    let (mut world, stream, window) = windowed();
    world.free(window);
    world.synchronize(Fate::Complete);
    let block = world.allocate(stream, 2 * GRANULE).unwrap();
    world.pin(block);
    make_whole(&mut world, block);
    assert_eq!((handles(&mut world, block), world.heap.remap_stats().aliases), (2, 4));
}
