//! A block that somebody takes for one allocation is one handle from then on, with its bytes behind
//! its addresses; or stays as it was, and that is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drystone::driver::{Call, CaptureMode, ErrorCode};
use drystone::{Behind, Prefer, SharedBy, Stays};
use drystone_sim::{FaultMode, FaultPlan, SimDevice};

use crate::moves::{CALLS, TOTAL, closed, moves};
use crate::program::{Block, Program};
use crate::setup::{CUDA_VMM, VMM_2MIB};
use crate::sim::{MIB, watched};
use crate::simcuda;

/// Blocks in several handles, of which the second begins and ends within one.
fn three(program: &Program) -> [Block; 3] {
    let lane = program.lane();
    [7, 64, 200].map(|size| program.allocate(lane, size * MIB))
}

fn ask(program: &Program, block: &Block) -> Behind {
    program.allocator.make_whole(block.address + block.bytes / 2).unwrap()
}

#[test]
fn each_block_is_one_handle_once_it_was_asked_for_and_stays_that() {
    let (program, _) = closed(watched());
    let blocks = three(&program);
    let other = program.lane();
    blocks.iter().for_each(|block| program.use_on(block, other));
    for block in &blocks {
        let behind = ask(&program, block);
        assert_eq!((behind.handles, behind.stays, behind.why()), (1, None, None));
        program.check();
    }
    assert_eq!(moves(&program), 1, "those that share granules go together");
    blocks.iter().for_each(|block| program.use_on(block, other));
    // What it took is given back.
    assert_eq!(program.reserved(), 272 * MIB);
    let shared = program.allocator.shared();
    let told: Vec<_> = shared.iter().map(|one| (one.by, one.handles, one.bytes)).collect();
    assert_eq!(told, [(SharedBy::Range, 1, 272 * MIB)]);
    program.allocator.compact(Duration::from_secs(1)).unwrap();
    assert_eq!(moves(&program), 1);
    blocks.into_iter().for_each(|block| program.free(block));
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}

#[test]
fn what_cannot_be_one_stays_as_it_is_and_why_is_told() {
    let (program, device) = closed(watched());
    let blocks = three(&program);
    let stays = |program: &Program| {
        let behind = ask(program, &blocks[2]);
        assert!(behind.handles > 1 && behind.why().is_some());
        behind.stays
    };
    let captured = program.lane();
    device.begin_capture(captured.stream, CaptureMode::Relaxed).unwrap();
    assert_eq!(stays(&program), Some(Stays::Capture));
    device.end_capture(captured.stream).unwrap();
    let passing = program.passing_lane();
    assert_eq!(stays(&program), Some(Stays::UnknownStreams));
    program.allocator.retire_stream(passing.id).unwrap();
    let (call, nth, mode) = (Call::Hold, 1, FaultMode::Once);
    device.install_fault(FaultPlan { call, nth, mode, code: ErrorCode::NotReady });
    assert_eq!(stays(&program), Some(Stays::BusyStreams));
    std::thread::sleep(Duration::from_millis(11));
    program.allocator.pin_mapping(blocks[2].address).unwrap();
    assert_eq!((stays(&program), moves(&program)), (None, 0));
    program.allocator.unpin_mapping(blocks[2].address).unwrap();
    assert!(program.allocator.make_whole(blocks[2].address + TOTAL).is_none());
    blocks.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn p4_no_byte_is_lost_whatever_call_fails() {
    for call in CALLS {
        let mut struck = 0;
        for nth in 1.. {
            let (program, device) = closed(watched());
            let blocks = three(&program);
            let code = ErrorCode::OutOfMemory;
            device.install_fault(FaultPlan { call, nth, mode: FaultMode::Once, code });
            let behind = ask(&program, &blocks[2]);
            let has_struck = device.faults_fired() > 0;
            device.clear_faults();
            program.check();
            assert!(has_struck || behind.handles == 1);
            // At the latest after a pause it is done.
            std::thread::sleep(Duration::from_millis(11));
            assert_eq!(ask(&program, &blocks[2]).handles, 1);
            program.check();
            blocks.into_iter().for_each(|block| program.free(block));
            program.end();
            if !has_struck {
                break;
            }
            struck += 1;
        }
        assert!(struck > 0, "{call:?} is never made");
    }
}

/// Through cudarc, with a thread that launches on a stream of its own all the time.
#[test]
fn a_block_becomes_one_under_a_thread_that_launches() {
    CUDA_VMM.run(|setup| {
        let device = simcuda::device_with("memory:2GiB");
        let options = setup.options().with_prefer(Prefer::Balanced);
        let program = Program::new(Arc::clone(&device) as _, options);
        program.allocator.know_all_streams(|_, run| run(Vec::new()));
        let blocks = three(&program);
        let other = program.lane();
        blocks.iter().for_each(|block| program.use_on(block, other));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in blocks.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    program.device.used(block.address, other.stream);
                }
            });
            let handles = blocks.each_ref().map(|block| ask(&program, block).handles);
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(handles, [1, 1, 1]);
        });
        blocks.into_iter().for_each(|block| program.free(block));
        program.end();
    });
}

#[test]
fn plain_memory_is_one_allocation_anyway() {
    let device = SimDevice::new(watched());
    let options = VMM_2MIB.options().with_backend(drystone::Backend::Malloc);
    let program = Program::new(Arc::new(device), options);
    let block = program.allocate(program.lane(), 64 * MIB);
    assert_eq!(program.allocator.make_whole(block.address), None);
    program.free(block);
    program.end();
}
