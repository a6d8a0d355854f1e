//! Handles of several granules: larger ones where more is left, remapped and given back whole.

use drystone_core::{Captured, CrossStream, Prefer, StateMachine, StreamId};

use super::{GRANULE, world};
use crate::world::{Fate, Setup, World};

/// A world in which a handle has so many granules as long as as many are left.
fn large_handles(limit_bytes: u64, capacity_bytes: u64) -> (World, StreamId) {
    let setup = Setup { left_per_handle: 1, limit_bytes, capacity_bytes, ..Setup::default() };
    let world = World::new(&setup);
    let stream = world.reference.streams[0];
    (world, stream)
}

#[test]
fn handles_of_8_mib_shrink_with_what_is_left() {
    let (mut world, stream) = large_handles(15 * GRANULE, 256 << 20);
    for _ in 0..2 {
        world.allocate(stream, 4 * GRANULE).unwrap();
    }
    assert_eq!(world.device.handles(), [4, 4]);
    // Small blocks would hold large ones up.
    world.allocate(stream, 512).unwrap();
    assert_eq!(world.device.handles(), [4, 4, 1]);
    for _ in 0..6 {
        world.allocate(stream, GRANULE).unwrap();
    }
    assert_eq!(world.device.handles(), [4, 4, 1, 4, 2]);
    world.finish();
}

#[test]
fn where_little_is_left_handles_have_one_granule() {
    let (mut world, [stream]) = world(256 << 20, CrossStream::Wait);
    for _ in 0..8 {
        world.allocate(stream, 16 * GRANULE).unwrap();
    }
    assert_eq!(world.device.handles(), [1; 128]);
    world.finish();
}

#[test]
fn only_handles_of_which_every_granule_is_free_are_remapped() {
    let (mut world, stream) = large_handles(u64::MAX, 256 << 20);
    let first = world.allocate(stream, 4 * GRANULE).unwrap();
    let blocks: Vec<u64> = (0..8).map(|_| world.allocate(stream, GRANULE).unwrap()).collect();
    assert_eq!(world.device.handles(), [4, 4, 4]);
    // Three granules of the second handle are free, and all of the others.
    blocks[1..].iter().for_each(|&address| world.free(address));
    world.free(first);
    let remapped = world.allocate(stream, 8 * GRANULE).unwrap();
    assert_eq!(world.device.handles(), [4, 4, 4]);
    assert_eq!(world.heap.stats().granule_remaps, 8);
    world.free(remapped);
    world.free(blocks[0]);
    assert_eq!(world.heap.remap_stats().remapped_granules, 0, "went home");
    world.finish();
}

/// A request that needs less than the handles it can have takes the rest of the last one with it.
#[test]
fn more_is_remapped_than_a_request_needs_rather_than_created() {
    let (mut world, stream) = large_handles(u64::MAX, 256 << 20);
    let first = world.allocate(stream, 4 * GRANULE).unwrap();
    let [free, live] = [4, 4].map(|n| world.allocate(stream, n * GRANULE).unwrap());
    world.free(free);
    let held = world.device.held_bytes();
    let small = world.allocate(stream, 512).unwrap();
    assert_eq!(world.device.held_bytes(), held);
    [first, live, small].into_iter().for_each(|address| world.free(address));
    world.finish();
}

/// A window is used again as a whole or not at all: another costs a call for each handle.
#[test]
fn a_window_of_which_a_part_is_in_use_elsewhere_is_passed_over() {
    let (mut world, stream) = large_handles(u64::MAX, 256 << 20);
    let singles = world.allocate(stream, 4 * GRANULE).unwrap();
    world.allocate(stream, 4 * GRANULE).unwrap();
    let long = world.allocate(stream, 32 * GRANULE).unwrap();
    let mut turns = Vec::new();
    for _ in 0..6 {
        world.allocate(stream, 4 * GRANULE).unwrap();
        turns.push(world.allocate(stream, 4 * GRANULE).unwrap());
    }
    world.allocate(stream, 4 * GRANULE).unwrap();
    [long, singles].into_iter().for_each(|address| world.free(address));
    // A window of large handles, except its last granule, which is another's from then on.
    let remapped = world.allocate(stream, 33 * GRANULE).unwrap();
    world.free(remapped);
    world.allocate(stream, 4 * GRANULE).unwrap();
    let mut calls = Vec::new();
    for free in turns {
        world.free(free);
        let before = world.device.calls;
        let remapped = world.allocate(stream, 33 * GRANULE).unwrap();
        calls.push(world.device.calls - before);
        world.free(remapped);
        world.synchronize(Fate::Complete);
        world.allocate(stream, 4 * GRANULE).unwrap();
    }
    // What is at hand in each round, beside 32 granules, is another handle. Nine are mapped, and
    // access is set; at times addresses are reserved before.
    assert!(calls[1..].iter().all(|&calls| calls <= 11), "{calls:?}");
    world.finish();
}

#[test]
fn handles_stay_large_after_a_request_that_no_handles_would_have_served() {
    let (mut world, stream) = large_handles(u64::MAX, 64 * GRANULE);
    world.allocate(stream, 4 * GRANULE).unwrap();
    for _ in 0..2 {
        assert_eq!(world.allocate(stream, 100 * GRANULE), None);
    }
    world.allocate(stream, 4 * GRANULE).unwrap();
    assert_eq!(world.device.handles(), [4, 4]);
    world.finish();
}

#[test]
fn a_device_that_refuses_a_large_handle_gives_what_it_has() {
    let (mut world, stream) = large_handles(u64::MAX, 11 * GRANULE);
    // The large one is refused once, and the request served all the same.
    for _ in 0..11 {
        world.allocate(stream, GRANULE).expect("granules are left");
    }
    assert_eq!(world.allocate(stream, GRANULE), None);
    assert_eq!(world.device.held_bytes(), 11 * GRANULE);
    world.finish();
}

#[test]
fn handles_are_large_again_once_memory_was_given_back() {
    let (mut world, stream) = large_handles(u64::MAX, 11 * GRANULE);
    let blocks: Vec<Option<u64>> = (0..13).map(|_| world.allocate(stream, GRANULE)).collect();
    assert_eq!(world.device.handles(), [4, 4, 2, 1]);
    blocks.into_iter().flatten().for_each(|address| world.free(address));
    world.synchronize(Fate::Complete);
    world.trim(Fate::Complete);
    let blocks = [4, 4].map(|granules| world.allocate(stream, granules * GRANULE).unwrap());
    // The names of before are used again, in any order.
    assert_eq!(world.device.handles(), [4, 4]);
    blocks.into_iter().for_each(|address| world.free(address));
    world.finish();
}

#[test]
fn the_limit_refuses_nothing_that_fits_in_single_granules() {
    let (mut world, stream) = large_handles(11 * GRANULE, 256 << 20);
    for _ in 0..11 {
        world.allocate(stream, GRANULE).unwrap();
    }
    assert_eq!(world.allocate(stream, GRANULE), None);
    world.finish();
}

#[test]
fn i16_a_pin_keeps_all_of_its_handle() {
    let (mut world, stream) = large_handles(u64::MAX, 256 << 20);
    world.allocate(stream, 4 * GRANULE).unwrap();
    let blocks: Vec<u64> = (0..4).map(|_| world.allocate(stream, GRANULE).unwrap()).collect();
    assert_eq!(world.device.handles(), [4, 4]);
    world.pin(blocks[2]);
    blocks.iter().for_each(|&address| world.free(address));
    assert_eq!(world.heap.remap_stats().pinned_bytes, 4 * GRANULE);
    world.trim(Fate::Complete);
    assert_eq!(world.device.handles(), [4, 4]);
    world.verify_pins();
    world.unpin_all();
    world.finish();
}

/// Of free handles of any size the largest do not always fill a request best.
#[test]
fn a_request_that_two_of_three_handles_hold_is_served() {
    for captured in [Captured::None, Captured::Other] {
        let bytes = 272 << 20;
        let setup = Setup { left_per_handle: 1, capacity_bytes: bytes, ..Setup::default() };
        let setup = Setup { device_bytes: bytes, prefer: Prefer::Balanced, ..setup };
        let mut world = World::new(&setup);
        let stream = world.reference.streams[0];
        let sizes = [64, 16, 112, 16, 64].map(|mib| mib << 20);
        let blocks = sizes.map(|bytes| world.allocate(stream, bytes).unwrap());
        [0, 2, 4].into_iter().for_each(|at| world.free(blocks[at]));
        world.synchronize(Fate::Complete);
        let fate = (0, Fate::Complete);
        assert!(world.allocate_with(0, stream, 128 << 20, captured, fate).is_some());
    }
}
