//! Streams and captures, as they come and go.

use std::ffi::{c_int, c_uint};

use drystone::driver::Relaxed;
use drystone::seen;
use drystone_process as process;
use drystone_process::barrier::barrier;

use crate::driver::{self, Driver, Handle, NOT_PERMITTED, SUCCESS, Status};
use crate::hook::hooks;
use crate::streams::{Place, per_thread};
use crate::{captures, memory, streams};

/// Notes a stream that the driver has created.
fn created(status: Status, to: *mut Handle) -> Status {
    if status == SUCCESS && process::check().is_ok() {
        // SAFETY: the driver has written it.
        let stream = unsafe { to.read_unaligned() };
        barrier((), || seen::created(streams::named(stream)));
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
        memory::free_what_waited();
    }
    first.unwrap_or_else(drivers)
}

/// Begins a capture while no memory moves: who trims or misses afterwards sees it. Within code that
/// is called while memory moves none begins: what follows could break it.
fn begin(driver: &Driver, stream: Handle, drivers: impl Fn() -> Status) -> Status {
    if process::check().is_err() {
        return drivers();
    }
    let place = barrier(None, || {
        let place = streams::place_if_any(driver, stream);
        let of = match place {
            Some(place) => Some(place.device.ordinal.cast_signed()),
            None => {
                let _relaxed = Relaxed::enter(driver);
                streams::ordinal_of(driver, stream)
            }
        };
        captures::begins(stream, of);
        place
    });
    let status = match place {
        Some(Place { device, stream }) => {
            let began = device.allocator.while_memory_stays(|| {
                let status = drivers();
                if status == SUCCESS {
                    // Other threads cannot ask this one's own stream.
                    barrier((), || drop(device.allocator.note_begun_capture(stream)));
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

/// Ends a capture, and notes it unless it goes on. Of a stream that is not captured none ends,
/// though another thread's has its handle.
fn end(driver: &Driver, stream: Handle, drivers: impl Fn() -> Status) -> Status {
    let is_one = process::check().is_ok() && captures::is_captured(driver, stream);
    let status = drivers();
    if is_one && !captures::asks(driver, stream) {
        barrier((), || {
            if let Some(Place { device, stream }) = streams::place_if_any(driver, stream) {
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
    fn cuStreamCreate(to: *mut Handle, flags: c_uint) |_, drivers| { created(drivers(), to) }

    fn cuStreamCreateWithPriority(
        to: *mut Handle, flags: c_uint, priority: c_int
    ) |_, drivers| { created(drivers(), to) }

    fn cuStreamDestroy(stream: Handle) |driver, drivers| { destroy(driver, stream, drivers) }

    fn cuStreamDestroy_v2(stream: Handle) |driver, drivers| { destroy(driver, stream, drivers) }

    fn cuStreamBeginCapture(stream: Handle, mode: c_uint) |driver, drivers| {
        begin(driver, stream, drivers)
    }

    fn cuStreamBeginCapture_ptsz(stream: Handle, mode: c_uint) |driver, drivers| {
        begin(driver, per_thread(stream), drivers)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) |driver, drivers| {
        begin(driver, stream, drivers)
    }

    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) |driver, drivers| {
        begin(driver, per_thread(stream), drivers)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, nodes: driver::Place, edges: driver::Place, count: usize,
        mode: c_uint
    ) |driver, drivers| { begin(driver, stream, drivers) }

    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, nodes: driver::Place, edges: driver::Place, count: usize,
        mode: c_uint
    ) |driver, drivers| { begin(driver, per_thread(stream), drivers) }

    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) |driver, drivers| {
        end(driver, stream, drivers)
    }

    fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |driver, drivers| {
        end(driver, per_thread(stream), drivers)
    }
}
