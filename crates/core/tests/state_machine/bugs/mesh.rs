//! Two pages of which each uses only what the other leaves unused, on one granule.

use drystone_core::{SharedBy, StateMachine, Step, StreamId};

use super::MIB;
use crate::world::{Fate, Setup, World};

/// Granules of 4 MiB, and blocks of half of one.
const GRANULE: u64 = 4 * MIB;
const HALF: u64 = GRANULE / 2;

/// A world that is full of blocks of half a granule, of which half are freed: the first of the
/// first pages, the second of the others. Handles have one granule, or all of it.
fn halves(left_per_handle: u64, room: u64) -> (World, StreamId, Vec<u64>) {
    let bytes = 8 * GRANULE;
    let setup = Setup { left_per_handle, granule_bytes: GRANULE, ..Setup::default() };
    let (capacity_bytes, device_bytes) = (bytes + room, bytes + room);
    let mut world = World::new(&Setup { capacity_bytes, device_bytes, ..setup });
    let stream = world.reference.streams[0];
    let whole = world.allocate(stream, bytes).unwrap();
    world.free(whole);
    let blocks: Vec<u64> = (0..16).map(|_| world.allocate(stream, HALF).unwrap()).collect();
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if (at % 2 == 0) == (at < 8) { world.free(block) } else { kept.push(block) }
    }
    world.synchronize(Fate::Complete);
    (world, stream, kept)
}

fn compact_for(world: &mut World, bytes: u64) {
    while world.compact(Some(bytes), Fate::Complete) {
        world.verify();
    }
}

#[test]
fn pages_that_are_free_in_part_share_a_granule_where_nothing_else_helps() {
    let (mut world, stream, _) = halves(u64::MAX, 0);
    assert_eq!(world.allocate(stream, 4 * GRANULE), None);
    compact_for(&mut world, 4 * GRANULE);
    assert_eq!(world.heap.stats().moves, 4);
    let all = world.heap.stats().all;
    assert_eq!(all.allocated_bytes.current, 4 * GRANULE);
    world.allocate(stream, 4 * GRANULE).unwrap();
    world.verify();
    assert_eq!(world.device.held_bytes(), 8 * GRANULE);
    world.finish();
}

#[test]
fn nothing_is_shared_for_what_could_not_be_served_all_the_same() {
    let (mut world, _, _) = halves(u64::MAX, 0);
    assert!(!world.compact(Some(5 * GRANULE), Fate::Complete));
    assert_eq!(world.heap.stats().moves, 0);
    world.finish();
}

#[test]
fn what_is_freed_in_a_shared_granule_serves_its_own_page_until_the_guest_is_empty() {
    let (mut world, stream, mut kept) = halves(u64::MAX, 0);
    compact_for(&mut world, 4 * GRANULE);
    // Guests and hosts, each freed and asked for again.
    for block in &kept {
        world.free(*block);
        world.verify();
        let again = world.allocate(stream, HALF).unwrap();
        world.verify();
        world.free(again);
        world.allocate(stream, HALF).unwrap();
    }
    let large = world.allocate(stream, 4 * GRANULE).unwrap();
    world.free(large);
    while let Some(block) = kept.pop() {
        world.free(block);
        world.synchronize(Fate::Complete);
        while world.trim(Fate::Complete) {
            world.verify();
        }
    }
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn a_larger_handle_is_parted_first() {
    let (mut world, stream, _) = halves(1, 8 * GRANULE);
    // So that there is room to copy, and no more than that is missing.
    compact_for(&mut world, 12 * GRANULE);
    while world.trim(Fate::Complete) {}
    assert!(world.heap.stats().moves > 4, "{}", world.heap.stats().moves);
    world.allocate(stream, 12 * GRANULE).unwrap();
    world.finish();
}

#[test]
fn i16_pinned_memory_and_what_others_have_share_no_granule() {
    for is_pinned in [true, false] {
        let (mut world, _, kept) = halves(u64::MAX, 0);
        for &block in &kept[..4] {
            if is_pinned {
                world.pin(block);
            } else {
                world.heap.share(block..block + HALF, SharedBy::Export).unwrap();
            }
        }
        assert!(!world.compact(Some(GRANULE), Fate::Complete));
        world.finish();
    }
}

#[test]
fn a_guest_that_is_pinned_stays_one() {
    let (mut world, _, kept) = halves(u64::MAX, 0);
    compact_for(&mut world, 4 * GRANULE);
    kept.iter().for_each(|&block| world.pin(block));
    kept.iter().for_each(|&block| world.free(block));
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {
        world.verify();
    }
    assert_eq!(world.device.held_bytes(), 4 * GRANULE);
    world.finish();
}

/// A block is freed, and another given, while its page becomes a guest.
#[test]
fn frees_and_hits_go_on_while_pages_meet() {
    for freed in 0..8 {
        let (mut world, stream, kept) = halves(u64::MAX, 0);
        assert!(world.compact(Some(4 * GRANULE), Fate::Open { done: usize::MAX }));
        world.free(kept[freed]);
        world.verify();
        let again = world.allocate(stream, HALF).unwrap();
        world.resume(0, Fate::Complete);
        world.verify();
        world.free(again);
        compact_for(&mut world, 4 * GRANULE);
        world.finish();
    }
}

/// Where the device has nothing left to part it to, it goes by way of the host.
#[test]
fn a_larger_handle_is_parted_by_way_of_the_host_on_a_full_device() {
    let (mut world, stream, _) = halves(1, 0);
    assert_eq!(world.allocate(stream, 4 * GRANULE), None);
    compact_for(&mut world, 4 * GRANULE);
    world.allocate(stream, 4 * GRANULE).unwrap();
    world.verify();
    let held = (world.heap.stats().on_host_bytes, world.device.held_bytes());
    assert_eq!(held, (0, 8 * GRANULE));
    world.finish();
}

/// A world that is full of blocks of a quarter of a granule, of which each granule keeps another.
fn quarters() -> (World, StreamId, Vec<u64>) {
    let setup = Setup { granule_bytes: 2 * GRANULE, ..Setup::default() };
    let (capacity_bytes, device_bytes) = (8 * GRANULE, 8 * GRANULE);
    let mut world = World::new(&Setup { capacity_bytes, device_bytes, ..setup });
    let stream = world.reference.streams[0];
    let blocks: Vec<u64> = (0..16).map(|_| world.allocate(stream, HALF).unwrap()).collect();
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 5 == 0 { kept.push(block) } else { world.free(block) }
    }
    world.synchronize(Fate::Complete);
    (world, stream, kept)
}

/// The last block is freed, and all memory goes back.
fn give_all_back(mut world: World, last: u64) {
    world.free(last);
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn four_pages_share_a_granule_and_leave_it_one_by_one() {
    for first in 0..4 {
        let (mut world, stream, mut kept) = quarters();
        compact_for(&mut world, 6 * GRANULE);
        assert_eq!(world.heap.stats().moves, 3);
        let large = world.allocate(stream, 6 * GRANULE).unwrap();
        world.verify();
        kept.rotate_left(first);
        for block in kept {
            world.free(block);
            world.synchronize(Fate::Complete);
            while world.trim(Fate::Complete) {
                world.verify();
            }
        }
        give_all_back(world, large);
    }
}

/// Pages that share a granule go on to another one together, also where others took what they had
/// free of it, and each step of that fails once.
#[test]
fn shared_granules_meet_others() {
    for after in 0..16 {
        for stop in [None, Some(0), Some(1)] {
            let (mut world, stream, kept) = quarters();
            compact_for(&mut world, 2 * GRANULE);
            assert!(world.heap.stats().moves < 3);
            // One of two leaves its half of a granule to pages that come later.
            world.free(kept[after % 4]);
            world.synchronize(Fate::Complete);
            world.compact(Some(6 * GRANULE), Fate::Fail { after, stop });
            world.verify();
            world.synchronize(Fate::Complete);
            compact_for(&mut world, 6 * GRANULE);
            let large = world.allocate(stream, 6 * GRANULE).unwrap();
            world.verify();
            for (at, &block) in kept.iter().enumerate() {
                if at != after % 4 {
                    world.free(block);
                }
            }
            world.synchronize(Fate::Complete);
            world.trim(Fate::Fail { after: after % 4, stop });
            world.verify();
            while world.trim(Fate::Complete) {
                world.verify();
            }
            give_all_back(world, large);
        }
    }
}

/// All that was in use in a handle is freed while it is parted.
#[test]
fn a_handle_that_becomes_free_while_it_is_parted_serves_others_after() {
    let (mut world, stream, kept) = halves(1, 8 * GRANULE);
    assert!(world.compact(Some(12 * GRANULE), Fate::Open { done: usize::MAX }));
    kept.iter().for_each(|&block| world.free(block));
    world.verify();
    world.resume(0, Fate::Complete);
    world.verify();
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    world.allocate(stream, 16 * GRANULE).unwrap();
    world.finish();
}

/// Each step of a mesh fails once, and of the unmapping of a guest.
#[test]
fn a_mesh_fails_at_every_step_and_can_be_tried_again() {
    for after in 0..12 {
        for stop in [None, Some(0), Some(1)] {
            let (mut world, stream, kept) = halves(u64::MAX, 0);
            let fate = Fate::Fail { after, stop };
            let plan = world.heap.plan_compaction_for(4 * GRANULE).unwrap();
            assert!(plan.steps().iter().any(|step| matches!(step, Step::CopyTo { .. })));
            world.heap.abandon(plan, 0);
            world.compact(Some(4 * GRANULE), fate);
            world.verify();
            // What a copy may still write to is nobody's until then.
            world.synchronize(Fate::Complete);
            compact_for(&mut world, 4 * GRANULE);
            let large = world.allocate(stream, 4 * GRANULE).unwrap();
            world.free(large);
            kept.iter().for_each(|&block| world.free(block));
            world.synchronize(Fate::Complete);
            world.trim(fate);
            world.verify();
            world.finish();
        }
    }
}
