//! Capture: nothing that a capture forbids is called while one is under way (I11), in any mode.

use std::thread;

use drystone::AllocateError;
use drystone::driver::CaptureMode;

use crate::program::{Lane, Program};
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    b27_growth_is_legal_in_a_capture,
    b21_events_are_left_alone_in_a_capture,
    b22_out_of_memory_in_a_capture_says_so_and_breaks_nothing,
    b22_another_streams_capture_is_not_broken,
    b22_another_threads_capture_is_not_broken,
    b25_uses_on_a_captured_stream_are_waited_for_after_the_capture,
    b25_a_block_used_on_a_captured_stream_serves_again_after_the_capture,
    a_captured_stream_takes_nothing_from_others,
    what_no_source_allows_is_asked_by_a_relaxed_thread,
    a_trim_in_a_capture_is_refused_and_breaks_nothing,
);

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// Runs `body` while a lane is captured, in every mode. The capture must stay intact.
fn in_every_mode(program: &Program, lane: Lane, mut body: impl FnMut()) {
    for mode in MODES {
        program.device.begin_capture(lane.stream, mode);
        body();
        assert!(program.device.end_capture(lane.stream), "the capture ({mode:?}) is broken");
        program.check();
    }
}

fn b27_growth_is_legal_in_a_capture(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let mut kept = Vec::new();
    in_every_mode(&program, lane, || {
        let mut bytes = MIB / 2;
        // New segments of both classes, a hit, a split, and a segment that grows.
        for _ in 0..4 {
            kept.push(program.allocate(lane, bytes));
            let hit = program.allocate(lane, bytes);
            program.free(hit);
            bytes *= 3;
        }
    });
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Pending blocks and events in flight when the capture begins, and more made during it.
fn b21_events_are_left_alone_in_a_capture(setup: &Setup) {
    let program = setup.program();
    let (lane, other, third) = (program.lane(), program.lane(), program.lane());
    in_every_mode(&program, lane, || {
        let pending = program.allocate(other, 12 * MIB);
        program.use_on(&pending, third);
        program.device.work(third.stream, 1000);
        program.free(pending);
        let own = program.allocate(lane, 12 * MIB);
        program.use_on(&own, other);
        program.free(own);
        program.device.pass(5000);
        let miss = program.allocate(lane, 30 * MIB);
        program.free(miss);
    });
    program.end();
}

fn b22_out_of_memory_in_a_capture_says_so_and_breaks_nothing(setup: &Setup) {
    let program = setup.program_with_limit(128 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    for mode in MODES {
        // Plenty that a trim would give back, and something pending.
        let cached = program.allocate(other, 64 * MIB);
        let pending = program.allocate(other, 32 * MIB);
        program.use_on(&pending, lane);
        program.device.work(lane.stream, 1000);
        [cached, pending].into_iter().for_each(|block| program.free(block));
        program.device.begin_capture(lane.stream, mode);
        match program.try_allocate(lane, 120 * MIB).unwrap_err() {
            AllocateError::OutOfMemory(error) => {
                assert!(error.is_capturing);
                assert!(error.to_string().contains("A graph is being captured"), "{error}");
            }
            error => panic!("{error}"),
        }
        let smaller = program.allocate(lane, 8 * MIB);
        assert!(program.device.end_capture(lane.stream), "the capture ({mode:?}) is broken");
        program.free(smaller);
        let block = program.allocate(lane, 120 * MIB);
        program.free(block);
        program.check();
        program.allocator.trim().unwrap();
    }
    program.end();
}

/// Everything the allocator may do for a stream while another one is captured: hits, growth,
/// reuse across streams, frees with uses, looks at events, running out of memory.
fn busy_day(program: &Program, lane: Lane, other: Lane, captured: Lane) {
    let pending = program.allocate(lane, 12 * MIB);
    program.use_on(&pending, other);
    program.device.work(other.stream, 1000);
    program.free(pending);
    program.device.pass(5000);
    let blocks = [program.allocate(lane, 12 * MIB), program.allocate(lane, 700)];
    blocks.into_iter().for_each(|block| program.free(block));
    let crossed = program.allocate(other, 12 * MIB);
    program.use_on(&crossed, captured);
    program.free(crossed);
    program.try_allocate(lane, 200 * MIB).unwrap_err();
    let after = program.allocate(other, 13 * MIB);
    program.free(after);
}

fn b22_another_streams_capture_is_not_broken(setup: &Setup) {
    let program = setup.program_with_limit(160 * MIB);
    let (captured, lane, other) = (program.lane(), program.lane(), program.lane());
    in_every_mode(&program, captured, || busy_day(&program, lane, other, captured));
    let whole = program.allocate(lane, 160 * MIB);
    program.free(whole);
    program.end();
}

fn b22_another_threads_capture_is_not_broken(setup: &Setup) {
    let program = setup.program_with_limit(160 * MIB);
    let (captured, lane, other) = (program.lane(), program.lane(), program.lane());
    in_every_mode(&program, captured, || {
        thread::scope(|scope| {
            scope.spawn(|| busy_day(&program, lane, other, captured));
        });
    });
    let whole = program.allocate(lane, 160 * MIB);
    program.free(whole);
    program.end();
}

fn b25_uses_on_a_captured_stream_are_waited_for_after_the_capture(setup: &Setup) {
    let program = setup.program();
    let (lane, captured) = (program.lane(), program.lane());
    in_every_mode(&program, captured, || {
        let block = program.allocate(lane, 12 * MIB);
        program.use_on(&block, captured);
        program.free(block);
        let other = program.allocate(lane, 12 * MIB);
        program.free(other);
    });
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    assert_eq!(program.allocator.stats().quarantined_bytes, 0);
    program.end();
}

/// Without anybody waiting for an idle device: the block's fence is recorded once that is legal.
fn b25_a_block_used_on_a_captured_stream_serves_again_after_the_capture(setup: &Setup) {
    let program = setup.program();
    let (lane, other, captured) = (program.lane(), program.lane(), program.lane());
    let mut held = None;
    in_every_mode(&program, captured, || {
        program.allocator.trim_passed().unwrap_err();
        let block = program.allocate(lane, 12 * MIB);
        [captured, other].into_iter().for_each(|user| program.use_on(&block, user));
        program.free(block);
        let stats = program.allocator.stats();
        assert_eq!((stats.quarantined_bytes, stats.all.active_blocks.current), (0, 1));
        program.check();
        assert!(program.device.end_capture(captured.stream));
        for _ in 0..2 {
            // The first look after the capture records, the second sees that it has passed.
            program.device.pass(10_000);
            program.allocator.trim_passed().unwrap();
        }
        let stats = program.allocator.stats();
        assert_eq!((stats.quarantined_bytes, stats.all.active_blocks.current), (0, 0));
        assert_eq!(*held.get_or_insert(program.reserved()), program.reserved());
        program.device.begin_capture(captured.stream, CaptureMode::Relaxed);
    });
    program.end();
}

/// A wait inside a capture for work outside it would break it.
fn a_captured_stream_takes_nothing_from_others(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let mut addresses = Vec::new();
    for _ in MODES {
        let block = program.allocate(other, 12 * MIB);
        addresses.push(block.address);
        program.free(block);
    }
    in_every_mode(&program, lane, || {
        let block = program.allocate(lane, 12 * MIB);
        assert!(!addresses.contains(&block.address));
        program.free(block);
    });
    program.end();
}

/// Whether captures forbid these calls nobody has published (`harsh-device.md`): what memory there
/// is, who a stream is, that a peer may reach it. Trims of memory pools are refused before.
fn what_no_source_allows_is_asked_by_a_relaxed_thread(setup: &Setup) {
    let program = setup.program();
    let (lane, captured) = (program.lane(), program.lane());
    let block = program.allocate(lane, setup.unit_bytes());
    in_every_mode(&program, captured, || {
        program.allocator.memory_info().unwrap();
        program.allocator.budget().unwrap();
        program.lane();
        // Most setups have no peer: then it is refused, and breaks nothing either.
        let _ = program.allocator.enable_peer_access(1);
        drop(program.allocator.export(block.address));
        program.allocator.trim().unwrap_err();
    });
    program.free(block);
    program.end();
}

fn a_trim_in_a_capture_is_refused_and_breaks_nothing(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    for lane in [lane, other] {
        let block = program.allocate(lane, 12 * MIB);
        program.free(block);
    }
    let held = program.reserved();
    in_every_mode(&program, lane, || {
        for result in [program.allocator.trim(), program.allocator.trim_passed()] {
            let error = result.unwrap_err();
            assert_eq!((error.given_back_bytes, program.reserved()), (0, held));
            assert!(error.to_string().contains("not permitted while a stream is being captured"));
        }
    });
    assert_eq!(program.allocator.trim().unwrap(), held);
    program.end();
}
