//! Fault sweep: in every scenario, on every source, the n-th call of every driver method fails,
//! for n = 1, 2, ... until the scenario completes without the fault. Once, and the same request
//! made again at once must succeed; and forever, and it must succeed when the fault has cleared
//! (P4). Every invariant holds after every step, nothing illegal is done, nothing is left (I15).
//! Covers B8, B16, B23, B48, B49, B57.

mod libcuda;
mod scenarios;
mod script;

use std::sync::Arc;

use drystone::driver::{Call, Driver, ErrorCode, Stream};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};

use crate::device::{Fault, FaultyDevice};
use crate::program::Program;
use crate::setup::{ASYNC, MALLOC, SOURCES, Setup, VMM_2MIB, VMM_8MIB};
use crate::sim::{MIB, watched};
use scenarios::{SCENARIOS, Scenario};
use script::Script;

const CODES: [ErrorCode; 5] = [
    ErrorCode::OutOfMemory,
    ErrorCode::InvalidValue,
    ErrorCode::InvalidHandle,
    ErrorCode::CapturedEvent,
    ErrorCode::Deinitialized,
];

/// Out of memory is dealt with, everything else is passed on: no need for every code in both modes.
const FAULTS: [(FaultMode, ErrorCode); 5] = [
    (FaultMode::Once, ErrorCode::OutOfMemory),
    (FaultMode::Forever, ErrorCode::OutOfMemory),
    (FaultMode::Once, ErrorCode::InvalidHandle),
    (FaultMode::Forever, ErrorCode::CapturedEvent),
    (FaultMode::Forever, ErrorCode::Deinitialized),
];

/// Makes the device of a run.
type Make = fn() -> Arc<dyn FaultyDevice>;

fn device() -> SimDevice {
    SimDevice::new(SimConfig { total_bytes: 128 * MIB, event_latency_ns: 10_000, ..watched() })
}

fn simulated() -> Arc<dyn FaultyDevice> {
    Arc::new(device())
}

fn program(device: Arc<dyn FaultyDevice>, setup: &Setup, scenario: &Scenario) -> Program {
    let mut options = setup.options();
    options.limit_bytes = scenario.limit_bytes;
    Program::new(device, options)
}

/// Runs a scenario with a fault, or none. Returns how often it struck.
fn run(make: Make, setup: &Setup, scenario: &Scenario, fault: Option<Fault>) -> u64 {
    let device = make();
    let program = program(Arc::clone(&device), setup, scenario);
    let mut script = Script::new(&program, &*device, fault);
    (scenario.steps)(&mut script);
    let fired = script.end();
    program.end();
    fired
}

/// Runs a scenario for n = 1, 2, ... until the fault no longer strikes. Returns how often it did.
fn run_for_each_n(make: Make, setup: &Setup, scenario: &Scenario, fault: Fault) -> u64 {
    let mut struck = 0;
    for nth in 1.. {
        let fault = Fault { nth, ..fault };
        let result = std::panic::catch_unwind(|| run(make, setup, scenario, Some(fault)));
        match result {
            Ok(0) => break,
            Ok(fired) => struck += fired,
            Err(_) => panic!("`{}`, {fault:?}: see the panic above", scenario.name),
        }
    }
    struck
}

fn sweep(setup: &Setup) {
    for scenario in &SCENARIOS {
        assert_eq!(run(simulated, setup, scenario, None), 0);
        for call in Call::ALL {
            for (mode, code) in FAULTS {
                let function = call.cuda_name();
                let fault = Fault { function, call: Some(call), nth: 1, mode, code };
                run_for_each_n(simulated, setup, scenario, fault);
            }
        }
    }
}

#[test]
fn p4_every_call_may_fail_vmm_2mib() {
    sweep(&VMM_2MIB);
}

#[test]
fn p4_every_call_may_fail_vmm_8mib() {
    sweep(&VMM_8MIB);
}

#[test]
fn p4_every_call_may_fail_malloc() {
    sweep(&MALLOC);
}

#[test]
fn p4_every_call_may_fail_async() {
    sweep(&ASYNC);
}

/// The sweep is worth something only if each method is called by some scenario.
#[test]
fn every_method_the_library_calls_is_swept() {
    let mut missed = Call::ALL.to_vec();
    for setup in &SOURCES {
        for scenario in &SCENARIOS {
            let sim = device();
            let program = program(Arc::new(sim.clone()), setup, scenario);
            let mut script = Script::new(&program, &sim, None);
            (scenario.steps)(&mut script);
            script.end();
            program.end();
            missed.retain(|&call| sim.calls_of(call) == 0);
        }
    }
    // Who waits for a stream is no allocator; `peers` lets others in; `moves` and `by_host` have
    // their own sweeps.
    missed.retain(|call| ![Call::SynchronizeStream, Call::EnablePeerAccess].contains(call));
    assert_eq!(missed, [Call::CreateOnHost, Call::Hold, Call::Copy, Call::FinishCopies]);
}

/// B57: whatever fails when the allocator goes, nothing panics; and where nothing can succeed any
/// more, nothing more is tried.
#[test]
fn b57_teardown_bears_every_fault() {
    for setup in &SOURCES {
        for (call, code) in Call::ALL.into_iter().flat_map(|call| CODES.map(|code| (call, code))) {
            let sim = device();
            let program = program(Arc::new(sim.clone()), setup, &SCENARIOS[0]);
            let (lane, other) = (program.lane(), program.lane());
            let blocks = [700, 12 * MIB, 30 * MIB].map(|bytes| program.allocate(lane, bytes));
            blocks.iter().for_each(|block| program.use_on(block, other));
            blocks.into_iter().for_each(|block| program.free(block));
            sim.install_fault(FaultPlan { call, nth: 1, mode: FaultMode::Forever, code });
            drop(program);
            let fired = sim.faults_fired();
            assert!(code != ErrorCode::Deinitialized || fired <= 1, "{call:?}: {fired} tries");
            assert_eq!(sim.violations(), [], "{call:?}, {code:?}");
            sim.clear_faults();
            assert!(sim.stream_uid(Stream::DEFAULT).is_ok());
        }
    }
}
