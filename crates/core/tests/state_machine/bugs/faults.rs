//! Fault sweep: every plan fails at every step, with every outcome of the undo (P4, I13, I15).

use drystone_core::{BlockState, Captured, CrossStream, StateMachine};

use super::{GRANULE, KINDS, MIB, world};
use crate::world::{Carried, Fate, Setup, World};

/// More steps than any plan here has.
const STEPS_MAX: usize = 24;

/// Every way to fail after some steps.
fn fates() -> impl Iterator<Item = Fate> {
    let stops = || std::iter::once(None).chain((0..STEPS_MAX).map(Some));
    (0..STEPS_MAX).flat_map(move |after| stops().map(move |stop| Fate::Fail { after, stop }))
}

#[test]
fn b48_b49_b51_growth_fails_at_every_step_and_can_be_tried_again() {
    for kind in KINDS {
        for plan in 0..2 {
            for fate in fates() {
                let mut world = World::new(&Setup { kind, ..Setup::default() });
                let stream = world.reference.streams[0];
                // A free block before the unmapped one joins in.
                let first = world.allocate(stream, 3 * MIB).unwrap();
                world.free(first);
                world.allocate_with(0, stream, 9 * MIB, Captured::None, (plan, fate));
                world.verify();
                // What could not be unmapped is left when it cannot be unmapped later either.
                world.trim(Fate::Fail { after: 0, stop: None });
                world.verify();
                world.trim(Fate::Fail { after: 1, stop: None });
                world.verify();
                assert!(world.allocate(stream, 9 * MIB).is_some(), "tried again after {fate:?}");
                world.finish();
            }
        }
    }
}

#[test]
fn b48_growth_between_two_free_blocks_fails_at_every_step() {
    for fate in fates() {
        let (mut world, [stream]) = world(10 * MIB, CrossStream::Wait);
        let [_low, middle, _high] =
            [3 * MIB / 2, 7 * MIB, 3 * MIB / 2].map(|bytes| world.allocate(stream, bytes).unwrap());
        world.free(middle);
        world.synchronize(Fate::Complete);
        assert!(world.trim(Fate::Complete));
        assert_eq!(world.device.held_bytes(), 2 * GRANULE);
        // The unmapped middle is too small without what is free on both its sides.
        let bytes = 27 * MIB / 4;
        let served = world.allocate_with(0, stream, bytes, Captured::None, (0, fate));
        world.verify();
        // A refused granule is asked for once more.
        served.into_iter().for_each(|address| world.free(address));
        while world.trim(Fate::Complete) {
            world.verify();
        }
        assert_eq!(world.allocate(stream, bytes), Some(middle), "tried again after {fate:?}");
        world.finish();
    }
}

#[test]
fn b48_granules_that_could_not_be_released_back_the_next_block() {
    let (mut world, [stream]) = world(4 * GRANULE, CrossStream::Wait);
    // Four granules are created and mapped; access fails, and so does releasing the third.
    let fate = Fate::Fail { after: 8, stop: Some(4) };
    assert_eq!(world.allocate_with(0, stream, 8 * MIB, Captured::None, (1, fate)), None);
    world.verify();
    let segments = world.heap.snapshot();
    assert!(segments[0].blocks.iter().all(|block| block.state == BlockState::Unmapped));
    assert_eq!(world.device.held_bytes(), 3 * GRANULE);
    // All three are idle, though two are still mapped; one may still be created.
    assert!(world.allocate(stream, 4 * MIB).is_some());
    assert_eq!(world.device.held_bytes(), 3 * GRANULE);
    assert!(world.allocate(stream, 4 * MIB).is_some());
    assert_eq!(world.device.held_bytes(), 4 * GRANULE);
    world.finish();
}

#[test]
fn b49_b50_b51_trims_fail_at_every_step_and_can_be_tried_again() {
    for kind in KINDS {
        for after in 0..STEPS_MAX {
            let setup = Setup { kind, streams: 2, ..Setup::default() };
            let mut world = World::new(&setup);
            let [a, b] = std::array::from_fn(|at| world.reference.streams[at]);
            let addresses = [(a, 5 * MIB), (b, 12 * MIB), (a, 512), (a, 30 * MIB)]
                .map(|(stream, bytes)| world.allocate(stream, bytes).unwrap());
            addresses.into_iter().for_each(|address| world.free(address));
            world.synchronize(Fate::Complete);
            // The first trim gives memory back, the second what is left and addresses.
            world.trim(Fate::Fail { after, stop: None });
            world.verify();
            world.trim(Fate::Fail { after: after / 2, stop: None });
            world.verify();
            assert!(world.allocate(a, 30 * MIB).is_some());
            assert!(world.allocate(b, 12 * MIB).is_some());
            world.finish();
        }
    }
}

#[test]
fn b49_frees_and_synchronisations_fail_at_every_step() {
    for after in 0..4 {
        for stop in [None, Some(0)] {
            let (mut world, [a, b, c]) = world(u64::MAX, CrossStream::Wait);
            let address = world.allocate(a, MIB).unwrap();
            world.record_stream(address, b);
            world.record_stream(address, c);
            world.free_with(address, Fate::Fail { after, stop });
            world.verify();
            let failed = world.synchronize(Fate::Fail { after: 0, stop });
            assert_eq!(failed, Carried::Abandoned);
            world.verify();
            world.finish();
        }
    }
}

#[test]
fn refused_addresses_are_asked_for_in_smaller_numbers() {
    let setup = Setup { addresses_bytes: 16 * MIB, device_bytes: 1 << 40, ..Setup::default() };
    let mut world = World::new(&setup);
    let stream = world.reference.streams[0];
    assert!(world.allocate(stream, 6 * MIB).is_some());
    assert!(world.allocate(stream, 6 * MIB).is_some());
    assert_eq!(world.allocate(stream, 6 * MIB), None);
    world.finish();
}

#[test]
fn addresses_given_back_may_be_handed_out_again_before_the_trim_is_committed() {
    for kind in KINDS {
        let mut world = World::new(&Setup { kind, ..Setup::default() });
        let stream = world.reference.streams[0];
        let address = world.allocate(stream, 20 * MIB).unwrap();
        world.free(address);
        world.synchronize(Fate::Complete);
        if kind == drystone_core::SegmentKind::Mapped {
            assert!(world.trim(Fate::Complete));
        }
        world.trim(Fate::Open { done: STEPS_MAX });
        assert_eq!(world.allocate(stream, 20 * MIB), Some(address));
        world.resume(0, Fate::Complete);
        world.verify();
        assert_eq!(world.free_badly(address + 1).to_string().split(' ').nth(1), Some("lies"));
        world.free(address);
        world.finish();
    }
}

#[test]
fn what_a_trim_leaves_of_a_run_stays_with_its_stream() {
    let (mut world, [a, b]) = world(u64::MAX, CrossStream::Wait);
    let low = world.allocate(a, 5 * MIB / 2).unwrap();
    let high = world.allocate(a, 5 * MIB / 2).unwrap();
    assert!(world.allocate(a, 3 * MIB).is_some());
    world.free(high);
    assert_eq!(world.allocate(b, 5 * MIB / 2), Some(high));
    // b has come much further than a.
    for _ in 0..10 {
        let used = world.allocate(a, 512).unwrap();
        world.record_stream(used, b);
        world.free(used);
        world.pass(b);
    }
    world.free(low);
    world.free(high);
    world.synchronize(Fate::Complete);
    // Its last use is complete, whether the trim succeeds or not.
    assert!(!world.trim(Fate::Fail { after: 0, stop: None }));
    world.verify();
    assert!(world.trim(Fate::Complete));
    let segments = world.heap.snapshot();
    let rest = segments
        .iter()
        .flat_map(|segment| &segment.blocks)
        .find(|block| block.state == BlockState::Free && block.address == low + 2 * GRANULE);
    assert_eq!(rest.map(|block| block.stream), Some(b.index()));
    world.finish();
}
