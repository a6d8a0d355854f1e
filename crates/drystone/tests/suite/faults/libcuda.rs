//! The same sweep below cudarc: each function of CUDA that the library calls fails inside the
//! simulated `libcuda`, by its name.

use std::collections::BTreeSet;

use super::{
    Arc, ErrorCode, Fault, FaultMode, FaultyDevice, MIB, SCENARIOS, Setup, run, run_for_each_n,
};
use crate::device::TestDevice;
use crate::program::Program;
use crate::setup::{CUDA_SOURCES, CUDA_VMM};
use crate::simcuda;

/// What a driver over cudarc calls once the device is open.
const FUNCTIONS: [&str; 32] = [
    "cuCtxEnablePeerAccess",
    "cuCtxGetCurrent",
    "cuCtxSynchronize",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemGetInfo",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// What none of the scenarios calls: letting a peer in, and, before the
/// faults are gone, the teardown. The other tests here make these fail.
const NOT_CALLED: [&str; 4] =
    ["cuCtxEnablePeerAccess", "cuEventDestroy", "cuMemPoolDestroy", "cuMemPoolSetAccess"];

const FAULTS: [(FaultMode, ErrorCode); 5] = [
    (FaultMode::Once, ErrorCode::OutOfMemory),
    (FaultMode::Forever, ErrorCode::OutOfMemory),
    (FaultMode::Once, ErrorCode::Other(999)),
    (FaultMode::Forever, ErrorCode::InvalidHandle),
    (FaultMode::Forever, ErrorCode::Deinitialized),
];

/// Its context is current: which device a function is called for shows in that alone, for some.
fn device() -> Arc<dyn FaultyDevice> {
    let device = simcuda::device_with("memory:128MiB,event_latency_us:10");
    device.gpu.make_current().unwrap();
    device
}

/// Returns the functions that failed.
fn sweep(setup: &Setup) -> BTreeSet<&'static str> {
    let mut swept = BTreeSet::new();
    for scenario in &SCENARIOS {
        assert_eq!(run(device, setup, scenario, None), 0);
        for function in FUNCTIONS {
            for (mode, code) in FAULTS {
                let fault = Fault { function, call: None, nth: 1, mode, code };
                if run_for_each_n(device, setup, scenario, fault) > 0 {
                    swept.insert(function);
                }
            }
        }
    }
    swept
}

/// The sweep is worth something only if each function is called on some source.
#[test]
fn p4_i15_every_function_of_cuda_may_fail() {
    CUDA_VMM.run(|_| {
        let swept: BTreeSet<_> = CUDA_SOURCES.iter().flat_map(sweep).collect();
        let missed: Vec<_> = FUNCTIONS.into_iter().filter(|one| !swept.contains(one)).collect();
        assert_eq!(missed, NOT_CALLED);
    });
}

/// B57: as on the simulated device. What could not be given back is lost with the device.
#[test]
fn b57_teardown_bears_every_failing_function() {
    CUDA_VMM.run(|_| {
        let mut struck = BTreeSet::new();
        for (setup, function) in CUDA_SOURCES.iter().flat_map(|one| FUNCTIONS.map(|f| (one, f))) {
            for code in [ErrorCode::OutOfMemory, ErrorCode::InvalidHandle, ErrorCode::Deinitialized]
            {
                let device = simcuda::device_with("");
                device.gpu.make_current().unwrap();
                let program = Program::new(Arc::clone(&device) as _, setup.options());
                let (lane, other) = (program.lane(), program.lane());
                let blocks = [700, 12 * MIB, 30 * MIB].map(|bytes| program.allocate(lane, bytes));
                blocks.iter().for_each(|block| program.use_on(block, other));
                blocks.into_iter().for_each(|block| program.free(block));
                let mode = FaultMode::Forever;
                device.plan(&Fault { function, call: None, nth: 1, mode, code });
                drop(program);
                if device.faults_fired() > 0 {
                    struck.insert(function);
                }
                assert_eq!(device.verdict(), Ok(()), "{function}, {code:?}");
            }
        }
        for function in ["cuEventDestroy", "cuMemPoolDestroy", "cuMemUnmap", "cuCtxGetCurrent"] {
            assert!(struck.contains(function), "{function} is not called at teardown");
        }
    });
}

#[test]
fn p4_a_peer_is_let_in_by_asking_again() {
    CUDA_VMM.run(|_| {
        let mut struck = BTreeSet::new();
        let functions = ["cuCtxEnablePeerAccess", "cuMemPoolSetAccess", "cuMemSetAccess"];
        for (setup, function) in CUDA_SOURCES.iter().flat_map(|one| functions.map(|f| (one, f))) {
            let (device, peer) = (simcuda::device_with(""), simcuda::device_with(""));
            let program = Program::new(Arc::clone(&device) as _, setup.options());
            let lane = program.lane();
            let block = program.allocate(lane, 3 * MIB);
            let (mode, code) = (FaultMode::Once, ErrorCode::Other(999));
            let fault = Fault { function, call: None, nth: 1, mode, code };
            // It is the peer's context that is let in.
            [&device, &peer].iter().for_each(|one| one.plan(&fault));
            if let Err(error) = program.allocator.enable_peer_access(peer.ordinal) {
                assert_eq!(error.error.code, code, "{error}");
                struck.insert(function);
            }
            let more = program.allocate(lane, 20 * MIB);
            program.check();
            program.allocator.enable_peer_access(peer.ordinal).unwrap();
            [block, more].into_iter().for_each(|block| program.free(block));
            program.end();
        }
        assert!(struck.into_iter().eq(functions));
    });
}

/// A use whose end could not be marked ends when the device is idle, and not before.
#[test]
fn b08_a_block_whose_use_could_not_be_recorded_is_kept_out_of_use() {
    CUDA_SOURCES.iter().for_each(|setup| {
        setup.run(|setup| {
            let device = simcuda::device_with("");
            let program = Program::new(Arc::clone(&device) as _, setup.options());
            let (lane, other) = (program.lane(), program.lane());
            let block = program.allocate(lane, 12 * MIB);
            let address = block.address;
            program.use_on(&block, other);
            program.device.work(other.stream, 5000);
            let (mode, code) = (FaultMode::Once, ErrorCode::InvalidHandle);
            device.plan(&Fault { function: "cuEventRecord", call: None, nth: 1, mode, code });
            program.free(block);
            assert_eq!(device.faults_fired(), 1);
            let next = program.allocate(lane, 12 * MIB);
            assert_ne!(next.address, address, "its last use still runs");
            program.check();
            program.free(next);
            program.allocator.trim().unwrap();
            assert_eq!(program.reserved(), 0);
            program.end();
        });
    });
}

/// B32: an error about memory is one also where the figures for its text cannot be had.
#[test]
fn b32_out_of_memory_without_figures_is_still_out_of_memory() {
    CUDA_VMM.run(|setup| {
        let device = simcuda::device_with("memory:64MiB");
        let program = Program::new(Arc::clone(&device) as _, setup.options());
        let (mode, code) = (FaultMode::Once, ErrorCode::Other(999));
        device.plan(&Fault { function: "cuMemGetInfo", call: None, nth: 1, mode, code });
        let lane = program.lane();
        let error = program.try_allocate(lane, 80 * MIB).unwrap_err();
        assert_eq!(device.faults_fired(), 1);
        assert!(error.to_string().contains("out of memory"), "{error}");
        let block = program.allocate(lane, 64 * MIB);
        program.free(block);
        program.end();
    });
}
