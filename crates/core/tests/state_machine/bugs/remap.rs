//! Remapped granules: they go where they are needed, once, and only when nobody uses them.

use drystone_core::{BlockState, Captured, CrossStream, StateMachine, StreamId};

use super::{GRANULE, world};
use crate::world::{Fate, Setup, World};

#[test]
fn free_granules_serve_what_fits_nowhere_and_nothing_is_created() {
    let (mut world, [stream]) = world(8 * GRANULE, CrossStream::Wait);
    let blocks: Vec<u64> = (0..4).map(|_| world.allocate(stream, 2 * GRANULE).unwrap()).collect();
    // Every other block is free: four granules, two and two.
    world.free(blocks[0]);
    world.free(blocks[2]);
    let taken = world.allocate(stream, 4 * GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), 8 * GRANULE);
    assert_eq!(world.heap.stats().granule_remaps, 4);
    world.free(taken);
    world.finish();
}

#[test]
fn small_blocks_are_backed_by_what_large_ones_left() {
    let (mut world, [stream]) = world(4 * GRANULE, CrossStream::Wait);
    let large = world.allocate(stream, 4 * GRANULE).unwrap();
    world.free(large);
    let small = world.allocate(stream, 512).unwrap();
    assert_eq!(world.device.held_bytes(), 4 * GRANULE);
    world.free(small);
    // And back again: the small segment's granule is wholly free.
    assert_eq!(world.allocate(stream, 4 * GRANULE), Some(large));
    world.finish();
}

#[test]
fn a_program_that_repeats_itself_settles_without_driver_calls() {
    let (mut world, [stream]) = world(9 * GRANULE, CrossStream::Wait);
    let mut calls = Vec::new();
    for _ in 0..6 {
        // Each of the three needs granules that the one before had.
        let large = world.allocate(stream, 9 * GRANULE).unwrap();
        world.free(large);
        let [small, middle] = [512, 8 * GRANULE].map(|b| world.allocate(stream, b).unwrap());
        world.free(small);
        world.free(middle);
        calls.push(world.device.calls);
    }
    assert!(calls[5] == calls[1], "calls after each round: {calls:?}");
    assert!(world.heap.stats().granule_remaps >= 6, "one a round");
    world.finish();
}

/// In whatever order they are freed: a window that was emptied last is no better than another.
#[test]
fn the_same_requests_get_the_same_windows() {
    let (mut world, [stream]) = world(16 * GRANULE, CrossStream::Wait);
    let blocks: Vec<u64> = (0..16).map(|_| world.allocate(stream, GRANULE).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|&address| world.free(address));
    let mut rounds = Vec::new();
    for round in 0..6 {
        let mut blocks = [3; 2].map(|n| world.allocate(stream, n * GRANULE).unwrap());
        rounds.push(blocks);
        blocks.rotate_left(round % 2);
        blocks.into_iter().for_each(|address| world.free(address));
    }
    assert!(rounds.iter().all(|blocks| *blocks == rounds[0]), "{rounds:?}");
    world.finish();
}

#[test]
fn b64_granules_remapped_for_another_stream_go_home_and_back_to_their_owner() {
    let (mut world, [a, b]) = world(4 * GRANULE, CrossStream::Wait);
    let blocks = [GRANULE; 4].map(|bytes| world.allocate(a, bytes).unwrap());
    world.free(blocks[0]);
    world.free(blocks[2]);
    let free_of = |world: &World, stream: StreamId| {
        let segments = world.heap.snapshot();
        let all = segments.iter().flat_map(|segment| &segment.blocks);
        let free = all.filter(|b| b.state == BlockState::Free && b.stream == stream.index());
        free.map(|block| block.address).collect::<Vec<u64>>()
    };
    let remapped = world.allocate(b, 2 * GRANULE).unwrap();
    assert!(!blocks.contains(&remapped));
    world.free(remapped);
    assert_eq!(free_of(&world, b), [blocks[0], blocks[2]], "at home, in the order of its last use");
    // a waits for b: all of it is its own again.
    let taken = world.allocate(a, GRANULE).unwrap();
    world.free(taken);
    assert_eq!(free_of(&world, a), [blocks[0], blocks[2]]);
    world.finish();
}

#[test]
fn b13_an_alias_stays_mapped_until_its_last_use_is_complete() {
    let (mut world, [stream]) = world(4 * GRANULE, CrossStream::Wait);
    let first = world.allocate(stream, 4 * GRANULE).unwrap();
    world.free(first);
    // In stream order the granules may move at once, but the device still works through `first`.
    let small = world.allocate(stream, 512).unwrap();
    world.free(small);
    // The world panics if anything is unmapped that the host does not know to be complete.
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 4 * GRANULE);
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn granules_of_another_stream_are_waited_for_before_any_is_created() {
    let (mut world, [a, b]) = world(16 * GRANULE, CrossStream::Wait);
    let [low, high] = [4, 4].map(|granules| world.allocate(a, granules * GRANULE).unwrap());
    let between = world.allocate(b, GRANULE).unwrap();
    world.free(low);
    let other = world.allocate(b, 3 * GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), 9 * GRANULE);
    for address in [high, between, other] {
        world.free(address);
    }
    world.finish();
}

#[test]
fn i12_granules_of_private_pools_are_not_remapped() {
    let (mut world, [stream]) = world(16 * GRANULE, CrossStream::Wait);
    world.add_pool();
    let in_pool = |world: &mut World, bytes| {
        world.allocate_with(1, stream, bytes, Captured::None, (0, Fate::Complete)).unwrap()
    };
    let private = in_pool(&mut world, 4 * GRANULE);
    world.free(private);
    world.synchronize(Fate::Complete);
    let public = world.allocate(stream, 2 * GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), 6 * GRANULE);
    // The other way round is fine.
    world.free(public);
    let wide = in_pool(&mut world, 6 * GRANULE);
    world.free(wide);
    // A graph that was captured there may still run when its pool is released.
    world.synchronize(Fate::Complete);
    world.release_pool(1);
    while world.trim(Fate::Complete) {}
    let held_bytes = world.device.held_bytes();
    assert!(held_bytes >= 4 * GRANULE);
    let eager = world.allocate(stream, GRANULE).unwrap();
    assert_eq!(world.device.held_bytes(), held_bytes + GRANULE);
    world.free(eager);
    // Not once the device was idle.
    world.synchronize(Fate::Complete);
    assert!(world.allocate(stream, 7 * GRANULE).is_some());
    assert_eq!(world.device.held_bytes(), held_bytes + GRANULE);
    world.finish();
}

#[test]
fn i11_a_captured_stream_takes_only_what_nobody_uses() {
    let (mut world, [stream]) = world(16 * GRANULE, CrossStream::Wait);
    world.add_pool();
    let captured = |world: &mut World| {
        world.allocate_with(1, stream, 2 * GRANULE, Captured::Own, (0, Fate::Complete)).unwrap()
    };
    let eager = world.allocate(stream, 4 * GRANULE).unwrap();
    world.free(eager);
    let first = captured(&mut world);
    assert_eq!(world.device.held_bytes(), 6 * GRANULE, "the device still works on the rest");
    world.synchronize(Fate::Complete);
    let second = captured(&mut world);
    assert_eq!(world.device.held_bytes(), 6 * GRANULE);
    world.free(first);
    world.free(second);
    world.finish();
}

#[test]
fn b48_b49_a_remap_fails_at_every_step_and_can_be_tried_again() {
    for after in 0..12 {
        for stop in std::iter::once(None).chain((0..12).map(Some)) {
            let mut world = World::new(&Setup { capacity_bytes: 8 * GRANULE, ..Setup::default() });
            let stream = world.reference.streams[0];
            let blocks: Vec<u64> =
                (0..3).map(|_| world.allocate(stream, 2 * GRANULE).unwrap()).collect();
            world.free(blocks[0]);
            world.free(blocks[2]);
            // Four are taken from two blocks, one of which the request grows from; one is new.
            let fate = Fate::Fail { after, stop };
            let served = world.allocate_with(0, stream, 5 * GRANULE, Captured::None, (0, fate));
            world.verify();
            served.into_iter().for_each(|address| world.free(address));
            assert!(world.allocate(stream, 5 * GRANULE).is_some(), "after {fate:?}");
            world.synchronize(Fate::Complete);
            while world.trim(Fate::Complete) {
                world.verify();
            }
            world.finish();
        }
    }
}

/// Sizes that barely repeat: windows are used in part, and mapped to the same granules again and
/// again. The world checks every block's physical bytes after every step.
#[test]
fn windows_used_in_part_never_share_a_granule() {
    for seed in 1..=12u64 {
        // Every other time on three streams: what is free beside each other is not all one's own.
        let streams = if seed % 2 == 0 { 3 } else { 1 };
        let capacity_bytes = 300 * GRANULE;
        let mut world = World::new(&Setup { capacity_bytes, streams, ..Setup::default() });
        let mut state = seed;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut live: Vec<(u64, u64)> = Vec::new();
        for _ in 0..400 {
            let live_bytes: u64 = live.iter().map(|block| block.1).sum();
            let bytes = 1 + random(40 * GRANULE);
            if live_bytes + bytes < 200 * GRANULE && random(5) > 0 {
                let stream = world.reference.streams[random(streams as u64) as usize];
                let address = world.allocate(stream, bytes);
                live.push((address.unwrap_or_else(|| panic!("seed {seed}: no room")), bytes));
            } else if !live.is_empty() {
                let (address, _) = live.swap_remove(random(live.len() as u64) as usize);
                world.free(address);
                if random(8) == 0 {
                    world.synchronize(Fate::Complete);
                }
            }
            world.verify();
        }
        assert!(world.heap.stats().granule_remaps > 1000, "seed {seed}");
        world.finish();
    }
}
