//! Giving memory back for somebody whom the device refused some, and who may hold any lock.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use drystone::driver::{CaptureMode, Driver, DriverError};
use drystone::{Effort, MappingChange};
use drystone_sim::{SimConfig, SimDevice};

use crate::altered::{Alteration, Altered};
use crate::program::{Lane, Program};
use crate::setup::{SOURCES, VMM_2MIB};
use crate::sim::{MIB, watched};

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
/// A thread that is let go late is late by this much at most.
const LATE: Duration = Duration::from_secs(20);

fn cache(program: &Program, lane: Lane, bytes: u64) {
    let blocks: Vec<_> = (0..10).map(|_| program.allocate(lane, bytes / 10)).collect();
    blocks.into_iter().for_each(|block| program.free(block));
}

/// However free the growth lock is.
#[test]
fn what_is_given_ends_with_the_patience() {
    let program = Program::new(Arc::new(SimDevice::new(watched())), VMM_2MIB.options());
    let lane = program.default_lane();
    cache(&program, lane, 2000 * MIB);
    let before = program.reserved();
    let given = program.allocator.give_to_neighbours(u64::MAX, false, Duration::ZERO).bytes;
    assert!(given < before / 2, "{given} of {before}");
}

#[test]
fn no_more_is_given_back_than_is_wanted_and_a_handle() {
    let device = SimDevice::new(SimConfig { check_kernel_ns: 50_000, ..watched() });
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let lane = program.default_lane();
    cache(&program, lane, 400 * MIB);
    let (before, allocator) = (program.reserved(), &program.allocator);
    let syncs = device.calls_of(drystone::driver::Call::SynchronizeDevice);
    assert_eq!(allocator.give_back(MIB, Effort::Known, LONG), 0, "kernels may be running");
    assert_eq!(device.calls_of(drystone::driver::Call::SynchronizeDevice), syncs);
    let given = allocator.give_back(8 * MIB, Effort::Idle, LONG);
    assert!((8 * MIB..=32 * MIB).contains(&given), "{given}");
    assert_eq!(program.reserved(), before - given);
    // Now all is known.
    let more = allocator.give_back(8 * MIB, Effort::Known, LONG);
    assert!((8 * MIB..=32 * MIB).contains(&more), "{more}");
    assert_eq!(allocator.give_back(u64::MAX, Effort::Known, LONG), before - given - more);
    program.end();
}

#[test]
fn everything_unused_can_be_had_of_each_source() {
    for setup in SOURCES {
        let program = Program::new((setup.device)(), setup.options());
        let lane = program.default_lane();
        let kept = program.allocate(lane, 5 * MIB);
        cache(&program, lane, 400 * MIB);
        let before = program.reserved();
        let given = program.allocator.give_back(u64::MAX, Effort::Moves, LONG);
        assert!(given >= before - 64 * MIB, "{given} of {before}");
        program.free(kept);
        program.end();
    }
}

#[test]
fn i11_while_a_stream_is_captured_nothing_is_given_back() {
    let device = SimDevice::new(watched());
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let (lane, captured) = (program.default_lane(), program.lane());
    cache(&program, lane, 40 * MIB);
    device.begin_capture(captured.stream, CaptureMode::Relaxed).unwrap();
    for effort in [Effort::Known, Effort::Idle, Effort::Moves] {
        assert_eq!(program.allocator.give_back(MIB, effort, LONG), 0);
    }
    device.end_capture(captured.stream).unwrap();
    assert!(program.allocator.give_back(MIB, Effort::Idle, LONG) > 0);
    program.end();
}

#[test]
fn i14_who_is_called_while_memory_moves_gets_nothing_at_once() {
    let program = Program::new(Arc::new(SimDevice::new(watched())), VMM_2MIB.options());
    let lane = program.default_lane();
    cache(&program, lane, 40 * MIB);
    let given = Arc::new(Mutex::new(Vec::new()));
    let within = Arc::new(Mutex::new(Some(program.allocator.clone())));
    let (told, asked) = (Arc::clone(&given), Arc::clone(&within));
    let note = move |_: &MappingChange| {
        let asked = asked.lock().unwrap();
        let given = asked.as_ref().map(|one| one.give_back(MIB, Effort::Moves, LONG));
        told.lock().unwrap().extend(given);
    };
    program.allocator.on_remap(Arc::new(note)).unwrap();
    let begun = Instant::now();
    let block = program.allocate(lane, 100 * MIB);
    assert!(begun.elapsed() < LONG / 2);
    let given = given.lock().unwrap().clone();
    assert!(!given.is_empty() && given.iter().all(|&bytes| bytes == 0), "{given:?}");
    *within.lock().unwrap() = None;
    program.free(block);
    program.end();
}

/// A thread grows, and is told of it by code that waits for a lock of the caller's, as NCCL's.
#[test]
fn i14_a_growth_that_waits_for_the_caller_is_not_waited_for() {
    let program = Program::new(Arc::new(SimDevice::new(watched())), VMM_2MIB.options());
    let lane = program.default_lane();
    cache(&program, lane, 40 * MIB);
    let (lock, (tell, told)) = (Arc::new(Mutex::new(())), mpsc::channel());
    let theirs = Arc::clone(&lock);
    let note = move |_: &MappingChange| {
        let _ = tell.send(());
        drop(theirs.lock().unwrap());
    };
    program.allocator.on_remap(Arc::new(note)).unwrap();
    let held = lock.lock().unwrap();
    thread::scope(|scope| {
        let grows = scope.spawn(|| program.allocate(lane, 100 * MIB));
        told.recv().unwrap();
        for effort in [Effort::Known, Effort::Idle] {
            let begun = Instant::now();
            assert_eq!(program.allocator.give_back(MIB, effort, SHORT), 0);
            assert!(begun.elapsed() < LATE);
        }
        drop(held);
        program.free(grows.join().unwrap());
    });
    assert!(program.allocator.give_back(MIB, Effort::Idle, LONG) > 0);
    program.end();
}

/// A device that is busy until it is let go: with work that waits for the caller.
struct Busy(Arc<Mutex<()>>);

impl Alteration for Busy {
    fn synchronize_device(&self) -> Option<Result<(), DriverError>> {
        drop(self.0.lock().unwrap());
        None
    }

    fn query(&self) -> Option<Result<bool, DriverError>> {
        self.0.try_lock().is_err().then_some(Ok(false))
    }
}

#[test]
fn i14_a_device_that_waits_for_the_caller_is_not_waited_for() {
    let (device, work) = (SimDevice::new(watched()), Arc::new(Mutex::new(())));
    let inner: Arc<dyn Driver> = Arc::new(device.clone());
    let driver = Arc::new(Altered { inner, alteration: Busy(Arc::clone(&work)) });
    let program = Program::with_driver(Arc::new(device), driver, VMM_2MIB.options());
    let lane = program.default_lane();
    cache(&program, lane, 40 * MIB);
    let running = work.lock().unwrap();
    // Neither its fences nor the device are waited for longer.
    for _ in 0..2 {
        let begun = Instant::now();
        assert_eq!(program.allocator.give_back(MIB, Effort::Idle, SHORT), 0);
        assert!(begun.elapsed() < LATE);
    }
    drop(running);
    assert!(program.allocator.give_back(MIB, Effort::Idle, LONG) > 0);
    program.end();
}
