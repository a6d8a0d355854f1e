//! What orders streams: events, and waits of streams and of the host.
//!
//! `cuEventSynchronize` and `cuEventQuery` need none: what an event covers is over before it.

use std::ffi::c_uint;

use crate::driver::Handle;
use crate::hook::hooks;
use crate::order;
use crate::streams::per_thread;

hooks! {
    fn cuEventRecord(event: Handle, stream: Handle) |driver, drivers| {
        order::record(driver, event, stream, drivers)
    }

    fn cuEventRecord_ptsz(event: Handle, stream: Handle) |driver, drivers| {
        order::record(driver, event, per_thread(stream), drivers)
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) |driver, drivers| {
        order::record(driver, event, stream, drivers)
    }

    fn cuEventRecordWithFlags_ptsz(
        event: Handle, stream: Handle, flags: c_uint
    ) |driver, drivers| {
        order::record(driver, event, per_thread(stream), drivers)
    }

    fn cuEventDestroy(event: Handle) |_, drivers| {
        order::destroyed(event);
        drivers()
    }

    fn cuEventDestroy_v2(event: Handle) |_, drivers| {
        order::destroyed(event);
        drivers()
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) |driver, drivers| {
        order::waited(driver, stream, event, flags, drivers())
    }

    fn cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: c_uint) |driver, drivers| {
        order::waited(driver, per_thread(stream), event, flags, drivers())
    }

    fn cuStreamSynchronize(stream: Handle) |driver, drivers| {
        order::awaits_stream(driver, stream);
        drivers()
    }

    fn cuStreamSynchronize_ptsz(stream: Handle) |driver, drivers| {
        order::awaits_stream(driver, per_thread(stream));
        drivers()
    }

    fn cuCtxSynchronize() |driver, drivers| {
        order::awaits_context(driver, None);
        drivers()
    }

    // Of a context that need not be current.
    fn cuCtxSynchronize_v2(of: Handle) |driver, drivers| {
        order::awaits_context(driver, (!of.is_null()).then_some(of));
        drivers()
    }
}
