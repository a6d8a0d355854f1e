//! What only a simulated device can be made to do: run out of memory, addresses and mappings, end
//! under the allocator's feet, and look at the allocator from within a driver call.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use drystone::driver::{Call, CaptureMode, Driver, ErrorCode};
use drystone::{AllocateError, Allocator, Backend, CrossStream, OutOfMemory};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice, Violation};

use crate::altered::{Alteration, Altered};
use crate::device::TestDevice;
use crate::program::{Block, Lane, Program};
use crate::setup::{SOURCES, Setup, VMM_2MIB};
use crate::sim::{MIB, watched};

/// Runs a test on every backend, on a device of this configuration.
fn on_every_source(config: &SimConfig, test: fn(&SimDevice, Program, &Setup)) {
    for setup in &SOURCES {
        let sim = SimDevice::new(config.clone());
        test(&sim, Program::new(Arc::new(sim.clone()), setup.options()), setup);
    }
}

fn out_of_memory(program: &Program, lane: Lane, bytes: u64) -> OutOfMemory {
    match program.try_allocate(lane, bytes).unwrap_err() {
        AllocateError::OutOfMemory(error) => *error,
        error => panic!("{error}"),
    }
}

#[test]
fn b28_b30_a_full_device_serves_what_pending_and_cached_memory_allow() {
    let config = SimConfig { total_bytes: 128 * MIB, ..watched() };
    on_every_source(&config, |_, program, _| {
        let (lane, other) = (program.lane(), program.lane());
        for (one, two) in [(lane, other), (other, lane)] {
            let blocks = [program.allocate(one, 64 * MIB), program.allocate(two, 64 * MIB)];
            program.use_on(&blocks[0], two);
            program.device.work(two.stream, 5000);
            program.device.work(one.stream, 5000);
            blocks.into_iter().for_each(|block| program.free(block));
            let whole = program.allocate(one, 128 * MIB);
            program.check();
            program.free(whole);
        }
        program.end();
    });
}

/// Each rung costs more than the one before: none is climbed without need.
#[test]
fn memory_that_is_pending_is_waited_for_before_any_is_given_back() {
    let config = SimConfig { total_bytes: 128 * MIB, ..watched() };
    on_every_source(&config, |sim, program, _| {
        let (lane, other) = (program.lane(), program.lane());
        let block = program.allocate(lane, 128 * MIB);
        program.use_on(&block, other);
        program.device.work(other.stream, 5000);
        program.free(block);
        let again = program.allocate(lane, 128 * MIB);
        let costly = [Call::SynchronizeDevice, Call::Unmap, Call::Free];
        assert_eq!(costly.map(|call| sim.calls_of(call)), [0; 3]);
        program.free(again);
        program.end();
    });
}

#[test]
fn memory_known_to_be_unused_is_given_back_before_the_device_is_waited_for() {
    for setup in &SOURCES {
        let sim = SimDevice::new(SimConfig { total_bytes: 128 * MIB, ..watched() });
        let options = setup.options().with_cross_stream(CrossStream::Never);
        let program = Program::new(Arc::new(sim.clone()), options);
        let (gone, lane, slow) = (program.lane(), program.lane(), program.lane());
        let cached = program.allocate(gone, 64 * MIB);
        program.free(cached);
        program.allocator.retire_stream(gone.id).unwrap();
        let another = program.allocate(lane, 64 * MIB);
        program.device.work(slow.stream, 60_000_000);
        let block = program.allocate(lane, 64 * MIB);
        // The driver's own pools give nothing back before the host has waited for something.
        let waits = u64::from(!setup.is_caching());
        assert_eq!(sim.calls_of(Call::SynchronizeDevice), waits);
        [another, block].into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

#[test]
fn out_of_memory_names_the_drivers_refusal_and_smaller_requests_work() {
    let config = SimConfig { total_bytes: 128 * MIB, ..watched() };
    on_every_source(&config, |sim, program, setup| {
        let lane = program.lane();
        let kept = program.allocate(lane, 96 * MIB);
        let (kept_calls, error) = (sim.calls(), out_of_memory(&program, lane, 40 * MIB));
        assert_eq!(error.device_free_bytes, Some(32 * MIB));
        assert!(error.to_string().contains("of which 32.00 MiB is free"), "{error}");
        assert!(error.to_string().contains("Use a smaller batch"), "{error}");
        assert_eq!(sim.physical_bytes(), 96 * MIB, "what was got in vain is given back");
        if setup.backend == Backend::Vmm {
            assert_eq!(
                (sim.calls(), error.refusal),
                (kept_calls, None),
                "what is known is not tried"
            );
        }
        // Even the question for the figures may fail (B32): then the driver is asked.
        let (call, mode, code) = (Call::MemoryInfo, FaultMode::Forever, ErrorCode::Other(999));
        sim.install_fault(FaultPlan { call, nth: 1, mode, code });
        let error = out_of_memory(&program, lane, 40 * MIB);
        let call = match setup.backend {
            Backend::Vmm => Call::Create,
            Backend::Malloc => Call::Malloc,
            _ => Call::MallocAsync,
        };
        let refusal = error.refusal.as_ref().unwrap();
        assert_eq!((refusal.call, refusal.code), (call, ErrorCode::OutOfMemory));
        assert_eq!(error.device_free_bytes, None);
        assert!(error.to_string().contains(&format!("The driver: {refusal}.")), "{error}");
        let smaller = program.allocate(lane, 32 * MIB);
        [kept, smaller].into_iter().for_each(|block| program.free(block));
        program.end();
    });
}

#[test]
fn b53_a_small_address_space_costs_generosity_not_service() {
    // Less than one generous reservation.
    let config = SimConfig { total_bytes: 512 * MIB, address_space_bytes: 400 * MIB, ..watched() };
    on_every_source(&config, |sim, program, _| {
        let lanes = [program.lane(), program.lane(), program.lane()];
        let first = program.allocate(lanes[0], 48 * MIB);
        assert_eq!(sim.calls_of(Call::SynchronizeDevice), 0, "asking for less is all it takes");
        program.free(first);
        for round in 0..3 {
            let mut blocks = Vec::new();
            for lane in lanes {
                blocks.push(program.allocate(lane, 48 * MIB));
                blocks.push(program.allocate(lane, 700));
            }
            program.check();
            blocks.into_iter().for_each(|block| program.free(block));
            // Addresses are given back for others, too: most of them in one piece.
            let large = program.allocate(lanes[round], 320 * MIB);
            program.free(large);
        }
        let error = out_of_memory(&program, lanes[0], 408 * MIB);
        assert!(error.refusal.is_some_and(|refusal| refusal.code == ErrorCode::OutOfMemory));
        program.end();
    });
}

#[test]
fn the_limit_of_mappings_is_a_lack_of_memory() {
    let config = SimConfig { total_bytes: 512 * MIB, mapping_limit: 32, ..watched() };
    let sim = SimDevice::new(config);
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
    let (lane, other) = (program.lane(), program.lane());
    let kept = program.allocate(lane, 32 * MIB);
    let cached = program.allocate(other, 32 * MIB);
    program.free(cached);
    let error = out_of_memory(&program, lane, 34 * MIB);
    assert_eq!(error.refusal.unwrap().call, Call::SetAccess);
    // What was cached was unmapped on the way.
    let block = program.allocate(lane, 32 * MIB);
    [kept, block].into_iter().for_each(|block| program.free(block));
    let whole = program.allocate(other, 64 * MIB);
    program.free(whole);
    program.end();
}

type End = fn(&SimDevice);

#[test]
fn b55_b56_after_the_end_hits_work_and_nothing_hangs() {
    let ends: [(End, ErrorCode); 3] = [
        (SimDevice::begin_exit, ErrorCode::Deinitialized),
        (SimDevice::become_forked_child, ErrorCode::NotInitialized),
        (SimDevice::lose_context, ErrorCode::ContextLost),
    ];
    for (setup, (end, code)) in SOURCES.iter().flat_map(|setup| ends.map(|end| (setup, end))) {
        let sim = SimDevice::new(watched());
        let eve = Eve::new(setup, Program::new(Arc::new(sim.clone()), setup.options()));
        end(&sim);
        eve.frees_and_hits();
        assert!(sim.violations().is_empty() || !setup.is_caching());
        let allocator = eve.bears(code);
        let calls = Call::ALL.map(|call| sim.calls_of(call)).iter().sum::<u64>();
        drop(allocator);
        let last = Call::ALL.map(|call| sim.calls_of(call)).iter().sum::<u64>() - calls;
        assert!(last <= 1, "{last} calls from a drop that cannot succeed");
        let illegal = |found: &Violation| !matches!(found, Violation::CallAfterEnd { .. });
        assert!(!sim.violations().iter().any(illegal), "{:?}", sim.violations());
    }
}

/// The first miss finds out; from then on the driver is not called, and hits are refused.
#[test]
fn after_a_reset_no_old_memory_is_handed_out() {
    for setup in &SOURCES {
        let sim = SimDevice::new(watched());
        let program = Program::new(Arc::new(sim.clone()), setup.options());
        let (lane, other) = (program.lane(), program.lane());
        let [hit, used, kept] = [3 * MIB, 5 * MIB, 30 * MIB].map(|b| program.allocate(lane, b));
        program.use_on(&used, other);
        program.free(hit);
        let allocator = program.allocator;
        sim.reset();
        for bytes in [300 * MIB, 3 * MIB, 3 * MIB] {
            match allocator.allocate(lane.id, bytes).unwrap_err() {
                AllocateError::Driver { error, .. } => {
                    assert_eq!(error.code, ErrorCode::DeviceReset);
                    assert!(error.to_string().contains("the device was reset"), "{error}");
                }
                error => panic!("{error}"),
            }
        }
        assert_eq!(allocator.trim().unwrap_err().error.code, ErrorCode::DeviceReset);
        assert_eq!(allocator.add_stream(lane.stream).unwrap_err().code, ErrorCode::DeviceReset);
        [used, kept].iter().for_each(|block| allocator.free(block.address).unwrap());
        allocator.check().unwrap();
        drop(allocator);
        assert_eq!(sim.violations(), []);
    }
}

/// An allocator with all that it may have when the driver ends.
pub struct Eve {
    setup: Setup,
    allocator: Allocator,
    lane: Lane,
    other: Lane,
    hit: Block,
    used: Block,
    kept: Block,
    /// Not another test's before this is over.
    _device: Arc<dyn TestDevice>,
}

impl Eve {
    pub fn new(setup: &Setup, program: Program) -> Self {
        let (lane, other) = (program.lane(), program.lane());
        let [hit, used, kept] = [3 * MIB, 5 * MIB, 30 * MIB].map(|b| program.allocate(lane, b));
        program.use_on(&used, other);
        let Program { device, allocator, .. } = program;
        Self { setup: *setup, _device: device, allocator, lane, other, hit, used, kept }
    }

    /// Before the end everything works.
    pub fn is_served(&self) -> bool {
        let is_served = self.allocator.allocate(self.lane.id, 300 * MIB).is_ok();
        is_served && self.allocator.trim().is_ok()
    }

    /// Hits and plain frees make no driver call. Where the driver does the caching there are no
    /// hits, and what is freed stays where it is.
    pub fn frees_and_hits(&self) {
        self.allocator.free(self.hit.address).unwrap();
        let hit = self.allocator.allocate(self.lane.id, 3 * MIB);
        assert_eq!(hit.is_ok(), self.setup.is_caching());
    }

    /// A miss says what has happened, a free with uses keeps its block out of the way.
    pub fn bears(self, code: ErrorCode) -> Allocator {
        let Self { allocator, lane, other, used, kept, .. } = self;
        match allocator.allocate(lane.id, 300 * MIB).unwrap_err() {
            AllocateError::Driver { error, bytes } => {
                assert_eq!((error.code, bytes), (code, 300 * MIB));
            }
            error => panic!("{error}"),
        }
        allocator.free(used.address).unwrap();
        assert_eq!(allocator.stats().quarantined_bytes, used.bytes);
        assert!(allocator.trim().is_err() && allocator.add_stream(lane.stream).is_err());
        allocator.retire_stream(other.id).unwrap();
        allocator.check().unwrap();
        allocator.free(kept.address).unwrap();
        allocator
    }
}

/// Looks at the allocator from within every driver call: that hangs if the heap is locked.
#[derive(Default)]
struct Curious {
    allocator: Mutex<Option<Allocator>>,
    looks: Mutex<Vec<Call>>,
}

impl Alteration for Arc<Curious> {
    fn before(&self, call: Call) {
        let allocator = self.allocator.lock().unwrap().clone();
        if let Some(allocator) = allocator {
            allocator.stats();
            allocator.free(1).unwrap_err();
            self.looks.lock().unwrap().push(call);
        }
    }
}

#[test]
fn i14_b15_no_driver_call_is_made_with_the_heap_locked() {
    let (done, wait) = mpsc::channel();
    let worker = thread::spawn(move || {
        for setup in &SOURCES {
            look_from_every_call(setup);
        }
        done.send(()).unwrap();
    });
    if wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the heap was locked in a driver call, or the test is very slow");
    }
    worker.join().unwrap();
}

fn look_from_every_call(setup: &Setup) {
    let sim = SimDevice::new(SimConfig { total_bytes: 128 * MIB, ..watched() });
    let curious = Arc::new(Curious::default());
    let inner: Arc<dyn Driver> = Arc::new(sim.clone());
    let driver = Arc::new(Altered { inner, alteration: Arc::clone(&curious) });
    let program = Program::with_driver(Arc::new(sim.clone()), driver, setup.options());
    *curious.allocator.lock().unwrap() = Some(program.allocator.clone());
    let (lane, other) = (program.lane(), program.lane());
    let small = program.allocate(lane, 700);
    let used = program.allocate(lane, 60 * MIB);
    program.use_on(&used, other);
    program.device.work(other.stream, 1000);
    program.free(used);
    let large = program.allocate(lane, 92 * MIB);
    program.free(large);
    let crossed = program.allocate(other, 20 * MIB);
    out_of_memory(&program, other, 120 * MIB);
    [crossed, small].into_iter().for_each(|block| program.free(block));
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    let captured = program.allocate(lane, 3 * MIB);
    assert!(program.device.end_capture(lane.stream));
    program.free(captured);
    program.allocator.retire_stream(other.id).unwrap();
    program.allocator.trim().unwrap();
    program.check();
    *curious.allocator.lock().unwrap() = None;
    let looks = std::mem::take(&mut *curious.looks.lock().unwrap());
    for call in Call::ALL.into_iter().filter(|&call| sim.calls_of(call) > 0) {
        let is_teardown = call == Call::DestroyEvent;
        assert!(is_teardown || looks.contains(&call), "{call:?} was not looked from");
    }
    program.end();
}

#[test]
fn the_last_handle_gives_everything_back() {
    for setup in &SOURCES {
        let sim = SimDevice::new(watched());
        let program = Program::new(Arc::new(sim.clone()), setup.options());
        let lane = program.lane();
        let kept = program.allocate(lane, 12 * MIB);
        let freed = program.allocate(lane, 40 * MIB);
        program.free(freed);
        let used = program.allocate(lane, 700);
        program.use_on(&used, program.default_lane());
        program.free(used);
        drop(program);
        // A block that was never freed may still be in use: it alone stays.
        assert_eq!(sim.physical_bytes(), kept.bytes.next_multiple_of(setup.unit_bytes()));
        assert_eq!(sim.live_objects().events, 0);
        assert_eq!(sim.violations(), []);
    }
}
