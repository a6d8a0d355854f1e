//! Several contexts of one device: whose work a wait is for, and what ends with a context.

use crate::program::{
    ACTIVE, GLOBAL, GRANULE, INVALIDATED, MIB, RELAXED, allocate, create, cu, event, launch, map,
    passes, reserve, run, sim, status_of, stream, use_device, used_bytes,
};
use cudarc::driver::sys;
use std::ptr::null_mut;

/// A context that the program makes, which is current from then on.
fn created() -> sys::CUcontext {
    let mut context = null_mut();
    cu!(cuCtxCreate_v4(&mut context, null_mut(), 0, 0));
    context
}

fn now_ns() -> u64 {
    sim().now_ns(0)
}

#[test]
fn a_context_waits_for_its_own_work_alone() {
    passes("", || {
        let (first, near) = (use_device(0), stream());
        let other = created();
        let far = stream();
        launch(far, 2_000_000);
        cu!(cuCtxSetCurrent(first));
        launch(near, 1_000_000);
        cu!(cuCtxSynchronize());
        assert_eq!(now_ns(), 1_000_000);
        cu!(cuStreamQuery(far) => CUDA_ERROR_NOT_READY);
        // Plain memory is freed once its own context is idle.
        let address = allocate(512);
        cu!(cuMemFree_v2(address));
        assert_eq!(now_ns(), 1_000_000);
        cu!(cuCtxSetCurrent(other));
        cu!(cuCtxSynchronize());
        assert_eq!(now_ns(), 2_000_000);
    });
}

/// Not so of plain memory.
#[test]
fn stream_ordered_memory_is_freed_without_a_wait() {
    passes("", || {
        let (stream, plain) = (stream(), allocate(512));
        let mut address = 0;
        cu!(cuMemAllocAsync(&mut address, 512, stream));
        launch(stream, 1_000_000);
        cu!(cuMemFree_v2(address));
        assert_eq!(now_ns(), 0);
        cu!(cuMemFree_v2(plain));
        assert_eq!(now_ns(), 1_000_000);
    });
}

#[test]
fn a_context_waits_for_what_its_streams_wait_for() {
    passes("", || {
        let (first, near) = (use_device(0), stream());
        created();
        let (far, point) = (stream(), event(2));
        launch(far, 2_000_000);
        cu!(cuEventRecord(point, far));
        cu!(cuCtxSetCurrent(first));
        // An event of another context may be waited for, and not recorded.
        cu!(cuEventRecord(point, near) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuStreamWaitEvent(near, point, 0));
        cu!(cuCtxSynchronize());
        assert_eq!(now_ns(), 2_000_000);
    });
}

#[test]
fn each_context_has_default_streams_of_its_own() {
    passes("", || {
        let (first, per_thread) = (use_device(0), 2 as sys::CUstream);
        let other = created();
        for handle in [null_mut(), per_thread] {
            cu!(cuCtxSetCurrent(other));
            let mut ids = [0; 2];
            launch(handle, 1_000_000);
            cu!(cuStreamGetId(handle, &mut ids[0]));
            cu!(cuCtxSetCurrent(first));
            cu!(cuStreamQuery(handle));
            cu!(cuStreamGetId(handle, &mut ids[1]));
            assert_ne!(ids[0], ids[1]);
            cu!(cuCtxSetCurrent(other));
            cu!(cuStreamQuery(handle) => CUDA_ERROR_NOT_READY);
        }
        // It captures no more than the primary one's does.
        cu!(cuStreamBeginCapture_v2(null_mut(), RELAXED) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    });
}

#[test]
fn what_a_context_has_ends_with_it() {
    passes("stale_handles_end:false", || {
        let first = use_device(0);
        let before = used_bytes();
        let other = created();
        let (far, point, plain) = (stream(), event(2), allocate(4 * MIB));
        let mapped = reserve(GRANULE);
        map(mapped, GRANULE, create(GRANULE), 0);
        let (mut host, mut module) = (null_mut(), null_mut());
        cu!(cuMemAllocHost_v2(&mut host, 4096));
        cu!(cuModuleLoadData(&mut module, (&raw const host).cast()));
        launch(far, 1_000_000);
        cu!(cuCtxDestroy_v2(other));
        let mut current = null_mut();
        cu!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, first);
        cu!(cuStreamQuery(far) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuEventQuery(point) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuModuleUnload(module) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuMemFreeHost(host) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemFree_v2(plain) => CUDA_ERROR_INVALID_VALUE);
        // Memory by `cuMemCreate` is of no context.
        assert_eq!(used_bytes(), before + GRANULE);
        cu!(cuMemsetD8_v2(mapped, 0, GRANULE));
        // Nobody waited for the work, and the next context has nothing to do with it.
        created();
        cu!(cuCtxSynchronize());
        assert_eq!(now_ns(), 0);
    });
}

#[test]
fn a_stream_of_a_context_that_ended_ends_the_process() {
    let output = run("", || {
        let other = created();
        let far = stream();
        cu!(cuCtxDestroy_v2(other));
        cu!(cuStreamSynchronize(far));
    });
    let Some(output) = output else { return };
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("is gone, or was nobody's"), "{complained}");
    assert!(complained.contains("  by cuStreamSynchronize("), "{complained}");
}

#[test]
fn a_capture_whose_context_ends_forbids_nothing_any_more() {
    passes("", || {
        let first = use_device(0);
        let other = created();
        cu!(cuStreamBeginCapture_v2(stream(), GLOBAL));
        let mut mode = RELAXED;
        cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
        cu!(cuCtxDestroy_v2(other));
        cu!(cuCtxSetCurrent(first));
        cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
        cu!(cuCtxSynchronize());
    });
}

#[test]
fn the_last_release_of_a_primary_context_resets_it() {
    passes("stale_handles_end:false", || {
        let before = used_bytes();
        let (mut ids, context) = ([0; 2], use_device(0));
        cu!(cuCtxGetId(context, &mut ids[0]));
        let (far, plain) = (stream(), allocate(4 * MIB));
        cu!(cuDevicePrimaryCtxRelease_v2(0));
        cu!(cuStreamQuery(far));
        cu!(cuDevicePrimaryCtxRelease_v2(0));
        cu!(cuStreamQuery(far) => CUDA_ERROR_INVALID_HANDLE);
        use_device(0);
        cu!(cuCtxGetId(context, &mut ids[1]));
        assert_ne!(ids[0], ids[1]);
        assert_eq!(used_bytes(), before);
        cu!(cuMemFree_v2(plain) => CUDA_ERROR_INVALID_VALUE);
    });
}

/// How much each context takes in the tests of that.
const CONTEXT_BYTES: usize = 400 * MIB;

#[test]
fn each_context_takes_its_memory_as_long_as_it_lives() {
    passes("memory:1000MiB,context:400MiB", || {
        assert_eq!(used_bytes(), CONTEXT_BYTES);
        // Once more is the same context.
        let first = use_device(0);
        assert_eq!(used_bytes(), CONTEXT_BYTES);
        let other = created();
        assert_eq!(used_bytes(), 2 * CONTEXT_BYTES);
        let (mut none, mut address) = (null_mut(), 0);
        cu!(cuCtxCreate_v4(&mut none, null_mut(), 0, 0) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuMemAlloc_v2(&mut address, 201 * MIB) => CUDA_ERROR_OUT_OF_MEMORY);
        allocate(200 * MIB);
        assert_eq!(sim().physical_bytes(0), 200 << 20);
        assert_eq!(sim().place_used_bytes(0), 1000 << 20);
        cu!(cuCtxDestroy_v2(other));
        cu!(cuCtxSetCurrent(first));
        assert_eq!(used_bytes(), CONTEXT_BYTES, "with what was allocated there");
    });
}

#[test]
fn contexts_that_outlive_a_reset_have_their_memory_after_it() {
    passes("memory:1000MiB,context:400MiB,stale_handles_end:false", || {
        let other = created();
        allocate(100 * MIB);
        cu!(cuDevicePrimaryCtxReset_v2(0));
        assert_eq!(used_bytes(), 2 * CONTEXT_BYTES);
        crate::program::reset();
        assert_eq!(used_bytes(), 2 * CONTEXT_BYTES);
        cu!(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(used_bytes(), CONTEXT_BYTES, "the one that the program made");
        cu!(cuCtxDestroy_v2(other));
        assert_eq!(sim().place_used_bytes(0), 0);
        cu!(cuDevicePrimaryCtxRelease_v2(0) => CUDA_ERROR_INVALID_CONTEXT);
    });
}

/// As where another process holds the device.
#[test]
fn a_primary_context_without_room_is_refused_and_may_be_had_later() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("devices");
    let conf = format!("memory:600MiB,context:400MiB,devices:2,shared:{}", shared.display());
    passes(&conf, || {
        let mut context = null_mut();
        cu!(cuCtxCreate_v4(&mut context, null_mut(), 0, 0) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuDevicePrimaryCtxRelease_v2(0));
        let other = created();
        cu!(cuDevicePrimaryCtxRetain(&mut context, 0) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuDevicePrimaryCtxRelease_v2(0) => CUDA_ERROR_INVALID_CONTEXT);
        cu!(cuCtxDestroy_v2(other));
        use_device(0);
        assert_eq!(used_bytes(), CONTEXT_BYTES);
        use_device(1);
        assert_eq!(used_bytes(), CONTEXT_BYTES, "another device");
    });
}

/// A program that releases its context, as it should, has a device that was started anew.
#[test]
fn statistics_tell_what_was_counted_before_the_last_release() {
    let Some(output) = run("context:400MiB,stats:stderr", || {
        allocate(64 * MIB);
        launch(stream(), 1);
        cu!(cuDevicePrimaryCtxRelease_v2(0));
    }) else {
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    let peak = format!("\"physical_bytes\": 0, \"peak_physical_bytes\": {}", 64 * MIB);
    for part in [peak.as_str(), "\"context_bytes\": 0", "\"kernels\": 1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Streams that do not block take no part in what the legacy default stream does.
#[test]
fn the_legacy_stream_may_not_be_used_while_a_blocking_one_is_captured() {
    passes("", || {
        let (first, free) = (use_device(0), stream());
        let (address, mut graph) = (allocate(512), null_mut());
        cu!(cuStreamBeginCapture_v2(free, RELAXED));
        cu!(cuMemsetD8Async(address, 0, 1, null_mut()));
        cu!(cuStreamEndCapture(free, &mut graph));
        let mut blocking = null_mut();
        cu!(cuStreamCreate(&mut blocking, 0));
        cu!(cuStreamBeginCapture_v2(blocking, RELAXED));
        let mut status = INVALIDATED;
        cu!(cuStreamIsCapturing(null_mut(), &mut status) => CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status_of(blocking), ACTIVE);
        // That of another context is another stream.
        created();
        cu!(cuMemsetD8Async(address, 0, 1, null_mut()));
        cu!(cuCtxSetCurrent(first));
        assert_eq!(status_of(blocking), ACTIVE);
        cu!(cuStreamWaitEvent(null_mut(), event(2), 0) => CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status_of(blocking), INVALIDATED);
        cu!(cuStreamEndCapture(blocking, &mut graph) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        cu!(cuMemsetD8Async(address, 0, 1, null_mut()));
    });
}

/// The context of a stream that is captured is told by drivers from 12.5 on.
#[test]
fn older_drivers_do_not_tell_the_context_of_a_captured_stream() {
    for version in ["12040", "12050"] {
        passes(&format!("driver:{version}"), || {
            let (context, captured) = (use_device(0), stream());
            cu!(cuStreamBeginCapture_v2(captured, RELAXED));
            let mut version = 0;
            cu!(cuDriverGetVersion(&mut version));
            let mut of = null_mut();
            if version < 12050 {
                cu!(cuStreamGetCtx(captured, &mut of) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            } else {
                cu!(cuStreamGetCtx(captured, &mut of));
                assert_eq!(of, context);
            }
        });
    }
}
