//! Limits: reserved bytes never pass them, what is cached never stands in the way, and the error
//! has the figures.

use drystone::{AllocateError, Backend, OutOfMemory};

use crate::program::{Lane, Program};
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    b34_the_limit_may_be_reached_but_not_passed,
    b33_cached_memory_is_given_back_at_the_limit,
    a_fraction_is_of_the_device,
    the_lower_of_two_limits_counts,
    a_limit_lowered_below_what_is_held_stops_growth_only,
    out_of_memory_has_the_figures_and_leaves_the_allocator_usable,
    limits_of_nothing_serve_nothing,
);

fn out_of_memory(program: &Program, lane: Lane, bytes: u64) -> OutOfMemory {
    match program.try_allocate(lane, bytes).unwrap_err() {
        AllocateError::OutOfMemory(error) => *error,
        error => panic!("{error}"),
    }
}

fn b34_the_limit_may_be_reached_but_not_passed(setup: &Setup) {
    for (limit, served) in [(64 * MIB, true), (64 * MIB - 1, false), (64 * MIB + 1, true)] {
        let program = setup.program_with_limit(limit);
        let lane = program.lane();
        match program.try_allocate(lane, 64 * MIB) {
            Ok(block) => {
                assert!(served, "limit {limit}");
                assert_eq!(program.reserved(), 64 * MIB);
                out_of_memory(&program, lane, 1);
                program.free(block);
            }
            Err(error) => assert!(!served, "limit {limit}: {error}"),
        }
        assert!(program.allocator.stats().all.reserved_bytes.peak <= limit);
        program.end();
    }
}

fn b33_cached_memory_is_given_back_at_the_limit(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    // Nothing is in use, and what is cached never fits: other sizes, classes and streams.
    for bytes in [32 * MIB, MIB / 2, 56 * MIB, 62 * MIB, 12 * MIB, 64 * MIB, 1] {
        for lane in [lane, other] {
            let block = program.allocate(lane, bytes);
            program.check();
            program.free(block);
        }
    }
    let whole = program.allocate(lane, 64 * MIB);
    assert_eq!(program.reserved(), 64 * MIB);
    program.free(whole);
    program.end();
}

fn a_fraction_is_of_the_device(setup: &Setup) {
    let total = setup.program().device.driver().info().total_bytes;
    let fraction = (64 * MIB) as f64 / total as f64;
    let program = setup.program_with(setup.options().with_limit_fraction(fraction));
    let lane = program.lane();
    let block = program.allocate(lane, 64 * MIB);
    assert_eq!(out_of_memory(&program, lane, 32 * MIB).limit_bytes, 64 * MIB);
    program.free(block);
    program.end();
}

fn the_lower_of_two_limits_counts(setup: &Setup) {
    for (limit_bytes, limit_fraction) in [(64 * MIB, 1.0), (u64::MAX, 0.0)] {
        let total = setup.program().device.driver().info().total_bytes;
        let fraction = f64::max(limit_fraction, (64 * MIB) as f64 / total as f64);
        let program = setup.program_with(
            setup.options().with_limit_bytes(limit_bytes).with_limit_fraction(fraction),
        );
        let lane = program.lane();
        assert_eq!(out_of_memory(&program, lane, 72 * MIB).limit_bytes, 64 * MIB);
        program.end();
    }
}

fn a_limit_lowered_below_what_is_held_stops_growth_only(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let (kept, freed) = (program.allocate(lane, 64 * MIB), program.allocate(lane, 64 * MIB));
    program.allocator.set_limit(32 * MIB);
    assert_eq!(program.reserved(), 128 * MIB);
    program.free(freed);
    let hit = program.allocate(lane, 64 * MIB);
    program.free(hit);
    out_of_memory(&program, lane, 72 * MIB);
    // What is unused would not do, and stays; what the driver caches goes when it is asked.
    let kept_bytes = if setup.backend == Backend::Async { 64 * MIB } else { 128 * MIB };
    assert_eq!(program.reserved(), kept_bytes);
    program.allocator.set_limit(u64::MAX);
    let more = program.allocate(lane, 72 * MIB);
    [kept, more].into_iter().for_each(|block| program.free(block));
    program.end();
}

fn out_of_memory_has_the_figures_and_leaves_the_allocator_usable(setup: &Setup) {
    let program = setup.program_with_limit(128 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    let kept = program.allocate(lane, 64 * MIB);
    let error = out_of_memory(&program, other, 72 * MIB);
    assert_eq!(error.requested_bytes, 72 * MIB);
    assert_eq!(error.limit_bytes, 128 * MIB);
    assert_eq!(error.allocated_bytes, kept.bytes);
    assert_eq!(error.pending_bytes, 0);
    assert_eq!(error.reserved_bytes, program.reserved());
    assert_eq!(error.device_bytes, program.device.driver().info().total_bytes);
    assert_eq!((error.is_capturing, &error.refusal), (false, &None));
    let text = error.to_string();
    let ordinal = program.device.driver().info().ordinal;
    for part in [
        "Tried to allocate 72.00 MiB",
        &format!("GPU {ordinal} has"),
        "; 128.00 MiB allowed",
        "Drystone holds 64.00 MiB: 64.00 MiB allocated, 0 bytes pending",
        "raise limit or limit_fraction",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    program.check();
    let smaller = program.allocate(other, 64 * MIB);
    program.free(smaller);
    program.free(kept);
    let whole = program.allocate(other, 128 * MIB);
    program.free(whole);
    program.end();
}

fn limits_of_nothing_serve_nothing(setup: &Setup) {
    let program = setup.program_with_limit(0);
    let lane = program.lane();
    for bytes in [1, MIB, 100 * MIB] {
        out_of_memory(&program, lane, bytes);
    }
    assert_eq!(program.device.verdict(), Ok(()));
    assert_eq!(program.allocator.stats().all.reserved_bytes.peak, 0);
    assert!(program.allocator.snapshot().is_empty(), "no addresses either");
    program.end();
}
