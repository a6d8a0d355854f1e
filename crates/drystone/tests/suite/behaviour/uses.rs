//! Uses on other streams: a freed block waits for exactly those, and holds up nobody else.

use std::sync::Arc;

use drystone_sim::{SimConfig, SimDevice};

use crate::program::Program;
use crate::setup::{Setup, VMM_2MIB, on_every_setup};
use crate::sim::{MIB, watched};

on_every_setup!(
    a_used_block_is_pending_until_the_other_stream_has_passed,
    a_use_on_its_own_stream_costs_nothing,
    b29_a_slow_stream_does_not_hold_up_others,
    b30_memory_that_is_all_pending_serves_after_waiting,
    a_block_used_on_many_streams_waits_for_the_last,
    uses_repeat_without_growing_anything,
    uses_are_seen_to_be_over_though_nothing_misses,
    b42_bad_frees_and_uses_change_nothing,
);

fn a_used_block_is_pending_until_the_other_stream_has_passed(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let block = program.allocate(lane, 12 * MIB);
    let (address, bytes) = (block.address, block.bytes);
    program.use_on(&block, other);
    program.device.work(other.stream, 5000);
    program.free(block);
    let stats = program.allocator.stats().all;
    assert_eq!((stats.allocated_bytes.current, stats.active_bytes.current), (0, bytes));
    assert_eq!((stats.allocations.current, stats.active_blocks.current), (0, 1));
    // Neither its own stream nor the one that uses it gets it.
    let others = [program.allocate(lane, 12 * MIB), program.allocate(other, 12 * MIB)];
    assert!(others.iter().all(|block| block.address != address));
    program.check();
    program.device.pass(10_000);
    let again = program.allocate(lane, 12 * MIB);
    assert_eq!(again.address, address);
    program.free(again);
    others.into_iter().for_each(|block| program.free(block));
    program.end();
}

fn a_use_on_its_own_stream_costs_nothing(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let block = program.allocate(lane, 3 * MIB);
    let calls = program.device.calls();
    program.use_on(&block, lane);
    program.free(block);
    assert_eq!(program.device.calls() - calls, setup.calls_of_a_free());
    assert_eq!(program.allocator.stats().all.active_bytes.current, 0);
    program.end();
}

fn b29_a_slow_stream_does_not_hold_up_others(setup: &Setup) {
    let program = setup.program();
    let (lane, slow, quick) = (program.lane(), program.lane(), program.lane());
    program.device.work(slow.stream, 60_000_000);
    let stuck = program.allocate(lane, 12 * MIB);
    program.use_on(&stuck, slow);
    program.free(stuck);
    let mut held = None;
    for round in 0..20 {
        let block = program.allocate(lane, 24 * MIB);
        program.use_on(&block, quick);
        program.free(block);
        program.device.pass(1000);
        let reserved = program.reserved();
        assert_eq!(*held.get_or_insert(reserved), reserved, "round {round}");
    }
    assert_eq!(program.allocator.stats().all.active_bytes.current, 36 * MIB, "one of each waits");
    program.check();
    program.end();
}

fn b30_memory_that_is_all_pending_serves_after_waiting(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    for bytes in [64 * MIB, 56 * MIB, 64 * MIB] {
        let block = program.allocate(lane, bytes);
        program.use_on(&block, other);
        program.device.work(other.stream, 1_000_000);
        program.free(block);
        program.check();
    }
    // The request of another stream waits as well, although its own free list is empty.
    let block = program.allocate(other, 64 * MIB);
    program.free(block);
    program.end();
}

fn a_block_used_on_many_streams_waits_for_the_last(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let others = [program.lane(), program.default_lane(), program.lane()];
    let block = program.allocate(lane, 12 * MIB);
    for (at, other) in others.into_iter().enumerate() {
        program.use_on(&block, other);
        program.device.work(other.stream, 10_000 * (at as u64 + 1));
    }
    program.free(block);
    for passed in 0..=3 {
        program.allocator.trim_passed().unwrap();
        let active = program.allocator.stats().all.active_bytes.current;
        assert_eq!(active == 0, passed == 3, "{passed} of 3 have passed");
        program.check();
        program.device.pass(10_500);
    }
    program.end();
}

fn uses_repeat_without_growing_anything(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    for _ in 0..100 {
        let block = program.allocate(lane, 5 * MIB);
        (0..5).for_each(|_| program.use_on(&block, other));
        program.free(block);
        program.device.pass(1000);
    }
    // A prompt device needs one block, a late one a second while the first is pending.
    assert!(program.reserved() <= 2 * 20 * MIB, "{}", program.reserved());
    program.check();
    program.end();
}

/// Free blocks for every request: no miss ever looks which fences have passed.
fn uses_are_seen_to_be_over_though_nothing_misses(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let blocks: Vec<_> = (0..400).map(|_| program.allocate(lane, 512)).collect();
    blocks.into_iter().for_each(|block| program.free(block));
    for round in 0..400 {
        let block = program.allocate(lane, 512);
        program.use_on(&block, other);
        program.free(block);
        program.device.pass(200);
        let pending = program.allocator.stats().all.active_blocks.current;
        assert!(pending <= 40, "{pending} blocks are pending in round {round}");
    }
    program.check();
    program.end();
}

/// One event each while the other stream lags, some of which are kept for what follows.
#[test]
fn events_of_a_stream_that_lagged_are_destroyed() {
    let device = SimDevice::new(SimConfig { launch_queue: 0, ..watched() });
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let (lane, other) = (program.lane(), program.lane());
    program.device.work(other.stream, 1_000_000);
    for _ in 0..2000 {
        let block = program.allocate(lane, 512);
        program.use_on(&block, other);
        program.free(block);
    }
    assert_eq!(device.live_objects().events, 2000);
    program.device.pass(2_000_000);
    program.allocator.trim_passed().unwrap();
    assert_eq!(program.allocator.stats().all.active_blocks.current, 0);
    assert_eq!(device.live_objects().events, 256);
    program.end();
}

fn b42_bad_frees_and_uses_change_nothing(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let live = program.allocate(lane, 3 * MIB);
    let small = program.allocate(lane, 700);
    let pending = program.allocate(lane, 3 * MIB);
    program.use_on(&pending, other);
    program.device.work(other.stream, 1_000_000);
    let freed = program.allocate(lane, 3 * MIB);
    let bad = [
        0,
        1,
        512,
        u64::MAX,
        live.address + 1,
        live.address + 512,
        live.address + live.bytes - 1,
        small.address + 1,
        pending.address,
        pending.address + 512,
        freed.address,
        freed.address + 512,
        freed.address + (1 << 40),
    ];
    program.free(pending);
    program.free(freed);
    let (stats, snapshot) = (program.allocator.stats(), program.allocator.snapshot());
    let calls = program.device.calls();
    for address in bad {
        let error = program.allocator.free(address).unwrap_err();
        assert!(error.to_string().contains(&format!("{address:#x}")), "{error}");
        program.allocator.record_stream(address, other.id).unwrap_err();
    }
    assert_eq!(program.allocator.stats(), stats);
    assert_eq!(program.allocator.snapshot(), snapshot);
    assert_eq!(program.device.calls(), calls);
    program.free(live);
    program.free(small);
    program.end();
}
