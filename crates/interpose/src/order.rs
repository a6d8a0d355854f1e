//! The order that the program makes itself, by events and by waits, as the allocator is told of it
//! (`drystone_process::events`): what one stream freed then serves another that comes after it.
//!
//! Invariants: a fence is recorded before the program's event, or before its wait, so that nobody
//! waits longer for the fence than for that. The driver's answer is the program's, whatever becomes
//! of the fence. While anything is captured nothing is told: what a capture orders are edges of its
//! graph. Where no device is served or there is one stream, a call costs a look at that.

use std::ffi::c_uint;

use drystone_process::barrier::barrier;
use drystone_process::events::{self, OfEvent};
use drystone_process::{self as process, registry};

use crate::driver::{Driver, Handle, SUCCESS, Status};
use crate::streams::{Place, place_if_any, place_if_used};
use crate::{captures, context, streams};

/// Whether what one stream has freed may be wanted by another.
#[inline]
fn matters() -> bool {
    streams::are_several() && registry::is_any() && process::check().is_ok()
}

/// Records an event of the program's.
#[inline]
pub(crate) fn record(
    driver: &Driver,
    event: Handle,
    stream: Handle,
    drivers: impl FnOnce() -> Status,
) -> Status {
    if !matters() {
        return drivers();
    }
    let fence = fence_before(driver, stream);
    let status = drivers();
    if status == SUCCESS {
        keep(event, fence);
    }
    status
}

#[inline(never)]
fn fence_before(driver: &Driver, stream: Handle) -> Option<OfEvent> {
    barrier(None, || {
        let Place { device, stream } = place_unless_captured(driver, stream)?;
        events::fence(device, stream)
    })
}

#[inline(never)]
fn keep(event: Handle, fence: Option<OfEvent>) {
    barrier((), || events::keep(event.addr(), fence));
}

/// Where a stream is served that may have freed something, while nothing is captured.
fn place_unless_captured(driver: &Driver, stream: Handle) -> Option<Place> {
    if captures::any() { None } else { place_if_used(driver, stream) }
}

/// The program is about to destroy an event, whose handle may come back.
pub(crate) fn destroyed(event: Handle) {
    if matters() {
        barrier((), || events::destroyed(event.addr()));
    }
}

/// The program has made a stream wait for an event, or failed to. Flags are for captures.
#[inline]
pub(crate) fn waited(
    driver: &Driver,
    stream: Handle,
    event: Handle,
    flags: c_uint,
    status: Status,
) -> Status {
    if status == SUCCESS && flags == 0 && matters() && !captures::any() {
        wait_too(driver, stream, event);
    }
    status
}

#[inline(never)]
fn wait_too(driver: &Driver, stream: Handle, event: Handle) {
    barrier((), || {
        if let Some(of) = events::of(event.addr())
            && let Some(Place { device, stream }) = place_if_any(driver, stream)
        {
            events::wait(device, stream, of);
        }
    });
}

/// The host is about to wait for a stream: then what that has freed is seen to be anybody's.
pub(crate) fn awaits_stream(driver: &Driver, stream: Handle) {
    if matters() {
        barrier((), || {
            if let Some(Place { device, stream }) = place_unless_captured(driver, stream) {
                // Seen by whoever misses next, without an event of the program's.
                let _ = device.allocator.note_event(stream);
            }
        });
    }
}

/// The host is about to wait for a context, or for the current one.
pub(crate) fn awaits_context(driver: &Driver, of: Option<Handle>) {
    if matters() && !captures::any() {
        barrier((), || {
            let ordinal = match of {
                Some(of) => context::ordinal_of(driver, of),
                None => context::current_ordinal(driver),
            };
            if let Some(device) = ordinal.and_then(registry::find) {
                device.allocator.note_synchronizing();
            }
        });
    }
}
