//! The price of memory: with room to spare nothing is waited for and nothing remapped forever,
//! near the end of the device as little is held as before, and out of memory is known before it is
//! tried.

use std::sync::Arc;

use drystone::driver::{Call, Driver};
use drystone::{AllocateError, OutOfMemory, Prefer};
use drystone_sim::{Rng, SimConfig, SimDevice};

use crate::device::TestDevice;
use crate::program::{Lane, Program};
use crate::setup::VMM_2MIB;
use crate::sim::{GIB, MIB, watched};

fn program(total_bytes: u64, prefer: Prefer) -> (SimDevice, Program) {
    let sim = SimDevice::new(SimConfig { total_bytes, ..watched() });
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options().with_prefer(prefer));
    (sim, program)
}

fn refusal(program: &Program, lane: Lane, bytes: u64) -> OutOfMemory {
    match program.try_allocate(lane, bytes) {
        Err(AllocateError::OutOfMemory(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// How many waits two streams insert that take turns at 64 MiB, each busy with the other's last
/// use for long.
fn waits_of_two_streams(total_bytes: u64, prefer: Prefer) -> u64 {
    let (sim, program) = program(total_bytes, prefer);
    let lanes = [program.default_lane(), program.lane()];
    for round in 0..40 {
        let lane = lanes[round % 2];
        let block = program.allocate(lane, 64 * MIB);
        sim.work(lane.stream, 10_000_000);
        program.free(block);
    }
    let waits = sim.calls_of(Call::Wait);
    let stats = program.allocator.stats();
    assert_eq!(stats.with_room.waits, 0);
    assert!(
        stats.under_pressure.waits <= waits && (waits == 0) == (stats.under_pressure.waits == 0)
    );
    assert!(stats.with_room.growths + stats.under_pressure.growths > 0);
    program.end();
    waits
}

#[test]
fn no_stream_waits_for_another_where_there_is_room() {
    assert_eq!(waits_of_two_streams(GIB, Prefer::Balanced), 0);
    assert_eq!(waits_of_two_streams(GIB, Prefer::Speed), 0);
    assert!(waits_of_two_streams(GIB, Prefer::Memory) > 10);
    // Room for one of them only.
    assert!(waits_of_two_streams(80 * MIB, Prefer::Balanced) > 10);
}

/// Driver calls in each quarter of 8,000 requests of random sizes, none of which comes again.
fn calls_of_random_sizes(total_bytes: u64, prefer: Prefer) -> [u64; 4] {
    let (sim, program) = program(total_bytes, prefer);
    let lane = program.default_lane();
    let (mut rng, mut live) = (Rng::new(7), Vec::new());
    let calls = [(); 4].map(|()| {
        let before = sim.calls();
        for _ in 0..2000 {
            while live.iter().map(|block: &crate::program::Block| block.bytes).sum::<u64>()
                > 2 * GIB
            {
                let at = rng.below(live.len() as u64) as usize;
                program.free(live.swap_remove(at));
            }
            live.push(program.allocate(lane, MIB + rng.below(200 * MIB)));
        }
        sim.calls() - before
    });
    live.into_iter().for_each(|block| program.free(block));
    program.end();
    calls
}

#[test]
fn sizes_that_never_repeat_settle_where_there_is_room() {
    let calls = calls_of_random_sizes(16 * GIB, Prefer::Balanced);
    assert!(calls[3] < 50 && calls[3] < calls[0] / 10, "{calls:?}");
    let thrifty = calls_of_random_sizes(16 * GIB, Prefer::Memory);
    assert!(thrifty[3] > 1000, "{thrifty:?}");
}

#[test]
fn out_of_memory_is_known_before_it_is_tried() {
    for (live, cached, asked) in [(40, 0, 41), (10, 0, 71), (30, 40, 51)] {
        let (sim, program) = program(80 * GIB, Prefer::Balanced);
        let lane = program.default_lane();
        let kept = program.allocate(lane, live * GIB);
        if cached > 0 {
            let freed = program.allocate(lane, cached * GIB);
            program.free(freed);
        }
        let (calls, held) = (sim.calls(), program.reserved());
        let error = refusal(&program, lane, asked * GIB);
        assert!(sim.calls() - calls <= 4, "{} calls", sim.calls() - calls);
        assert_eq!((program.reserved(), error.refusal), (held, None), "what is cached stays");
        assert!(!error.is_at_limit && error.device_free_bytes.is_some());
        program.free(kept);
        let whole = program.allocate(lane, 80 * GIB);
        program.free(whole);
        program.end();
    }
}

#[test]
fn what_others_hold_of_the_device_is_no_room() {
    let (sim, program) = program(4 * GIB, Prefer::Balanced);
    let others = sim.malloc(3 * GIB).unwrap();
    let lane = program.default_lane();
    let error = refusal(&program, lane, GIB + 2 * MIB);
    assert_eq!((error.device_free_bytes, error.refusal), (Some(GIB), None));
    sim.free(others).unwrap();
    let block = program.allocate(lane, GIB + 2 * MIB);
    program.free(block);
    program.end();
}

#[test]
fn one_large_request_is_created_in_large_handles() {
    let (sim, program) = program(80 * GIB, Prefer::Balanced);
    let lane = program.default_lane();
    let block = program.allocate(lane, 64 * GIB);
    assert_eq!(sim.calls_of(Call::Create), 512);
    assert_eq!(program.reserved(), 64 * GIB);
    program.free(block);
    program.end();
}

/// What is held once 200 streams, none of which ends, had 20 MiB one after another, where the
/// addresses are enough for the generous reservations of few.
fn held_by_streams_in_turn(prefer: Prefer) -> u64 {
    let addresses = 64 * GIB;
    let config = SimConfig { total_bytes: 4 * GIB, address_space_bytes: addresses, ..watched() };
    let sim = SimDevice::new(config);
    let program = Program::new(Arc::new(sim), VMM_2MIB.options().with_prefer(prefer));
    for _ in 0..200 {
        let lane = program.lane();
        let block = program.allocate(lane, 20 * MIB);
        program.free(block);
    }
    let held = program.reserved();
    program.end();
    held
}

#[test]
fn streams_that_leave_few_addresses_are_served_by_what_is_free() {
    assert_eq!(held_by_streams_in_turn(Prefer::Memory), 20 * MIB);
    assert_eq!(held_by_streams_in_turn(Prefer::Balanced), 32 * MIB);
}
