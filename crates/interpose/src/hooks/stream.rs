//! Streams and captures, as they come and go.

use std::ffi::{c_int, c_uint};

use drystone::driver::Relaxed;
use drystone::{StreamId, address_calls, seen};
use drystone_process::barrier::barrier;
use drystone_process::device::Device;
use drystone_process::{self as process, registry};

use crate::driver::{self, Driver, Handle, NOT_PERMITTED, SUCCESS, Status};
use crate::hook::hooks;
use crate::refused::Wanted;
use crate::streams::{Place, per_thread};
use crate::{captures, context, memory, streams};

/// Notes a stream that the driver has created, of the current context's device.
fn created(driver: &Driver, status: Status, to: *mut Handle) -> Status {
    if status == SUCCESS && process::check().is_ok() {
        // SAFETY: the driver has written it.
        let stream = streams::named(unsafe { to.read_unaligned() });
        barrier((), || match context::current_ordinal(driver) {
            Some(ordinal) => seen::created(stream, ordinal.cast_unsigned()),
            None => seen::may_miss_some(),
        });
        streams::count_one();
    }
    status
}

/// Destroys a stream, and notes that it ends before the driver makes its handle another's. One that
/// is captured the driver may refuse to destroy: then it stays, and its capture with it, so that is
/// noted afterwards. Default streams never end so.
fn destroy(driver: &Driver, stream: Handle, drivers: impl Fn() -> Status) -> Status {
    if process::check().is_err() || !streams::is_created(stream) {
        return drivers();
    }
    let first = captures::is_captured(driver, stream).then(&drivers);
    if first.is_none_or(|status| status == SUCCESS) {
        barrier((), || streams::retire(stream));
        ended(stream);
    }
    first.unwrap_or_else(drivers)
}

/// Begins a capture while no memory moves, of any device, whose move would hold the default streams
/// of all: who trims or misses afterwards sees it. Within code that is called while memory moves
/// none begins: what follows could break it.
fn begin(driver: &Driver, stream: Handle, drivers: impl Fn() -> Status) -> Status {
    if process::check().is_err() {
        return drivers();
    }
    let drivers = || address_calls::run(&drivers);
    let (device, id) = barrier((None, None), || {
        let (of, device, id) = of_capture(driver, stream);
        captures::begins(stream, of);
        (device, id)
    });
    let status = match device {
        Some(device) => {
            let began = device.allocator.while_memory_stays(|| {
                let status = drivers();
                if let (SUCCESS, Some(id)) = (status, id) {
                    // Other threads cannot ask this one's own stream.
                    barrier((), || drop(device.allocator.note_begun_capture(id)));
                }
                status
            });
            began.unwrap_or(NOT_PERMITTED)
        }
        None => drivers(),
    };
    if status != SUCCESS {
        ended(stream);
    }
    status
}

/// The device of a stream that is to be captured, what serves it, and the stream there. Where ours
/// do not serve, the device is the current context's, as far as anybody knows.
fn of_capture(
    driver: &Driver,
    stream: Handle,
) -> (Option<c_int>, Option<&'static Device>, Option<StreamId>) {
    if !driver::is_serving() {
        let of = context::current_ordinal(driver);
        return (of, of.and_then(registry::find), None);
    }
    match streams::place_if_any(driver, stream) {
        Some(Place { device, stream }) => {
            (Some(device.ordinal.cast_signed()), Some(device), Some(stream))
        }
        None => {
            let _relaxed = Relaxed::enter(driver);
            (streams::ordinal_of(driver, stream), None, None)
        }
    }
}

/// Ends a capture, and notes it unless it goes on. Of a stream that is not captured none ends,
/// though another thread's has its handle.
fn end(driver: &Driver, stream: Handle, drivers: impl Fn() -> Status) -> Status {
    let is_one = process::check().is_ok() && captures::is_captured(driver, stream);
    let status = drivers();
    if is_one && !captures::asks(driver, stream) {
        barrier((), || {
            if driver::is_serving()
                && let Some(Place { device, stream }) = streams::place_if_any(driver, stream)
            {
                let _ = device.allocator.note_capture(None, stream);
            }
        });
        ended(stream);
    }
    status
}

fn ended(stream: Handle) {
    barrier((), || captures::ended(stream));
    memory::free_what_waited();
}

hooks! {
    fn cuStreamCreate(
        to: *mut Handle, flags: c_uint
    ) takes Wanted::UNTOLD, in both |driver, drivers| { created(driver, drivers(), to) }

    fn cuStreamCreateWithPriority(
        to: *mut Handle, flags: c_uint, priority: c_int
    ) takes Wanted::UNTOLD, in both |driver, drivers| { created(driver, drivers(), to) }

    fn cuStreamDestroy(stream: Handle) in both |driver, drivers| {
        destroy(driver, stream, drivers)
    }

    fn cuStreamDestroy_v2(stream: Handle) in both |driver, drivers| {
        destroy(driver, stream, drivers)
    }

    fn cuStreamBeginCapture(stream: Handle, mode: c_uint) in both |driver, drivers| {
        begin(driver, stream, drivers)
    }

    fn cuStreamBeginCapture_ptsz(stream: Handle, mode: c_uint) in both |driver, drivers| {
        begin(driver, per_thread(stream), drivers)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) in both |driver, drivers| {
        begin(driver, stream, drivers)
    }

    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) in both |driver, drivers| {
        begin(driver, per_thread(stream), drivers)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, nodes: driver::Place, edges: driver::Place, count: usize,
        mode: c_uint
    ) in both |driver, drivers| { begin(driver, stream, drivers) }

    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, nodes: driver::Place, edges: driver::Place, count: usize,
        mode: c_uint
    ) in both |driver, drivers| { begin(driver, per_thread(stream), drivers) }

    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) in both |driver, drivers| {
        end(driver, stream, drivers)
    }

    fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) in both |driver, drivers| {
        end(driver, per_thread(stream), drivers)
    }
}
