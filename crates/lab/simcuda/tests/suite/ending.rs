//! Violations, planned faults, lost contexts, exit and forks.

use crate::program::{
    allocate, cu, event, passes, passes_alone, run, run_alone, sim, start, stream,
};
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;

#[test]
fn a_strict_driver_names_call_and_arguments_and_aborts() {
    let Some(output) = run("strict:true", || {
        let address = allocate(512);
        cu!(cuMemFree_v2(address));
        cu!(cuMemFree_v2(address));
    }) else {
        return;
    };
    let complained = String::from_utf8_lossy(&output.stderr);
    let expected = "simcuda: violation: cudaFree was refused: invalid value\n  by \
                    cuMemFree_v2(address = 35184372088832) = 1\n";
    assert!(complained.contains(expected), "{complained}");
    assert_eq!(output.status.signal(), Some(6));
}

#[test]
fn a_lenient_driver_says_it_once_and_counts() {
    let Some(output) = run("", || {
        for _ in 0..3 {
            cu!(cuMemFree_v2(0x1234) => CUDA_ERROR_INVALID_VALUE);
        }
        assert_eq!(sim().violation_count(0), 3);
    }) else {
        return;
    };
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    assert_eq!(complained.matches("cudaFree was refused").count(), 1, "{complained}");
}

#[test]
fn planned_faults_strike_by_either_apis_name() {
    passes("", || {
        sim().fail(0, "cudaMalloc", 2, false, 2).unwrap();
        allocate(512);
        cu!(cuMemAlloc_v2(&mut 0, 512) => CUDA_ERROR_OUT_OF_MEMORY);
        allocate(512);
        // A function that the simulated device knows nothing of.
        sim().fail(0, "cuStreamCreate", 1, true, 999).unwrap();
        let mut stream = null_mut();
        cu!(cuStreamCreate(&mut stream, 0) => CUDA_ERROR_UNKNOWN);
        cu!(cuStreamCreate(&mut stream, 0) => CUDA_ERROR_UNKNOWN);
        assert_eq!(sim().faults_fired(0), 3);
        sim().clear_faults(0).unwrap();
        cu!(cuStreamCreate(&mut stream, 0));
        assert_eq!(sim().faults_fired(0), 0);
    });
}

#[test]
fn a_lost_context_refuses_every_call() {
    passes("", || {
        let event = event(2);
        sim().lose_context(0).unwrap();
        cu!(cuEventRecord(event, null_mut()) => CUDA_ERROR_ILLEGAL_ADDRESS);
        cu!(cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn b55_calls_after_exit_began_are_told_so() {
    passes("", || {
        let (address, stream) = (allocate(512), stream());
        sim().begin_exit(0).unwrap();
        cu!(cuMemFree_v2(address) => CUDA_ERROR_DEINITIALIZED);
        cu!(cuStreamSynchronize(stream) => CUDA_ERROR_DEINITIALIZED);
        assert_eq!(sim().violation_count(0), 2);
    });
}

#[test]
fn b55_destructors_that_run_after_the_driver_ended_are_told_so() {
    // Registered before CUDA is initialised, so it runs after the driver's own handler.
    extern "C" fn late() {
        cu!(cuMemFree_v2(512) => CUDA_ERROR_DEINITIALIZED);
        eprintln!("late call answered");
    }
    let Some(output) = run_alone("strict:true,stats:stderr", || {
        // SAFETY: the handler is a function of this program.
        unsafe { libc::atexit(late) };
        start();
        allocate(512);
    }) else {
        return;
    };
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    assert!(complained.contains("late call answered"), "{complained}");
    assert!(complained.contains("\"cuMemAlloc_v2\": {\"calls\": 1, \"bytes\": 512}"));
}

#[test]
fn b56_a_forked_child_has_no_driver() {
    passes_alone("", || {
        // Before CUDA is initialised a child may initialise it.
        assert_eq!(in_child(|| cu!(cuInit(0))), 0);
        start();
        let address = allocate(512);
        let code = in_child(|| {
            cu!(cuInit(0) => CUDA_ERROR_NOT_INITIALIZED);
            cu!(cuMemFree_v2(address) => CUDA_ERROR_NOT_INITIALIZED);
            cu!(cuDriverGetVersion(&mut 0));
        });
        assert_eq!(code, 0);
        cu!(cuMemFree_v2(address));
    });
}

/// Runs something in a forked child and returns how it ended.
fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child only calls the driver and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: leaves at once, without handlers of the parent's.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}
