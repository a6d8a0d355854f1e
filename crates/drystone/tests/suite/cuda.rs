//! What a program can do with CUDA and not with the simulated device alone: threads with streams
//! of their own, several devices and contexts, the end of the process, and children of it. Through
//! cudarc, on the simulated `libcuda`.

use std::cell::Cell;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use drystone::driver::{ErrorCode, Stream};
use drystone::{AllocateError, PoolId};
use drystone_sim::FaultMode;
use drystone_testkit::{at_exit, forked_child_succeeds};

use crate::device::{Fault, FaultyDevice, TestDevice};
use crate::ending::Eve;
use crate::program::Program;
use crate::setup::{CUDA_ASYNC, CUDA_MALLOC, CUDA_SOURCES, CUDA_VMM, Setup};
use crate::sim::MIB;
use crate::simcuda::{self, CudaOnSim};

fn program_with(setup: &Setup, conf: &str) -> (Arc<CudaOnSim>, Program) {
    let device = simcuda::device_with(conf);
    let program = Program::new(Arc::clone(&device) as _, setup.options());
    (device, program)
}

fn in_another_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// Runs a test on every source, where there is the simulated library.
fn on_every_source(test: fn(&Setup)) {
    CUDA_SOURCES.iter().for_each(|setup| setup.run(test));
}

#[test]
fn b04_a_threads_own_stream_does_not_end_anothers() {
    on_every_source(|setup| {
        let (device, program) = program_with(setup, "");
        // The driver finds a thread's own stream by its current context.
        device.gpu.make_current().unwrap();
        let here = program.lane_of(Stream::PER_THREAD);
        let block = program.allocate(here, 12 * MIB);
        in_another_thread(|| {
            device.gpu.make_current().unwrap();
            let there = program.lane_of(Stream::PER_THREAD);
            assert_ne!(there.id, here.id);
            let other = program.allocate(there, 12 * MIB);
            assert!(!other.overlaps(&block));
            program.free(other);
        });
        assert_eq!(program.lane_of(Stream::PER_THREAD).id, here.id);
        program.free(block);
        let again = program.allocate(here, 12 * MIB);
        program.free(again);
        program.end();
    });
}

/// B22, I11: a thread's own stream, whose end will be told, is captured; another thread trims.
#[test]
fn b22_a_capture_of_a_threads_own_stream_is_not_broken_by_another_thread() {
    use drystone::driver::CaptureMode;
    CUDA_VMM.run(|setup| {
        let (device, program) = program_with(setup, "");
        device.gpu.make_current().unwrap();
        let here = program.lane_of(Stream::PER_THREAD);
        let pool = program.allocator.add_pool();
        let other = program.lane();
        let warm = program.allocate(other, 64 * MIB);
        program.free(warm);
        program.device.begin_capture(Stream::PER_THREAD, CaptureMode::Relaxed);
        // It even says so itself, with a request.
        let block = program.try_allocate_in(pool, here, 12 * MIB).unwrap();
        let trimmed = in_another_thread(|| {
            device.gpu.make_current().unwrap();
            program.allocator.trim()
        });
        let is_whole = program.device.end_capture(Stream::PER_THREAD);
        assert!(is_whole, "the capture is broken; the trim: {trimmed:?}");
        assert!(trimmed.is_err());
        // Its own thread finds it over, without a request.
        program.allocator.trim().unwrap();
        program.free(block);
        program.end();
    });
}

/// The driver would break the capture if it were asked who the stream is.
#[test]
fn i11_who_is_captured_is_known_without_breaking_the_capture() {
    use drystone::driver::CaptureMode;
    CUDA_VMM.run(|setup| {
        let (device, program) = program_with(setup, "");
        device.gpu.make_current().unwrap();
        let [known, new] = [(); 2].map(|()| program.device.create_stream());
        let (allocator, uid) = (&program.allocator, |stream| program.allocator.stream_uid(stream));
        let add = |stream| allocator.add_passing_stream(stream).unwrap();
        let in_a_capture_of = |stream, ask: &dyn Fn()| {
            program.device.begin_capture(stream, CaptureMode::Global);
            ask();
            assert!(program.device.end_capture(stream), "the capture is broken");
        };
        let before = (add(known), uid(known).unwrap());
        in_a_capture_of(known, &|| assert_eq!((add(known), uid(known).unwrap()), before));
        let first = Cell::new(None);
        in_a_capture_of(new, &|| {
            assert!(uid(new).is_err());
            first.set(Some(add(new)));
        });
        assert_ne!(first.get(), Some(before.0));
        assert_eq!(Some(add(new)), first.get());
        in_a_capture_of(new, &|| assert_eq!(Some(add(new)), first.get()));
        program.end();
    });
}

/// Nobody tells of the end of a thread's own stream.
#[test]
fn threads_that_end_leave_their_memory_to_the_next() {
    on_every_source(|setup| {
        let (device, program) = program_with(setup, "");
        let bytes = setup.unit_bytes().max(12 * MIB);
        for round in 0..50 {
            in_another_thread(|| {
                device.gpu.make_current().unwrap();
                let lane = program.lane_of(Stream::PER_THREAD);
                let block = program.allocate(lane, bytes);
                program.device.work(lane.stream, 1000);
                program.free(block);
            });
            let (reserved, most) = (program.reserved(), bytes + setup.unit_bytes());
            assert!(reserved <= most, "round {round}: {reserved} bytes held, of {most}");
        }
        program.end();
    });
}

/// Recorded by another thread, an event would be of that thread's stream, which has nothing to do.
#[test]
fn b04_b08_another_thread_does_not_record_on_its_own_stream_instead() {
    on_every_source(|setup| {
        let (device, program) = program_with(setup, "");
        device.gpu.make_current().unwrap();
        let (lane, here) = (program.lane(), program.lane_of(Stream::PER_THREAD));
        let block = program.allocate(lane, 12 * MIB);
        let (address, bytes) = (block.address, block.bytes);
        program.use_on(&block, here);
        program.device.work(here.stream, 5000);
        in_another_thread(|| {
            device.gpu.make_current().unwrap();
            program.free(block);
        });
        assert_eq!(program.allocator.stats().quarantined_bytes, bytes);
        program.device.pass(1000);
        let other = program.allocate(lane, 12 * MIB);
        assert_ne!(other.address, address, "its last use still runs");
        program.check();
        program.free(other);
        program.allocator.trim().unwrap();
        assert_eq!((program.reserved(), program.allocator.stats().quarantined_bytes), (0, 0));
        program.end();
    });
}

/// Nor is that thread's stream made to wait for what the other one is given.
#[test]
fn b04_another_thread_does_not_wait_on_its_own_stream_instead() {
    [CUDA_VMM, CUDA_MALLOC].iter().for_each(|setup| {
        setup.run(|setup| {
            for is_there in [true, false] {
                let (device, program) = program_with(setup, "");
                device.gpu.make_current().unwrap();
                let (lane, here) = (program.lane(), program.lane_of(Stream::PER_THREAD));
                let block = program.allocate(lane, 12 * MIB);
                let address = block.address;
                program.device.work(lane.stream, 5000);
                program.free(block);
                let ask = || program.allocator.allocate_raw(PoolId::DEFAULT, here.id, 12 * MIB);
                let granted = match is_there {
                    true => in_another_thread(|| {
                        device.gpu.make_current().unwrap();
                        ask()
                    }),
                    false => ask(),
                };
                let got = granted.as_ref().is_ok_and(|grant| grant.address == address);
                assert_eq!(got, !is_there, "{granted:?}");
                if let Ok(grant) = granted {
                    program.allocator.free(grant.address).unwrap();
                }
                program.end();
            }
        });
    });
}

#[test]
fn b03_two_devices_have_nothing_in_common() {
    on_every_source(|setup| {
        let ((_, one), (_, two)) = (program_with(setup, ""), program_with(setup, ""));
        let lanes = [(&one, one.default_lane()), (&two, two.default_lane())];
        // Events of both are in flight at one time, made by one thread.
        let blocks = lanes.map(|(program, lane)| {
            let block = program.allocate(lane, 12 * MIB);
            let other = program.lane();
            program.use_on(&block, other);
            program.device.work(other.stream, 5000);
            block
        });
        assert!(!blocks[0].overlaps(&blocks[1]));
        assert!(two.allocator.free(blocks[0].address).is_err());
        for ((program, _), block) in lanes.iter().zip(blocks) {
            program.free(block);
        }
        one.device.pass(10_000);
        let active = lanes.map(|(program, _)| {
            program.allocator.trim_passed().unwrap();
            program.allocator.stats().all.active_bytes.current
        });
        assert_eq!(active, [0, 12 * MIB], "only one device's work is done");
        one.end();
        two.end();
    });
}

/// A whole day in the life of an allocator, with another device's context current, or none.
#[test]
fn b10_the_current_context_is_neither_used_nor_changed() {
    on_every_source(|setup| {
        let (own, program) = program_with(setup, "memory:128MiB");
        let foreign = simcuda::device_with("memory:128MiB");
        foreign.gpu.make_current().unwrap();
        let calls = foreign.calls();
        let (lane, other) = (program.lane(), program.default_lane());
        let blocks = [program.allocate(lane, 700), program.allocate(other, 60 * MIB)];
        program.use_on(&blocks[1], lane);
        blocks.into_iter().for_each(|block| program.free(block));
        let whole = program.allocate(lane, 96 * MIB);
        program.try_allocate(lane, 200 * MIB).unwrap_err();
        program.free(whole);
        program.allocator.trim().unwrap();
        program.end();
        assert_eq!(own.library.physical_bytes(own.ordinal), 0);
        assert_eq!(foreign.calls(), calls);
        assert!(foreign.gpu.is_current().unwrap());
    });
}

#[test]
fn p4_a_context_that_cannot_be_made_current_is_an_error() {
    on_every_source(|setup| {
        let (_own, program) = program_with(setup, "");
        let lane = program.lane();
        let foreign = simcuda::device_with("");
        foreign.gpu.make_current().unwrap();
        let (mode, code) = (FaultMode::Forever, ErrorCode::Other(999));
        foreign.plan(&Fault { function: "cuCtxSetCurrent", call: None, nth: 1, mode, code });
        match program.try_allocate(lane, 12 * MIB).unwrap_err() {
            AllocateError::Driver { error, .. } => assert_eq!(error.code, code),
            error => panic!("{error}"),
        }
        program.check();
        foreign.clear_faults();
        let block = program.allocate(lane, 12 * MIB);
        program.free(block);
        program.end();
    });
}

#[test]
fn b55_b56_after_the_end_hits_work_and_nothing_hangs() {
    on_every_source(|setup| {
        for (is_lost, code) in [(true, ErrorCode::ContextLost), (false, ErrorCode::Deinitialized)] {
            let (device, program) = program_with(setup, "");
            let eve = Eve::new(setup, program);
            match is_lost {
                true => device.library.lose_context(device.ordinal).unwrap(),
                false => device.library.begin_exit(device.ordinal).unwrap(),
            }
            eve.frees_and_hits();
            drop(eve.bears(code));
        }
    });
}

/// The child shares nothing with its parent but what memory held at the fork.
#[test]
fn b56_p6_a_forked_child_is_refused_and_its_parent_is_not() {
    on_every_source(|setup| {
        let (device, program) = program_with(setup, "");
        let lane = program.lane();
        let calls = device.calls();
        let fresh = || Program::new(Arc::clone(&device) as _, setup.options());
        let eve = Eve::new(setup, fresh());
        let mut eve = Some(eve);
        let is_borne = forked_child_succeeds(|| {
            let Some(eve) = eve.take() else { return false };
            eve.frees_and_hits();
            drop(eve.bears(ErrorCode::NotInitialized));
            true
        });
        assert!(is_borne, "see above what the child said");
        assert!(device.calls() > calls);
        let block = program.allocate(lane, 40 * MIB);
        program.free(block);
        program.check();
    });
}

/// What the program leaves for its exit.
static LEFT: Mutex<Vec<Eve>> = Mutex::new(Vec::new());
const PROGRAM: &str = "DRYSTONE_SUITE_PROGRAM";

/// Runs before the driver's own handler: everything still works.
extern "C" fn early() {
    let is_served = LEFT.lock().unwrap().iter().all(Eve::is_served);
    println!("early: all served, {is_served}");
}

/// Runs after the driver's own.
extern "C" fn late() {
    for eve in std::mem::take(&mut *LEFT.lock().unwrap()) {
        eve.frees_and_hits();
        drop(eve.bears(ErrorCode::Deinitialized));
    }
    println!("late: all is refused");
}

#[test]
fn b55_p6_allocators_may_go_before_and_after_the_driver() {
    CUDA_VMM.run(|_| {
        if std::env::var_os(PROGRAM).is_some() {
            at_exit(late);
            for setup in [CUDA_VMM, CUDA_MALLOC, CUDA_ASYNC] {
                LEFT.lock().unwrap().push(Eve::new(&setup, program_with(&setup, "").1));
            }
            return at_exit(early);
        }
        let mut program = Command::new(std::env::current_exe().unwrap());
        let name = "cuda::b55_p6_allocators_may_go_before_and_after_the_driver";
        // In strict mode a call that is not legal any more ends the process.
        program.args(["--exact", name, "--nocapture"]).env(PROGRAM, "1");
        let output = program.env("SIMCUDA_CONF", "strict:true").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
        let (early, late) =
            (said.find("early: all served, true"), said.find("late: all is refused"));
        assert!(early.is_some() && late > early, "{said}");
    });
}
