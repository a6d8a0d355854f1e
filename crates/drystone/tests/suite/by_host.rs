//! Moves by way of the host: where a device is full to the last granule, so that no move has room,
//! what is unused beside live blocks serves requests all the same. Whatever fails, no byte is lost.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use drystone::Prefer;
use drystone::driver::{Call, ErrorCode};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};

use crate::moves::{CALLS, TOTAL, closed, fails, moves};
use crate::program::{Block, Lane, Program};
use crate::setup::CUDA_VMM;
use crate::sim::{MIB, watched};
use crate::simcuda;

const BYTES: u64 = 3 * MIB;
/// Blocks that lie in large handles.
const IN_LARGE_HANDLES: Range<usize> = 170..330;
/// Every so many of those one stays, so that no handle is free.
const KEPT: usize = 8;
/// What that leaves unused, except parts of granules.
const UNUSED: u64 = 160 / KEPT as u64 * (KEPT as u64 * BYTES - 8 * MIB);

/// Fills the device, and frees most of what lies in large handles. What stays, and a request for
/// the rest.
fn full(program: &Program, lane: Lane) -> (Vec<Block>, u64) {
    let mut blocks: Vec<Block> = Vec::new();
    for bytes in [BYTES, 2 * MIB] {
        blocks.extend(std::iter::from_fn(|| program.try_allocate(lane, bytes).ok()));
    }
    let freed = |at: &usize| IN_LARGE_HANDLES.contains(at) && at % KEPT != KEPT / 2;
    let (freed, kept): (Vec<_>, Vec<_>) =
        blocks.into_iter().enumerate().partition(|(at, _)| freed(at));
    freed.into_iter().for_each(|(_, block)| program.free(block));
    (kept.into_iter().map(|(_, block)| block).collect(), UNUSED)
}

fn end(program: Program, kept: Vec<Block>) {
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

fn went_by_host(device: &SimDevice) -> bool {
    device.calls_of(Call::CreateOnHost) > 0
}

#[test]
fn what_is_unused_serves_a_request_where_no_move_has_room() {
    let (program, device) = closed(SimConfig { calls_take_time: true, ..watched() });
    let lane = program.lane();
    let (kept, bytes) = full(&program, lane);
    assert!(TOTAL - device.physical_bytes() < BYTES && moves(&program) == 0);
    let other = program.lane();
    kept.iter().for_each(|block| program.use_on(block, other));
    let large = program.allocate(lane, bytes);
    assert!(went_by_host(&device));
    program.check();
    kept.iter().for_each(|block| program.use_on(block, other));
    assert_eq!(program.allocator.stats().on_host_bytes, 0);
    assert!(device.physical_bytes() <= TOTAL);
    program.free(large);
    end(program, kept);
}

#[test]
fn where_the_driver_makes_no_memory_of_the_host_the_request_is_refused() {
    let (program, device) = closed(SimConfig { has_host_handles: false, ..watched() });
    let lane = program.lane();
    let (kept, bytes) = full(&program, lane);
    assert!(program.try_allocate(lane, bytes).is_err());
    assert!(went_by_host(&device) && moves(&program) == 0);
    program.check();
    end(program, kept);
}

/// What could not come back yet stays in use where it is, with its room kept, and comes back before
/// memory is created next.
#[test]
fn what_cannot_come_back_at_once_comes_back_before_memory_is_created() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let (mut kept, bytes) = full(&program, lane);
    let (call, code) = (Call::Hold, ErrorCode::NotReady);
    device.install_fault(FaultPlan { call, nth: 2, mode: FaultMode::Forever, code });
    assert!(program.try_allocate(lane, bytes).is_err());
    let on_host = program.allocator.stats().on_host_bytes;
    assert!(on_host > 0);
    assert!(program.reserved() <= TOTAL, "room is kept for it");
    assert_eq!(program.reserved(), device.physical_bytes() + on_host);
    program.check();
    device.clear_faults();
    std::thread::sleep(Duration::from_millis(50));
    kept.push(program.allocate(lane, bytes));
    assert_eq!(program.allocator.stats().on_host_bytes, 0);
    end(program, kept);
}

/// A network card reads what it was told of where it was told of it.
#[test]
fn what_others_are_about_to_know_comes_back_first() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let (kept, bytes) = full(&program, lane);
    let (call, code) = (Call::Hold, ErrorCode::NotReady);
    device.install_fault(FaultPlan { call, nth: 2, mode: FaultMode::Forever, code });
    assert!(program.try_allocate(lane, bytes).is_err());
    assert!(program.allocator.stats().on_host_bytes > 0);
    device.clear_faults();
    let pinned = kept[0].address;
    program.allocator.pin_mapping(pinned).unwrap();
    assert_eq!(program.allocator.stats().on_host_bytes, 0);
    program.check();
    program.allocator.unpin_mapping(pinned).unwrap();
    end(program, kept);
}

#[test]
fn p4_no_byte_is_lost_whatever_call_fails_by_way_of_the_host() {
    let calls = CALLS.into_iter().chain([Call::CreateOnHost]);
    for call in calls.filter(|call| !matches!(call, Call::Unreserve)) {
        for code in [ErrorCode::OutOfMemory, ErrorCode::InvalidHandle] {
            let struck = (1..12).chain((12..).step_by(17));
            let struck = struck.take_while(|&nth| fails(full, &[(call, nth)], code)).count();
            assert!(struck > 0, "{call:?} is never made");
        }
    }
}

#[test]
fn p4_no_byte_is_lost_whatever_two_calls_fail_by_way_of_the_host() {
    for first in CALLS {
        for second in CALLS {
            for nth in [(1, 1), (1, 2), (2, 1), (3, 3)] {
                fails(full, &[(first, nth.0), (second, nth.1)], ErrorCode::OutOfMemory);
            }
        }
    }
}

#[test]
fn contents_go_by_way_of_the_host_and_come_back() {
    CUDA_VMM.run(|setup| {
        let device = simcuda::device_with("memory:2GiB");
        let options = setup.options().with_prefer(Prefer::Balanced);
        let program = Program::new(Arc::clone(&device) as _, options);
        program.allocator.know_all_streams(|_, run| run(Vec::new()));
        let lane = program.lane();
        let (kept, bytes) = full(&program, lane);
        let large = program.allocate(lane, bytes);
        assert!(moves(&program) > 0);
        program.check();
        program.free(large);
        end(program, kept);
    });
}
