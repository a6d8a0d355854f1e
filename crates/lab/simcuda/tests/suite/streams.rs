//! Streams and events: time, handles, two devices, default streams, callbacks.

use crate::program::{cu, event, launch, passes, sim, stream, use_device};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::null_mut;

/// `CU_EVENT_DISABLE_TIMING`
const NO_TIMING: u32 = 2;

#[test]
fn time_passes_only_when_someone_waits() {
    passes("", || {
        let (stream, before, after) = (stream(), event(0), event(0));
        cu!(cuEventRecord(before, stream));
        launch(stream, 3_000_000);
        cu!(cuEventRecord(after, stream));
        cu!(cuStreamQuery(stream) => CUDA_ERROR_NOT_READY);
        cu!(cuEventQuery(after) => CUDA_ERROR_NOT_READY);
        let mut ms = 0.0;
        cu!(cuEventElapsedTime_v2(&mut ms, before, after) => CUDA_ERROR_NOT_READY);
        cu!(cuEventSynchronize(after));
        cu!(cuStreamQuery(stream));
        cu!(cuEventElapsedTime_v2(&mut ms, before, after));
        assert_eq!(ms, 3.0);
        let untimed = event(NO_TIMING);
        cu!(cuEventRecord(untimed, stream));
        cu!(cuEventElapsedTime_v2(&mut ms, before, untimed) => CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(sim().now_ns(0), 3_000_000);
    });
}

#[test]
fn a_program_that_polls_comes_to_an_end() {
    passes("", || {
        let (stream, event) = (stream(), event(NO_TIMING));
        launch(stream, 1_000_000_000);
        cu!(cuEventRecord(event, stream));
        // SAFETY: the event is one.
        while unsafe { sys::cuEventQuery(event) } as i32 == 600 {}
        cu!(cuStreamQuery(stream));
    });
}

#[test]
fn a_handle_of_another_kind_is_refused() {
    passes("stale_handles_end:false", || {
        let (stream, event) = (stream(), event(NO_TIMING));
        for nobody in [stream.cast::<c_void>(), null_mut(), 8 as *mut c_void, usize::MAX as _] {
            cu!(cuEventRecord(nobody.cast(), stream) => CUDA_ERROR_INVALID_HANDLE);
            cu!(cuEventDestroy_v2(nobody.cast()) => CUDA_ERROR_INVALID_HANDLE);
            cu!(cuStreamWaitEvent(stream, nobody.cast(), 0) => CUDA_ERROR_INVALID_HANDLE);
            cu!(cuGraphLaunch(nobody.cast(), stream) => CUDA_ERROR_INVALID_HANDLE);
        }
        cu!(cuEventRecord(event, event.cast()) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuStreamDestroy_v2(null_mut()) => CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn a_stream_of_one_device_waits_for_an_event_of_another() {
    passes("devices:2", || {
        let (first, event) = (stream(), event(NO_TIMING));
        use_device(1);
        let second = stream();
        launch(first, 500);
        cu!(cuEventRecord(event, second) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuEventRecord(event, first));
        cu!(cuStreamWaitEvent(second, event, 0));
        cu!(cuStreamQuery(second) => CUDA_ERROR_NOT_READY);
        cu!(cuStreamSynchronize(second));
        cu!(cuEventQuery(event));
        assert_eq!(sim().now_ns(1), 500);
    });
}

#[test]
fn host_functions_run_after_the_work_before_them() {
    passes("", || {
        unsafe extern "C" fn look(place: *mut c_void) {
            // SAFETY: the test handed the place of a number in.
            unsafe { place.cast::<u64>().write(sim().now_ns(0)) };
        }
        let stream = stream();
        let mut seen = 0u64;
        launch(stream, 700);
        cu!(cuLaunchHostFunc(stream, Some(look), (&raw mut seen).cast()));
        assert_eq!(seen, 700);
        cu!(cuLaunchHostFunc(stream, None, null_mut()) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn a_stream_remembers_how_it_was_made() {
    passes("", || {
        let mut stream = null_mut();
        cu!(cuStreamCreateWithPriority(&mut stream, 1, -9));
        let (mut flags, mut priority, mut context) = (0, 0, null_mut());
        cu!(cuStreamGetFlags(stream, &mut flags));
        cu!(cuStreamGetPriority(stream, &mut priority));
        cu!(cuStreamGetCtx(stream, &mut context));
        assert_eq!((flags, priority), (1, -5));
        let mut current = null_mut();
        cu!(cuCtxGetCurrent(&mut current));
        assert_eq!(context, current);
        cu!(cuStreamCreate(&mut stream, 7) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuStreamCreate(null_mut(), 0) => CUDA_ERROR_INVALID_VALUE);
    });
}
