//! Memory that one stream freed and another gets, with room to spare and without a wait: because it
//! is over, because the program itself ordered it, or because graphs of one pool never run at the
//! same time. The oracle knows what the program's streams wait for.

use std::sync::Arc;

use drystone::Prefer;
use drystone::driver::CaptureMode;
use drystone_sim::{SimConfig, SimDevice};

use crate::program::{Lane, Program};
use crate::setup::{MALLOC, Setup, VMM_2MIB};
use crate::sim::{GIB, MIB, watched};

const SOURCES: [Setup; 2] = [VMM_2MIB, MALLOC];

/// A program with room to spare, on a device of 80 GiB.
fn roomy(setup: &Setup) -> Program {
    let config = SimConfig { total_bytes: 80 * GIB, ..watched() };
    let options = setup.options().with_prefer(Prefer::Balanced);
    Program::new(Arc::new(SimDevice::new(config)), options)
}

/// What the program itself makes a lane wait for, told to the allocator if `is_told`.
fn wait_for(program: &Program, lane: Lane, other: Lane, is_told: bool) {
    let driver = program.device.driver();
    let event = driver.create_event().unwrap();
    driver.record(event, other.stream).unwrap();
    driver.wait(lane.stream, event).unwrap();
    driver.destroy_event(event).unwrap();
    if is_told {
        let event = program.allocator.note_event(other.id).unwrap();
        program.allocator.note_wait(lane.id, event);
    }
}

fn used(program: &Program, lane: Lane, bytes: u64) {
    let block = program.allocate(lane, bytes);
    program.device.work(lane.stream, 1_000_000);
    program.free(block);
}

#[test]
fn a_stream_that_was_used_once_leaves_its_memory_to_one_that_waits_for_it() {
    for setup in SOURCES {
        for is_told in [true, false] {
            let program = roomy(&setup);
            let (once, main) = (program.lane(), program.lane());
            used(&program, once, 64 * MIB);
            let held = program.reserved();
            wait_for(&program, main, once, is_told);
            used(&program, main, 64 * MIB);
            assert_eq!(program.reserved() == held, is_told);
            program.end();
        }
    }
}

#[test]
fn what_a_stream_frees_after_an_event_is_not_ordered_by_it() {
    let program = roomy(&VMM_2MIB);
    let (other, main) = (program.lane(), program.lane());
    used(&program, other, 32 * MIB);
    wait_for(&program, main, other, true);
    let later = program.allocate(other, 32 * MIB);
    program.device.work(other.stream, 1_000_000);
    program.free(later);
    let held = program.reserved();
    used(&program, main, 32 * MIB);
    assert!(program.reserved() > held);
    program.end();
}

#[test]
fn an_event_takes_a_record_and_a_wait_only_where_they_tell_something() {
    let program = roomy(&VMM_2MIB);
    let (other, main) = (program.lane(), program.lane());
    let calls = || program.device.calls();
    let before = calls();
    assert_eq!(program.allocator.note_event(other.id), None, "it has no memory");
    assert_eq!(calls(), before);
    used(&program, other, 32 * MIB);
    let before = calls();
    let event = program.allocator.note_event(other.id).unwrap();
    assert!(calls() > before);
    let before = calls();
    assert_eq!(program.allocator.note_event(other.id), Some(event), "nothing was freed since");
    assert_eq!(calls(), before);
    program.allocator.note_wait(main.id, event);
    assert_eq!(calls(), before + 1);
    // It waits already, and who waits for itself learns nothing.
    program.allocator.note_wait(main.id, event);
    program.allocator.note_wait(other.id, event);
    assert_eq!(calls(), before + 1);
    program.allocator.retire_stream(main.id).unwrap();
    let before = calls();
    program.allocator.note_wait(main.id, event);
    assert_eq!(calls(), before, "a stream that is gone waits for nothing");
    program.end();
}

#[test]
fn a_program_that_records_events_for_ever_leaves_no_more_than_some_of_ours() {
    let device = Arc::new(SimDevice::new(watched()));
    let program = Program::new(Arc::clone(&device) as Arc<_>, VMM_2MIB.options());
    let lane = program.lane();
    for round in 0..1000 {
        used(&program, lane, 4 * MIB);
        program.allocator.note_event(lane.id).unwrap();
        if round % 10 == 0 {
            program.allocator.note_synchronizing();
        }
        program.device.pass(10_000_000);
    }
    assert!(device.live_objects().events < 200, "{}", device.live_objects().events);
    program.end();
}

#[test]
fn a_host_that_waited_for_the_device_has_seen_all_streams() {
    // Events are so late that one which is recorded at the miss tells nothing in time.
    let config = SimConfig { total_bytes: 80 * GIB, event_latency_ns: 1_000_000, ..watched() };
    let options = VMM_2MIB.options().with_prefer(Prefer::Balanced);
    for is_told in [true, false] {
        let program = Program::new(Arc::new(SimDevice::new(config.clone())), options);
        let (other, main) = (program.lane(), program.lane());
        used(&program, other, 64 * MIB);
        if is_told {
            program.allocator.note_synchronizing();
        }
        program.device.pass(10_000_000);
        let held = program.reserved();
        used(&program, main, 64 * MIB);
        assert_eq!(program.reserved() == held, is_told);
        program.end();
    }
}

#[test]
fn a_request_takes_of_another_streams_block_what_it_asks_for() {
    for setup in SOURCES {
        let program = roomy(&setup);
        let (owner, other) = (program.lane(), program.lane());
        let large = program.allocate(owner, 96 * MIB);
        program.free(large);
        let held = program.reserved();
        let part = program.allocate(other, 32 * MIB);
        // The rest is the owner's still, while the other stream is at work.
        program.device.work(other.stream, 1_000_000);
        let rest = program.allocate(owner, 48 * MIB);
        assert_eq!(program.reserved(), held, "{:?}", setup.backend);
        program.free(part);
        program.free(rest);
        program.end();
    }
}

/// Free handles that do not add up to the request: what is missing is created, and no more.
#[test]
fn a_remap_is_completed_by_what_no_free_handle_fits() {
    let program = roomy(&VMM_2MIB);
    let lane = program.lane();
    let blocks = [(); 6].map(|()| program.allocate(lane, GIB));
    let [a, keep_a, b, keep_b, c, keep_c] = blocks;
    for block in [a, b, c] {
        program.free(block);
    }
    let held = program.reserved();
    let large = program.allocate(lane, 3 * GIB + 180 * MIB);
    assert_eq!(program.reserved(), held + 180 * MIB);
    for block in [keep_a, keep_b, keep_c, large] {
        program.free(block);
    }
    program.end();
}

/// Captures blocks on a lane into a graph of a pool, and frees them there.
fn captured(program: &Program, lane: Lane, pool: drystone::PoolId, sizes: &[u64]) {
    program.allocator.expect_capture(pool).unwrap();
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    let blocks: Vec<_> =
        sizes.iter().map(|&bytes| program.try_allocate_in(pool, lane, bytes).unwrap()).collect();
    blocks.into_iter().for_each(|block| program.free(block));
    assert!(program.device.end_capture(lane.stream), "the capture is broken");
    program.allocator.end_captures(pool);
    program.device.pass(100_000);
}

#[test]
fn what_one_capture_freed_serves_the_next_of_its_pool_on_another_stream() {
    for setup in SOURCES {
        let program = roomy(&setup);
        let pool = program.allocator.add_pool();
        captured(&program, program.lane(), pool, &[24 * MIB, 12 * MIB]);
        let held = program.reserved();
        for bytes in (2..8).rev() {
            captured(&program, program.lane(), pool, &[bytes * MIB, 2 * bytes * MIB]);
        }
        assert_eq!(program.reserved(), held, "{:?}", setup.backend);
        program.end();
    }
}

#[test]
fn graphs_that_run_at_the_same_time_share_nothing() {
    let program = roomy(&VMM_2MIB);
    let pool = program.allocator.add_pool();
    program.allocator.set_pool_exclusive(pool, false).unwrap();
    captured(&program, program.lane(), pool, &[24 * MIB]);
    let held = program.reserved();
    captured(&program, program.lane(), pool, &[24 * MIB]);
    assert!(program.reserved() >= held + 24 * MIB);
    program.allocator.release_pool(pool).unwrap();
    assert!(program.allocator.set_pool_exclusive(pool, true).is_err());
    // The next pool in its place is an exclusive one again.
    program.allocator.trim().unwrap();
    let pool = program.allocator.add_pool();
    captured(&program, program.lane(), pool, &[24 * MIB]);
    let held = program.reserved();
    captured(&program, program.lane(), pool, &[24 * MIB]);
    assert_eq!(program.reserved(), held);
    program.end();
}

/// Two captures at once: what the first freed is nobody's before it ends.
#[test]
fn a_capture_takes_nothing_from_one_that_is_under_way() {
    let program = roomy(&VMM_2MIB);
    let (first, second) = (program.lane(), program.lane());
    let pool = program.allocator.add_pool();
    for lane in [first, second] {
        program.device.begin_capture(lane.stream, CaptureMode::Relaxed);
    }
    let early = program.try_allocate_in(pool, first, 24 * MIB).unwrap();
    let address = early.address;
    program.free(early);
    let beside = program.try_allocate_in(pool, second, 24 * MIB).unwrap();
    assert_ne!(beside.address, address);
    program.free(beside);
    for lane in [first, second] {
        assert!(program.device.end_capture(lane.stream), "the capture is broken");
    }
    program.allocator.end_captures(pool);
    program.end();
}

/// A graph's live output is nobody else's, however many captures come after it.
#[test]
fn what_outlives_its_capture_is_not_shared() {
    let program = roomy(&VMM_2MIB);
    let (first, second) = (program.lane(), program.lane());
    let pool = program.allocator.add_pool();
    program.device.begin_capture(first.stream, CaptureMode::Global);
    let output = program.try_allocate_in(pool, first, 16 * MIB).unwrap();
    let scratch = program.try_allocate_in(pool, first, 16 * MIB).unwrap();
    program.free(scratch);
    assert!(program.device.end_capture(first.stream), "the capture is broken");
    program.allocator.end_captures(pool);
    program.device.pass(100_000);
    program.device.begin_capture(second.stream, CaptureMode::Global);
    let blocks = [(); 2].map(|()| program.try_allocate_in(pool, second, 16 * MIB).unwrap());
    assert!(blocks.iter().all(|block| !block.overlaps(&output)));
    blocks.into_iter().for_each(|block| program.free(block));
    assert!(program.device.end_capture(second.stream), "the capture is broken");
    program.allocator.end_captures(pool);
    program.free(output);
    program.end();
}
