//! Large handles, where memory can move out of them: fewer driver calls, and no granule less.

use std::sync::Arc;

use drystone::AllocateError;
use drystone::driver::{Call, CaptureMode};
use drystone_sim::{SimConfig, SimDevice};

use crate::program::Program;
use crate::setup::VMM_2MIB;
use crate::sim::{GIB, MIB, watched};

/// A device with three granules beside what a program holds in blocks of 1 GiB.
fn nearly_full() -> (SimDevice, Program) {
    let sim = SimDevice::new(SimConfig { total_bytes: 20 * GIB + 6 * MIB, ..watched() });
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
    (sim, program)
}

/// Where little is to be held, and live memory cannot be moved out of a handle.
#[test]
fn handles_are_single_granules_where_nothing_moves() {
    for moves in [false, true] {
        let (sim, program) = nearly_full();
        let lane = program.default_lane();
        if moves {
            program.allocator.know_all_streams(|_, run| run(Vec::new()));
        }
        let blocks: Vec<_> = (0..20)
            .map(|_| {
                let before = sim.calls_of(Call::Create);
                let block = program.allocate(lane, GIB);
                (sim.calls_of(Call::Create) - before, block)
            })
            .collect();
        // Of 8 MiB, while a sixteenth of what is left is more than that.
        let created = [blocks[0].0, blocks[18].0];
        assert_eq!(created, if moves { [128, 128] } else { [512, 512] });
        blocks.into_iter().for_each(|(_, block)| program.free(block));
        program.allocator.trim().unwrap();
        assert_eq!(program.reserved(), 0);
        program.end();
    }
}

#[test]
fn the_last_granules_are_had_without_giving_anything_back() {
    let (sim, program) = nearly_full();
    let (lane, other) = (program.default_lane(), program.lane());
    let mut blocks: Vec<_> = (0..20).map(|_| program.allocate(lane, GIB)).collect();
    let synchronised = sim.calls_of(Call::SynchronizeDevice);
    // In a segment of its own, where addresses are no limit.
    blocks.extend((0..3).map(|_| program.allocate(other, 2 * MIB)));
    assert_eq!(program.reserved(), 20 * GIB + 6 * MIB);
    assert_eq!(program.allocator.stats().retries, 0);
    assert_eq!(sim.calls_of(Call::SynchronizeDevice), synchronised);
    let refused = program.try_allocate(lane, 2 * MIB);
    assert!(matches!(refused, Err(AllocateError::OutOfMemory(_))));
    blocks.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Nothing may be waited for or given back there.
#[test]
fn the_last_granules_are_had_in_a_capture() {
    let (sim, program) = nearly_full();
    let (outside, lane) = (program.default_lane(), program.lane());
    let mut blocks: Vec<_> = (0..20).map(|_| program.allocate(outside, GIB)).collect();
    let pool = program.allocator.add_pool();
    sim.begin_capture(lane.stream, CaptureMode::ThreadLocal).unwrap();
    blocks.extend((0..3).map(|_| program.try_allocate_in(pool, lane, 2 * MIB).unwrap()));
    sim.end_capture(lane.stream).unwrap();
    blocks.into_iter().for_each(|block| program.free(block));
    program.allocator.release_pool(pool).unwrap();
    sim.end_graphs();
    program.end();
}
