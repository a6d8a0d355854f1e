//! What captures forbid, of every function that a program can look up: the driver does what the
//! table says.
//!
//! Functions are called with zeroes. What a capture forbids is refused before arguments are looked
//! at, and what it does not forbid leaves the capture whole, whatever else it says of zeroes.

use crate::program::{
    ACTIVE, GLOBAL, INVALIDATED, RELAXED, cu, event, passes_alone, start, status_of, stream,
    use_device,
};
use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode};
use drystone_driver::CaptureMode;
use drystone_sim::{Legality, MODES, Rule};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::thread;

const MODE_OF: [Mode; 3] = [GLOBAL, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, RELAXED];
const UNSUPPORTED: i32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32;

/// Takes as many words as any function of the driver.
type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

fn look_up(name: &str) -> Function {
    let text = CString::new(name).unwrap();
    let (mut address, mut status) = (null_mut::<c_void>(), null_mut::<c_void>());
    cu!(cuGetProcAddress_v2(text.as_ptr(), &mut address, 13_000, 0, (&raw mut status).cast()));
    assert!(!address.is_null(), "{name}");
    // SAFETY: a function of C that returns a result; those that take fewer words ignore the rest,
    // and the simulated driver refuses what is missing.
    unsafe { std::mem::transmute::<*mut c_void, Function>(address) }
}

/// Calls the function in this thread, in this mode, with the first device's primary context.
fn call(function: Function, mode: CaptureMode, context: usize) -> i32 {
    let context = context as sys::CUcontext;
    cu!(cuCtxSetCurrent(context));
    let mut mode = MODE_OF[mode as usize];
    cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
    // SAFETY: zeroes, of which the simulated driver looks at every one.
    let result = unsafe { function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) };
    cu!(cuCtxSetCurrent(context));
    cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
    result
}

/// Whether the call left the capture whole, and what it returned.
fn outcome(
    function: Function,
    capture: CaptureMode,
    is_own: bool,
    mode: CaptureMode,
) -> (bool, i32) {
    start();
    let context = use_device(0) as usize;
    let stream = stream();
    cu!(cuStreamBeginCapture_v2(stream, MODE_OF[capture as usize]));
    let result = match is_own {
        true => call(function, mode, context),
        false => {
            thread::scope(|scope| scope.spawn(|| call(function, mode, context)).join().unwrap())
        }
    };
    let is_whole = status_of(stream) == ACTIVE;
    let mut graph = null_mut();
    // SAFETY: the stream is captured by this thread.
    let ended = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
    assert_eq!(ended == sys::CUresult::CUDA_SUCCESS, is_whole);
    cu!(cuStreamDestroy_v2(stream));
    (is_whole, result)
}

#[test]
fn every_function_does_in_each_capture_what_its_rule_says() {
    passes_alone("stale_handles_end:false", || {
        // The device makes the calls of the rows itself, and has a test of its own.
        let rules = Rule::all().filter(|rule| rule.call.is_none());
        // It ends the device that the capture is on.
        for rule in rules.filter(|rule| rule.function != "cuDevicePrimaryCtxReset") {
            let function = look_up(rule.function);
            for (capture, is_own) in MODES.into_iter().flat_map(|m| [(m, true), (m, false)]) {
                for mode in MODES {
                    let expected = rule.legality.permits(capture, is_own, mode);
                    let (is_whole, result) = outcome(function, capture, is_own, mode);
                    let case = (rule.function, capture, is_own, mode, result);
                    assert_eq!(is_whole, expected, "{case:?}");
                    assert!(is_whole || result == UNSUPPORTED, "{case:?}");
                }
            }
        }
    });
}

#[test]
fn what_no_source_allows_is_let_through_by_a_kind_driver_alone() {
    passes_alone("stale_handles_end:false,unproven_is_illegal:false", || {
        let rules = Rule::all().filter(|rule| rule.call.is_none());
        let rules = rules.filter(|rule| rule.legality == Legality::Unproven);
        for rule in rules.filter(|rule| rule.function != "cuDevicePrimaryCtxReset") {
            let global = CaptureMode::Global;
            let (is_whole, _) = outcome(look_up(rule.function), global, true, global);
            assert!(is_whole, "{}", rule.function);
        }
    });
}

#[test]
fn some_functions_break_the_capture_of_their_own_stream() {
    passes_alone("stale_handles_end:false", || {
        let told = Rule::all().filter(|rule| rule.breaks_its_own).map(|rule| rule.function);
        for name in told.filter(|name| !name.starts_with("cuEvent")) {
            start();
            let (stream, event) = (stream(), event(2));
            cu!(cuStreamBeginCapture_v2(stream, RELAXED));
            cu!(cuEventRecord(event, stream));
            let mut mode = RELAXED;
            cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
            let [a, b, c, d, e, f] = words_of(name, stream as u64);
            // SAFETY: a live stream instead of the stream, and room for one answer.
            let result = unsafe { look_up(name)(a, b, c, d, e, f, 0, 0, 0, 0, 0) };
            assert_eq!(result, UNSUPPORTED, "{name}");
            assert_eq!(status_of(stream), INVALIDATED, "{name}");
            let mut graph = null_mut();
            cu!(cuStreamEndCapture(stream, &mut graph) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
        }
    });
}

/// The stream in its place among a function's arguments.
fn words_of(name: &str, stream: u64) -> [u64; 6] {
    static ROOM: [u64; 32] = [0; 32];
    let room = ROOM.as_ptr() as u64;
    match name {
        "cuGraphLaunch" => [0, stream, 0, 0, 0, 0],
        "cuMemcpy3DPeerAsync" => [room, stream, 0, 0, 0, 0],
        "cuMemcpyPeerAsync" => [0, 0, 0, 0, 0, stream],
        _ => [stream, 0, 0, 0, 0, 0],
    }
}
