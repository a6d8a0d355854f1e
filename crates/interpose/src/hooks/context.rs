//! Contexts, as they change and end.

use std::ffi::{c_int, c_uint};

use drystone::{address_calls, seen};
use drystone_process::barrier::barrier;
use drystone_process::{self as process, events, registered, registry};

use crate::driver::{self, Handle, Place, SUCCESS, Status};
use crate::hook::hooks;
use crate::refused::Wanted;
use crate::{captures, context, memory, pools};

/// The thread's context may be another now.
fn changed(status: Status) -> Status {
    context::forget();
    status
}

/// The program has made a context: the default streams there are not seen to come.
fn made(status: Status) -> Status {
    if status == SUCCESS && process::check().is_ok() {
        barrier((), seen::may_miss_some);
    }
    changed(status)
}

/// Resets the device of a primary context, while no memory moves: a move asks the streams of all.
fn reset(drivers: impl FnOnce() -> Status, ordinal: c_int) -> Status {
    let status = address_calls::run(|| {
        let status = drivers();
        forget(status, ordinal);
        status
    });
    if status == SUCCESS && driver::is_serving() && process::check().is_ok() {
        memory::free_what_waited();
    }
    changed(status)
}

/// Forgets what has gone with a device that was reset.
fn forget(status: Status, ordinal: c_int) {
    if status == SUCCESS && !driver::is_serving() {
        barrier((), || {
            seen::forget_device(ordinal.cast_unsigned());
            captures::forget_device(ordinal);
        });
    } else if status == SUCCESS && process::check().is_ok() {
        barrier((), || {
            // By its books, which go next.
            pools::forget_device(ordinal, |address| {
                registry::find(ordinal).is_some_and(|one| one.allocator.block_at(address).is_ok())
            });
            let _ = registry::find(ordinal).inspect(|&device| events::forget_device(device));
            registered::forget_device(ordinal.cast_unsigned());
            registry::forget(ordinal);
            seen::forget_device(ordinal.cast_unsigned());
            captures::forget_device(ordinal);
            memory::forget_gone();
        });
    }
}

hooks! {
    fn cuCtxSetCurrent(context: Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxPushCurrent(context: Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxPushCurrent_v2(context: Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxPopCurrent(to: *mut Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxPopCurrent_v2(to: *mut Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxCreate(
        to: *mut Handle, flags: c_uint, of: c_int
    ) takes Wanted::untold_of(of), in both |_, drivers| { made(drivers()) }
    fn cuCtxCreate_v2(
        to: *mut Handle, flags: c_uint, of: c_int
    ) takes Wanted::untold_of(of), in both |_, drivers| { made(drivers()) }
    fn cuCtxCreate_v3(
        to: *mut Handle, affinities: Place, count: c_int, flags: c_uint, of: c_int
    ) takes Wanted::untold_of(of), in both |_, drivers| { made(drivers()) }
    fn cuCtxCreate_v4(
        to: *mut Handle, how: Place, flags: c_uint, of: c_int
    ) takes Wanted::untold_of(of), in both |_, drivers| { made(drivers()) }
    fn cuGreenCtxCreate(
        to: *mut Handle, of: Handle, device: c_int, flags: c_uint
    ) takes Wanted::untold_of(device), in both |_, drivers| { made(drivers()) }
    fn cuCtxDestroy(context: Handle) |_, drivers| { changed(drivers()) }
    fn cuCtxDestroy_v2(context: Handle) |_, drivers| { changed(drivers()) }
    fn cuDevicePrimaryCtxReset(of: c_int) in both |_, drivers| { reset(drivers, of) }
    fn cuDevicePrimaryCtxReset_v2(of: c_int) in both |_, drivers| { reset(drivers, of) }
}
