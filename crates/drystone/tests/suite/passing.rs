//! Streams of which nobody says when they end: their handles are used by calls that bring them, and
//! by no others.

use std::sync::Arc;

use drystone::driver::{Call, CaptureMode};
use drystone_sim::SimDevice;

use crate::program::Program;
use crate::setup::{Setup, VMM_2MIB, on_every_setup};
use crate::sim::{MIB, watched};

on_every_setup!(
    streams_that_vanish_are_safe,
    a_capture_is_remembered_of_a_stream_that_may_not_be_asked,
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
    if !program.device.checks_handles() || !setup.is_caching() {
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

fn a_capture_is_remembered_of_a_stream_that_may_not_be_asked(setup: &Setup) {
    let program = setup.program();
    if !setup.is_caching() {
        return;
    }
    let own = program.passing_lane();
    program.device.begin_capture(own.stream, CaptureMode::Global);
    let block = program.allocate(own, 12 * MIB);
    program.allocator.trim().unwrap_err();
    assert!(program.device.end_capture(own.stream), "the capture is broken");
    program.free(block);
    program.allocator.note_captures_over();
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}
