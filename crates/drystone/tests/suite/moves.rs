//! Live memory that gets other memory behind its addresses: what is asked for fits, if what is
//! unused is enough; what must not move stays; whatever fails, no byte is lost. The device's oracle
//! follows contents.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drystone::driver::{Call, CaptureMode, ErrorCode, Stream};
use drystone::{AllocateError, Cause, MappingChange, OutOfMemory, PoolId, Prefer, Stays};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};

use crate::program::{Block, Lane, Program};
use crate::setup::{CUDA_VMM, VMM_2MIB};
use crate::sim::{GIB, MIB, watched};
use crate::simcuda;

/// What there is of the device, and a program that has all of it in large handles.
pub const TOTAL: u64 = 2 * GIB;

fn program(config: SimConfig) -> (Program, SimDevice) {
    let device = SimDevice::new(SimConfig { total_bytes: TOTAL, ..config });
    let options = VMM_2MIB.options().with_prefer(Prefer::Balanced);
    (Program::new(Arc::new(device.clone()), options), device)
}

/// The same, of which all streams are known.
pub fn closed(config: SimConfig) -> (Program, SimDevice) {
    let (program, device) = program(config);
    program.allocator.know_all_streams(|_, run| run(Vec::new()));
    (program, device)
}

/// Fills the device except what moves keep as room, so that nothing moves yet, and frees all but
/// one block of 3 MiB in each 16: those that stay.
pub fn sparse(program: &Program, lane: Lane) -> Vec<Block> {
    let blocks = (0..(TOTAL - 96 * MIB) / (3 * MIB)).map(|_| program.allocate(lane, 3 * MIB));
    let blocks: Vec<Block> = blocks.collect();
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 16 == 7 {
            kept.push(block);
        } else {
            program.free(block);
        }
    }
    kept
}

fn refused(program: &Program, lane: Lane, bytes: u64) -> Box<OutOfMemory> {
    match program.try_allocate(lane, bytes) {
        Err(AllocateError::OutOfMemory(error)) => error,
        other => panic!("{other:?}"),
    }
}

pub fn moves(program: &Program) -> u64 {
    program.allocator.stats().moves
}

/// What fits beside what was kept, except parts of granules.
pub fn rest(kept: &[Block]) -> u64 {
    let touched = |block: &Block| {
        (block.address + block.bytes).next_multiple_of(2 * MIB)
            - block.address / (2 * MIB) * (2 * MIB)
    };
    TOTAL - kept.iter().map(touched).sum::<u64>()
}

#[test]
fn what_is_unused_serves_a_request_wherever_it_lies() {
    for latency in [0, 20_000] {
        let (program, _) =
            closed(SimConfig { event_latency_ns: latency, calls_take_time: true, ..watched() });
        let lane = program.lane();
        let kept = sparse(&program, lane);
        let other = program.lane();
        kept.iter().for_each(|block| program.use_on(block, other));
        let addresses: Vec<u64> = kept.iter().map(|block| block.address).collect();
        let large = program.allocate(lane, rest(&kept));
        assert!(moves(&program) > 0);
        program.check();
        kept.iter().for_each(|block| program.use_on(block, other));
        assert!(kept.iter().map(|block| block.address).eq(addresses));
        program.free(large);
        kept.into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

#[test]
fn nothing_moves_while_there_is_room_or_where_it_would_not_do() {
    let (program, _) = closed(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    let before = moves(&program);
    let error = refused(&program, lane, rest(&kept) + 2 * MIB);
    assert_eq!((moves(&program), error.stays), (before, None));
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn memory_stays_where_streams_may_use_it_that_nobody_told_of() {
    let (program, _) = program(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    let error = refused(&program, lane, rest(&kept));
    assert_eq!((moves(&program), error.stays), (0, Some(Stays::UnknownStreams)));
    assert!(matches!(error.cause(), Cause::Pieces(_)), "{:?}", error.cause());
    assert!(error.to_string().contains("streams may use it that Drystone does not know"));
    // All are known, but one may be gone.
    program.allocator.know_all_streams(|_, run| run(Vec::new()));
    let passing = program.passing_lane();
    assert_eq!(refused(&program, lane, rest(&kept)).stays, Some(Stays::UnknownStreams));
    program.allocator.retire_stream(passing.id).unwrap();
    let large = program.allocate(lane, rest(&kept));
    program.free(large);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn nothing_moves_where_the_options_say_so() {
    let device = SimDevice::new(SimConfig { total_bytes: TOTAL, ..watched() });
    let options = VMM_2MIB.options().with_prefer(Prefer::Balanced).without_remaps();
    let program = Program::new(Arc::new(device), options);
    program.allocator.know_all_streams(|_, run| run(Vec::new()));
    let kept = sparse(&program, program.lane());
    let error = refused(&program, program.lane(), rest(&kept));
    assert_eq!(error.stays, Some(Stays::Off));
    assert!(error.to_string().contains("remap:off"), "{error}");
    program.allocator.compact(Duration::from_secs(1)).unwrap();
    assert_eq!(moves(&program), 0);
}

#[test]
fn by_hand_memory_moves_all_the_same_and_a_trim_gives_it_back() {
    let (program, device) = program(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    program.allocator.trim().unwrap();
    let compacted = program.allocator.compact(Duration::from_secs(1)).unwrap();
    assert!(compacted.moves > 0 && compacted.moved_bytes > 0);
    program.allocator.trim().unwrap();
    assert_eq!(TOTAL - device.physical_bytes(), rest(&kept));
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn a_trim_leaves_what_live_blocks_touch() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    program.allocator.trim().unwrap();
    assert_eq!(TOTAL - device.physical_bytes(), rest(&kept));
    assert_eq!(program.reserved(), device.physical_bytes());
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn i16_what_is_pinned_or_shared_stays() {
    for is_pinned in [true, false] {
        let (program, _) = closed(watched());
        let lane = program.lane();
        let kept = sparse(&program, lane);
        let mut exported = Vec::new();
        for block in &kept {
            match is_pinned {
                true => program.allocator.pin_mapping(block.address).unwrap(),
                false => exported.push(program.allocator.export(block.address).unwrap()),
            }
        }
        refused(&program, lane, rest(&kept));
        assert_eq!(moves(&program), 0);
        for block in &kept {
            if is_pinned {
                program.allocator.unpin_mapping(block.address).unwrap();
            }
        }
        drop(exported);
        if is_pinned {
            let large = program.allocate(lane, rest(&kept));
            program.free(large);
        }
        kept.into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

/// Who is told that memory goes may pin it: then it stays. Who pins it once it is there has it
/// there from then on.
#[test]
fn i16_a_callback_keeps_what_was_about_to_move() {
    for pins_when_backed in [false, true] {
        let pins = Arc::new(AtomicU64::new(0));
        let (program, _) = closed(watched());
        let lane = program.lane();
        let kept = sparse(&program, lane);
        let (address, weak, seen) = (kept[0].address, program.allocator.clone(), Arc::clone(&pins));
        let callback = move |change: &MappingChange| {
            let is_ours = (change.address..change.address + change.bytes).contains(&address);
            let is_meant = change.is_backed == pins_when_backed && is_ours;
            if is_meant && seen.fetch_add(1, Ordering::Relaxed) == 0 {
                weak.pin_mapping(address).unwrap();
            }
        };
        program.allocator.on_remap(Arc::new(callback)).unwrap();
        // The others move, or none; that one does not.
        let _ = program.try_allocate(lane, rest(&kept)).map(|block| program.free(block));
        program.check();
        assert!(pins.load(Ordering::Relaxed) > 0);
        program.allocator.unpin_mapping(address).unwrap();
        kept.into_iter().for_each(|block| program.free(block));
        let Program { allocator, device, .. } = program;
        allocator.trim().unwrap();
        device.verdict().unwrap();
    }
}

#[test]
fn i11_nothing_moves_while_anything_is_captured() {
    let (program, device) = closed(watched());
    let (lane, captured) = (program.lane(), program.lane());
    let kept = sparse(&program, lane);
    device.begin_capture(captured.stream, CaptureMode::Relaxed).unwrap();
    let error = refused(&program, lane, rest(&kept));
    assert_eq!((moves(&program), error.stays), (0, Some(Stays::Capture)));
    device.end_capture(captured.stream).unwrap();
    let large = program.allocate(lane, rest(&kept));
    program.free(large);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn memory_of_private_pools_stays() {
    let (program, _) = closed(watched());
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    let mut blocks = Vec::new();
    while let Ok(block) = program.try_allocate_in(pool, lane, 3 * MIB) {
        blocks.push(block);
    }
    let (kept, freed): (Vec<_>, Vec<_>) =
        blocks.into_iter().enumerate().partition(|(at, _)| at % 16 == 7);
    freed.into_iter().for_each(|(_, block)| program.free(block));
    refused(&program, lane, 64 * MIB);
    assert_eq!(moves(&program), 0);
    assert_ne!(pool, PoolId::DEFAULT);
    kept.into_iter().for_each(|(_, block)| program.free(block));
    program.allocator.release_pool(pool).unwrap();
    program.end();
}

/// A stream that is told of, and not known otherwise, is held, too.
#[test]
fn streams_of_others_are_held() {
    static OTHER: AtomicU64 = AtomicU64::new(0);
    let (program, device) = program(watched());
    let lane = program.lane();
    let other = device.create_stream();
    OTHER.store(other.0, Ordering::Relaxed);
    program.allocator.know_all_streams(|_, run| run(vec![Stream(OTHER.load(Ordering::Relaxed))]));
    let kept = sparse(&program, lane);
    // It is at work for longer than streams are waited for, behind the wait for the device.
    let large = program.allocate(lane, rest(&kept));
    assert!(moves(&program) > 0);
    program.free(large);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Through cudarc, with a thread that launches on a stream of its own all the time: its kernels
/// find the bytes that the ones before have left.
#[test]
fn memory_moves_under_a_thread_that_launches() {
    CUDA_VMM.run(|setup| {
        for conf in ["memory:2GiB", "memory:2GiB,event_latency_us:20,calls_take_time:true"] {
            let device = simcuda::device_with(conf);
            let options = setup.options().with_prefer(Prefer::Balanced);
            let program = Program::new(Arc::clone(&device) as _, options);
            program.allocator.know_all_streams(|_, run| run(Vec::new()));
            let (lane, other) = (program.lane(), program.lane());
            let kept = sparse(&program, lane);
            kept.iter().for_each(|block| program.use_on(block, other));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for block in kept.iter().cycle() {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        program.device.used(block.address, other.stream);
                    }
                });
                for _ in 0..3 {
                    let large = program.allocate(lane, rest(&kept));
                    program.free(large);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            assert!(moves(&program) > 0);
            kept.into_iter().for_each(|block| program.free(block));
            program.end();
        }
    });
}

/// The calls that a move makes, or what goes before it.
pub const CALLS: [Call; 10] = [
    Call::Reserve,
    Call::Create,
    Call::Map,
    Call::SetAccess,
    Call::Hold,
    Call::Copy,
    Call::FinishCopies,
    Call::Unmap,
    Call::Release,
    Call::Unreserve,
];

/// A program that keeps these blocks, and a request that nothing but moves serve.
type Kept = (Vec<Block>, u64);

/// One in which little is left, so that what moves has to be given back.
fn with_little_left(program: &Program, lane: Lane) -> Kept {
    let beside = program.allocate(lane, 64 * MIB);
    let mut kept = sparse(program, lane);
    let large_bytes = rest(&kept) - beside.bytes;
    kept.push(beside);
    (kept, large_bytes)
}

/// Runs a program under faults. Whether all have struck.
pub fn fails(scene: fn(&Program, Lane) -> Kept, faults: &[(Call, u64)], code: ErrorCode) -> bool {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let (kept, large) = scene(&program, lane);
    for &(call, nth) in faults {
        device.install_fault(FaultPlan { call, nth, mode: FaultMode::Once, code });
    }
    let served = program.try_allocate(lane, large);
    let has_struck = device.faults_fired() >= faults.len() as u64;
    device.clear_faults();
    program.check();
    if let Ok(block) = served {
        program.free(block);
    }
    // What failed is done the next time: at the latest after a pause, the second twice as long.
    std::thread::sleep(Duration::from_millis(if faults.len() == 1 { 11 } else { 21 }));
    let block = program.allocate(lane, large);
    assert!(moves(&program) > 0);
    program.free(block);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
    has_struck
}

#[test]
fn p4_no_byte_is_lost_whatever_call_fails() {
    for call in CALLS {
        for code in [ErrorCode::OutOfMemory, ErrorCode::InvalidHandle] {
            // The first ones, and some of all.
            let struck = (1..12).chain((12..).step_by(17));
            let struck =
                struck.take_while(|&nth| fails(with_little_left, &[(call, nth)], code)).count();
            let is_made = !matches!(call, Call::Unreserve);
            assert!(struck > 0 || !is_made, "{call:?} is never made");
        }
    }
}

#[test]
fn p4_no_byte_is_lost_whatever_two_calls_fail() {
    for first in CALLS {
        for second in CALLS {
            for nth in [(1, 1), (1, 2), (2, 1), (3, 3)] {
                let faults = [(first, nth.0), (second, nth.1)];
                fails(with_little_left, &faults, ErrorCode::OutOfMemory);
            }
        }
    }
}

/// They stand behind a stream that is held: held again at once, it would be in their way again.
#[test]
fn copies_that_are_not_in_time_are_a_reason_to_leave_streams_alone() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    let (call, code) = (Call::FinishCopies, ErrorCode::NotReady);
    device.install_fault(FaultPlan { call, nth: 1, mode: FaultMode::Once, code });
    let error = refused(&program, lane, rest(&kept));
    assert_eq!((moves(&program), error.stays), (0, Some(Stays::BusyStreams)));
    std::thread::sleep(Duration::from_millis(11));
    let block = program.allocate(lane, rest(&kept));
    program.free(block);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Whoever was at work then is not any more.
#[test]
fn streams_that_were_at_work_are_held_again_once_the_device_was_waited_for() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let kept = sparse(&program, lane);
    let (call, code) = (Call::Hold, ErrorCode::NotReady);
    device.install_fault(FaultPlan { call, nth: 1, mode: FaultMode::Once, code });
    program.allocator.compact(Duration::from_secs(1)).unwrap();
    assert_eq!(moves(&program), 0);
    // At once, not after a pause.
    let block = program.allocate(lane, rest(&kept));
    assert!(moves(&program) > 0);
    program.free(block);
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

/// Only where both the new and the old memory are refused again and again.
#[test]
fn p9_an_allocator_whose_memory_is_lost_says_so_and_gives_none_any_more() {
    let mut has_lost = false;
    for nth in 1..40 {
        let (program, device) = closed(SimConfig { oracle: false, ..watched() });
        let lane = program.lane();
        let kept = sparse(&program, lane);
        let (mode, code) = (FaultMode::Forever, ErrorCode::InvalidValue);
        device.install_fault(FaultPlan { call: Call::Map, nth, mode, code });
        let try_it = AssertUnwindSafe(|| program.try_allocate(lane, rest(&kept)).map(drop));
        let served = catch_unwind(try_it);
        device.clear_faults();
        if matches!(served, Ok(Ok(()))) {
            break;
        }
        if let Err(error) = program.try_allocate(lane, 512) {
            assert!(error.to_string().contains("defect"), "{error}");
            has_lost = true;
        }
        std::mem::forget((program, kept));
    }
    assert!(has_lost, "nothing was lost");
}
