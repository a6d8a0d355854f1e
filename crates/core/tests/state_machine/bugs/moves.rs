//! Live memory that gets other memory behind its addresses.

use drystone_core::{SharedBy, StateMachine, Step, StreamId};

use super::GRANULE;
use crate::world::{Fate, Setup, World};

/// A world of handles of four granules, full of blocks of one, and the device is no larger.
fn full(granules: u64) -> (World, StreamId, Vec<u64>) {
    let bytes = granules * GRANULE;
    let setup = Setup { left_per_handle: 1, capacity_bytes: bytes, ..Setup::default() };
    let setup = Setup { device_bytes: bytes, ..setup };
    let mut world = World::new(&setup);
    let stream = world.reference.streams[0];
    let first = world.allocate(stream, 4 * GRANULE).unwrap();
    let mut blocks = vec![first];
    blocks.extend((4..granules).map(|_| world.allocate(stream, GRANULE).unwrap()));
    (world, stream, blocks)
}

/// Moves memory for a request until nothing is left to do.
fn compact_for(world: &mut World, bytes: u64) {
    while world.compact(Some(bytes), Fate::Complete) {
        world.verify();
    }
}

#[test]
fn what_lies_unused_beside_live_blocks_serves_one_request() {
    let (mut world, stream, blocks) = full(20);
    // One granule of each of four handles stays.
    let kept: Vec<u64> = blocks[1..].iter().copied().step_by(4).collect();
    let freed = blocks[1..].iter().filter(|address| !kept.contains(address));
    freed.for_each(|&address| world.free(address));
    world.free(blocks[0]);
    let bytes = 16 * GRANULE;
    assert_eq!(world.allocate(stream, bytes), None, "four granules are in the way");
    world.synchronize(Fate::Complete);
    compact_for(&mut world, bytes);
    while world.trim(Fate::Complete) {}
    assert!(world.heap.stats().moves > 0);
    world.allocate(stream, bytes).unwrap();
    assert_eq!(world.device.held_bytes(), 20 * GRANULE);
    world.finish();
}

#[test]
fn nothing_moves_for_what_could_not_be_served_all_the_same() {
    let (mut world, _, blocks) = full(20);
    world.free(blocks[0]);
    blocks[1..].iter().skip(1).step_by(2).for_each(|&address| world.free(address));
    world.synchronize(Fate::Complete);
    assert!(!world.compact(Some(13 * GRANULE), Fate::Complete), "twelve are free");
    let moves = world.heap.stats().moves;
    compact_for(&mut world, 12 * GRANULE);
    assert!(world.heap.stats().moves > moves);
    world.finish();
}

#[test]
fn room_for_moves_is_made_as_far_as_it_can_be() {
    let (mut world, _, blocks) = full(20);
    world.free(blocks[0]);
    world.free(blocks[1]);
    world.synchronize(Fate::Complete);
    // Four granules are at hand for two, and the fifth is less than a whole room.
    compact_for(&mut world, 2 * GRANULE);
    assert_eq!(world.heap.stats().moves, 1);
    world.finish();
}

#[test]
fn i16_pinned_memory_does_not_move() {
    let (mut world, _, blocks) = full(8);
    world.free(blocks[2]);
    world.pin(blocks[1]);
    world.synchronize(Fate::Complete);
    assert!(!world.compact(None, Fate::Complete));
    world.unpin(0);
    world.free(blocks[0]);
    world.synchronize(Fate::Complete);
    assert!(world.compact(None, Fate::Complete));
    world.finish();
}

#[test]
fn memory_that_others_have_does_not_move() {
    let (mut world, _, blocks) = full(8);
    world.free(blocks[0]);
    world.free(blocks[2]);
    let block = world.heap.block_at(blocks[1]).unwrap();
    let addresses = block.address..block.address + block.bytes;
    for by in [SharedBy::Export, SharedBy::Attribute, SharedBy::Attribute] {
        world.heap.share(addresses.clone(), by).unwrap();
    }
    let shared = world.heap.shared();
    let told: Vec<_> = shared.iter().map(|one| (one.by, one.handles)).collect();
    assert_eq!(told, [(SharedBy::Export, 1), (SharedBy::Attribute, 1)]);
    assert!(shared.iter().all(|one| one.bytes >= block.bytes));
    world.synchronize(Fate::Complete);
    assert!(!world.compact(None, Fate::Complete));
    world.finish();
}

/// A world with a window of two handles, of the second of which three granules are free; and the
/// block there. There is a free handle beside it.
fn with_window() -> (World, StreamId, u64) {
    let (mut world, stream, blocks) = full(24);
    world.free(blocks[0]);
    blocks[5..9].iter().for_each(|&address| world.free(address));
    let within = world.allocate(stream, 5 * GRANULE).unwrap();
    assert_eq!(world.heap.remap_stats().remapped_granules, 8);
    blocks[13..17].iter().for_each(|&address| world.free(address));
    world.synchronize(Fate::Complete);
    (world, stream, within)
}

#[test]
fn what_is_live_in_a_window_moves_there_and_at_home() {
    let (mut world, stream, within) = with_window();
    while world.compact(None, Fate::Complete) {
        world.verify();
    }
    while world.trim(Fate::Complete) {}
    assert_eq!((world.heap.stats().moves, world.device.held_bytes()), (1, 17 * GRANULE));
    assert_eq!(world.heap.remap_stats().remapped_granules, 5);
    // What was given back serves others, and what is freed goes home.
    let other = world.allocate(stream, 3 * GRANULE).unwrap();
    world.free(within);
    assert_eq!(world.heap.remap_stats().remapped_granules, 0);
    world.verify();
    world.free(other);
    world.allocate(stream, 12 * GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), 24 * GRANULE);
    world.finish();
}

#[test]
fn what_is_freed_in_a_window_while_it_moves_goes_home() {
    let (mut world, _, within) = with_window();
    assert!(world.compact(None, Fate::Open { done: usize::MAX }));
    world.free(within);
    world.resume(0, Fate::Complete);
    world.verify();
    assert_eq!(world.heap.remap_stats().remapped_granules, 0);
    world.finish();
}

/// A world with holes in handles at home.
fn with_holes() -> World {
    let (mut world, _, blocks) = full(12);
    world.free(blocks[0]);
    world.free(blocks[2]);
    world.free(blocks[4]);
    world.synchronize(Fate::Complete);
    world
}

#[test]
fn b48_b49_a_move_fails_at_every_step_and_can_be_tried_again() {
    fails_at_every_step(with_holes);
    fails_at_every_step(|| with_window().0);
}

/// Each step fails once, and the undo of it stops at each place that it may: the bytes are where
/// they were, and the same is done the next time.
fn fails_at_every_step(scene: impl Fn() -> World) {
    for after in 0.. {
        let stops = std::iter::once(None).chain((0..2).map(Some));
        let mut is_over = false;
        for stop in stops {
            let mut world = scene();
            while world.trim(Fate::Complete) {}
            let moves = world.heap.stats().moves;
            let plan = world.heap.plan_full_compaction().unwrap();
            let steps = plan.steps().len();
            assert!(plan.steps().iter().any(|step| matches!(step, Step::Lift { .. })));
            world.heap.abandon(plan, 0);
            is_over = after >= steps;
            if is_over {
                break;
            }
            world.compact(None, Fate::Fail { after, stop });
            world.verify();
            assert_eq!(world.heap.stats().moves, moves);
            while world.compact(None, Fate::Complete) {}
            assert!(world.heap.stats().moves > moves);
            world.verify();
            world.finish();
        }
        if is_over {
            return;
        }
    }
}

/// A world without room for a move: two handles of four granules, one granule live in each, and
/// nothing left or free beside.
fn without_room() -> World {
    let (mut world, _, blocks) = full(12);
    for &address in [&blocks[1..4], &blocks[5..8]].concat().iter() {
        world.free(address);
    }
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    world
}

#[test]
fn where_there_is_no_room_a_handle_goes_by_way_of_the_host() {
    let mut world = without_room();
    let stream = world.reference.streams[0];
    assert_eq!(world.device.free_bytes(), 0);
    let mut was_on_host = 0;
    while world.compact(Some(6 * GRANULE), Fate::Complete) {
        world.verify();
        let on_host = world.device.on_host_bytes();
        assert_eq!(world.heap.stats().on_host_bytes, on_host);
        was_on_host = was_on_host.max(on_host);
    }
    assert_eq!((was_on_host, world.device.on_host_bytes()), (GRANULE, 0));
    while world.trim(Fate::Complete) {}
    world.allocate(stream, 6 * GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), 12 * GRANULE);
    world.finish();
}

#[test]
fn what_is_freed_while_it_comes_back_from_the_host_waits_for_that() {
    let mut world = without_room();
    while world.device.on_host_bytes() == 0 {
        assert!(world.compact(Some(6 * GRANULE), Fate::Complete));
    }
    // Up to the plan that brings it back.
    let is_back = |step: &Step| matches!(step, Step::Lift { .. });
    loop {
        let plan = world.heap.plan_compaction_for(6 * GRANULE).unwrap();
        let is_it = plan.steps().iter().any(is_back);
        world.heap.abandon(plan, 0);
        if is_it {
            break;
        }
        world.compact(Some(6 * GRANULE), Fate::Complete);
    }
    world.compact(Some(6 * GRANULE), Fate::Open { done: 0 });
    let live: Vec<u64> = world.reference.live.keys().copied().collect();
    live.into_iter().for_each(|address| world.free(address));
    world.verify();
    while world.trim(Fate::Complete) {}
    world.verify();
    world.finish();
}
