//! Live memory that gets other memory behind its addresses.

use drystone_core::{StateMachine, Step, StreamId};

use super::GRANULE;
use crate::world::{Fate, Setup, World};

/// A world of handles of four granules, full of blocks of one, and the device is no larger.
fn full(granules: u64) -> (World, StreamId, Vec<u64>) {
    let bytes = granules * GRANULE;
    let setup = Setup { held_per_handle: 1, capacity_bytes: bytes, ..Setup::default() };
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
    world.heap.share(blocks[1]).unwrap();
    world.synchronize(Fate::Complete);
    assert!(!world.compact(None, Fate::Complete));
    world.finish();
}

/// Each step fails once, and the undo of it stops at each place that it may: the bytes are where
/// they were, and the same is done the next time.
#[test]
fn b48_b49_a_move_fails_at_every_step_and_can_be_tried_again() {
    for after in 0.. {
        let stops = std::iter::once(None).chain((0..3).map(Some));
        let mut is_over = false;
        for stop in stops {
            let (mut world, _, blocks) = full(12);
            world.free(blocks[0]);
            world.free(blocks[2]);
            world.free(blocks[4]);
            world.synchronize(Fate::Complete);
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
