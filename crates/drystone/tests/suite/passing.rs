//! Streams of which nobody says when they end: their handles are used by calls that bring them, and
//! by no others.

use std::sync::Arc;

use drystone::PoolId;
use drystone::driver::{Call, CaptureMode};
use drystone_sim::SimDevice;

use crate::program::Program;
use crate::setup::{ASYNC, Setup, VMM_2MIB, on_every_setup};
use crate::sim::{MIB, watched};

on_every_setup!(
    streams_that_vanish_are_safe,
    a_capture_is_remembered_of_a_stream_that_may_not_be_asked,
    a_capture_is_over_when_its_pool_says_so,
    a_capture_that_is_expected_is_not_broken,
    uses_in_a_capture_by_a_stream_that_vanishes_are_over_with_the_device,
);

/// What is asked of streams, and done to them, in twenty misses and a trim on the default stream.
fn questions(of_one_that_is_gone: bool) -> Vec<u64> {
    let sim = SimDevice::new(watched());
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
    let lane = program.default_lane();
    if of_one_that_is_gone {
        let gone = program.passing_lane();
        for bytes in [64 * MIB, 66 * MIB] {
            let block = program.allocate(gone, bytes);
            program.free(block);
        }
        program.device.destroy_stream(gone.stream);
    }
    let calls =
        [Call::CaptureStatus, Call::StreamUid, Call::Record, Call::Wait, Call::SynchronizeStream];
    let before = calls.map(|call| sim.calls_of(call));
    for round in 0..20 {
        let block = program.allocate(lane, (128 + 4 * round) * MIB);
        program.free(block);
    }
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    let asked = calls.iter().zip(before).map(|(&call, before)| sim.calls_of(call) - before);
    let asked = asked.collect();
    program.end();
    asked
}

#[test]
fn a_stream_that_may_be_gone_is_never_asked() {
    assert_eq!(questions(true), questions(false));
}

fn streams_that_vanish_are_safe(setup: &Setup) {
    let program = setup.program();
    if !setup.is_caching() {
        return;
    }
    let lane = program.lane();
    let gone = program.passing_lane();
    let blocks = [program.allocate(gone, 12 * MIB), program.allocate(gone, 700)];
    program.use_on(&blocks[0], lane);
    let [used, kept] = blocks;
    let free = program.allocate(gone, 20 * MIB);
    program.device.work(gone.stream, 1_000_000);
    program.free(free);
    program.device.destroy_stream(gone.stream);
    let other = program.allocate(lane, 20 * MIB);
    program.check();
    [used, kept, other].into_iter().for_each(|block| program.free(block));
    program.check();
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}

/// A miss of its own tells when its memory is over with.
#[test]
fn memory_of_such_a_stream_serves_others_once_a_later_miss_has_passed() {
    let program = VMM_2MIB.program();
    let (lane, own) = (program.lane(), program.passing_lane());
    let block = program.allocate(own, 64 * MIB);
    program.free(block);
    let kept = program.allocate(own, 700);
    program.device.pass(100_000);
    let reserved = program.reserved();
    let other = program.allocate(lane, 48 * MIB);
    assert_eq!(program.reserved(), reserved);
    [kept, other].into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Nothing is given back while a capture may be under way, and everything once it is over.
fn trims(program: &Program, is_captured: bool) {
    match program.allocator.trim() {
        Ok(_) => assert!(!is_captured),
        Err(error) => assert!(is_captured, "{error}"),
    }
}

fn a_capture_is_remembered_of_a_stream_that_may_not_be_asked(setup: &Setup) {
    let program = setup.program();
    let own = program.passing_lane();
    program.device.begin_capture(own.stream, CaptureMode::Global);
    let block = program.allocate(own, 12 * MIB);
    trims(&program, true);
    assert!(program.device.end_capture(own.stream), "the capture is broken");
    trims(&program, true);
    program.free(block);
    // A hit or a miss: it is asked again.
    let again = program.allocate(own, 700);
    program.free(again);
    program.allocator.note_capture(Some(PoolId::DEFAULT), own.id).unwrap();
    trims(&program, false);
    program.end();
}

fn a_capture_is_over_when_its_pool_says_so(setup: &Setup) {
    let program = setup.program();
    let (own, other) = (program.passing_lane(), program.passing_lane());
    let pools = [program.allocator.add_pool(), program.allocator.add_pool()];
    let mut kept = Vec::new();
    for (lane, pool) in [(own, pools[0]), (other, pools[1])] {
        program.device.begin_capture(lane.stream, CaptureMode::Global);
        kept.push(program.try_allocate_in(pool, lane, 12 * MIB).unwrap());
    }
    for (at, (lane, pool)) in [(own, pools[0]), (other, pools[1])].into_iter().enumerate() {
        assert!(program.device.end_capture(lane.stream), "the capture is broken");
        program.allocator.end_captures(pool);
        trims(&program, at == 0);
    }
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// As PyTorch does it: the pool takes requests before the capture begins, and also where none does.
fn a_capture_that_is_expected_is_not_broken(setup: &Setup) {
    let program = setup.program();
    let lane = program.passing_lane();
    let pool = program.allocator.add_pool();
    program.allocator.expect_capture(pool).unwrap();
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    trims(&program, true);
    assert!(program.device.end_capture(lane.stream), "the capture is broken");
    let block = program.try_allocate_in(pool, lane, 12 * MIB).unwrap();
    trims(&program, false);
    program.free(block);
    program.allocator.expect_capture(pool).unwrap();
    trims(&program, true);
    program.allocator.end_captures(pool);
    trims(&program, false);
    program.end();
}

/// A hit would take other memory, which the second graph would keep.
#[test]
fn what_another_stream_used_in_a_capture_serves_the_next_from_its_first_request_on() {
    let program = VMM_2MIB.program();
    let (lane, side) = (program.lane(), program.lane());
    let pool = program.allocator.add_pool();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        program.allocator.expect_capture(pool).unwrap();
        program.device.begin_capture(lane.stream, CaptureMode::Global);
        let block = program.try_allocate_in(pool, lane, 8 * MIB).unwrap();
        addresses.push(block.address);
        program.use_on(&block, side);
        program.free(block);
        assert!(program.device.end_capture(lane.stream), "the capture is broken");
        program.allocator.end_captures(pool);
        program.device.pass(100_000);
    }
    assert_eq!(addresses[0], addresses[1]);
    program.end();
}

/// The fences that a capture put off are recorded by calls that may: none follows a dead handle.
fn uses_in_a_capture_by_a_stream_that_vanishes_are_over_with_the_device(setup: &Setup) {
    let program = setup.program();
    if !setup.is_caching() {
        return;
    }
    let (lane, gone) = (program.lane(), program.passing_lane());
    program.device.begin_capture(gone.stream, CaptureMode::Global);
    let noted = program.allocate(gone, 700);
    let block = program.allocate(lane, 12 * MIB);
    program.use_on(&block, gone);
    program.free(block);
    assert!(program.device.end_capture(gone.stream), "the capture is broken");
    program.device.destroy_stream(gone.stream);
    let heir = program.passing_lane();
    let other = program.allocate(heir, 30 * MIB);
    program.check();
    [noted, other].into_iter().for_each(|block| program.free(block));
    trims(&program, false);
    assert_eq!(program.reserved(), 0);
    program.end();
}

/// What a stream frees after its last miss serves others once it was brought again.
#[test]
fn a_hit_tells_others_what_its_stream_freed() {
    let program = VMM_2MIB.program();
    let (lane, own) = (program.lane(), program.passing_lane());
    let (small, block) = (program.allocate(own, 700), program.allocate(own, 64 * MIB));
    program.free(block);
    let first = program.allocate(lane, 2 * MIB);
    let hit = program.allocate(own, 700);
    program.device.pass(100_000);
    let reserved = program.reserved();
    let other = program.allocate(lane, 48 * MIB);
    assert_eq!(program.reserved(), reserved);
    [small, first, hit, other].into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Freed before its stream is destroyed: the program has done all that it is told to do.
#[test]
fn a_deferred_free_of_the_drivers_pools_does_not_name_a_stream_that_may_be_gone() {
    let program = ASYNC.program();
    let (lane, gone) = (program.lane(), program.passing_lane());
    let block = program.allocate(gone, 12 * MIB);
    program.use_on(&block, lane);
    program.device.work(lane.stream, 1000);
    program.free(block);
    program.device.destroy_stream(gone.stream);
    program.device.pass(1_000_000);
    let more = program.allocate(lane, 12 * MIB);
    program.free(more);
    program.end();
}

#[test]
fn a_free_of_the_drivers_pools_does_not_name_a_stream_that_may_be_gone() {
    let program = ASYNC.program();
    let gone = program.passing_lane();
    let block = program.allocate(gone, 12 * MIB);
    program.device.destroy_stream(gone.stream);
    program.free(block);
    program.end();
}

/// With its next request a stream gives back what it freed, before anything more is taken.
#[test]
fn what_a_passing_stream_frees_serves_its_next_request() {
    let program = ASYNC.program();
    let own = program.passing_lane();
    let block = program.allocate(own, 12 * MIB);
    let reserved = program.reserved();
    program.free(block);
    let again = program.allocate(own, 12 * MIB);
    assert_eq!(program.reserved(), reserved);
    program.free(again);
    program.end();
}
