//! Where the memory of a stream comes from: by the streams that are seen to come and go
//! (`drystone::seen`), or, about any other, by the driver's word each time.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone::driver::{Relaxed, Stream};
use drystone::{Served, StreamId, seen};
use drystone_process::device::Device;
use drystone_process::registry;

use crate::device;
use crate::driver::{Driver, Handle, answer};
use crate::{captures, context};

/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: Handle = ptr::without_provenance_mut(2);

/// The stream that null stands for in functions of programs that were compiled so that each thread
/// has a default stream of its own.
pub(crate) const fn per_thread(stream: Handle) -> Handle {
    if stream.is_null() { PER_THREAD } else { stream }
}

/// Whether the handle is of a stream that was created, not of a default one.
#[inline]
pub(crate) fn is_created(stream: Handle) -> bool {
    stream.addr() > PER_THREAD.addr()
}

#[inline]
pub(crate) fn named(stream: Handle) -> Stream {
    Stream(stream.addr() as u64)
}

/// A stream on the device that serves it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) device: &'static Device,
    pub(crate) stream: StreamId,
}

/// How many streams were created, or are default ones that use memory: at most so many are there.
/// One that was not seen to come counts each time.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether another stream may want what one has freed.
#[inline]
pub(crate) fn are_several() -> bool {
    COUNT.load(Ordering::Relaxed) > 1
}

/// One stream more may use memory.
pub(crate) fn count_one() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Where memory for a stream comes from, on a device that may be opened for it. `None`: from the
/// driver.
#[inline]
pub(crate) fn place(
    driver: &Driver,
    stream: Handle,
    may_open: impl FnOnce(c_int) -> bool,
) -> Option<Place> {
    let context = if is_created(stream) { 0 } else { context::current(driver)?.addr() };
    if let Some(served) = seen::served(context as u64, named(stream))
        && let Some(device) = registry::find(served.ordinal.cast_signed())
    {
        return Some(Place { device, stream: served.id });
    }
    find(driver, stream, context, may_open)
}

/// The same, if anything is served at all. Opens no device.
#[inline]
pub(crate) fn place_if_any(driver: &Driver, stream: Handle) -> Option<Place> {
    if registry::is_any() { place(driver, stream, |_| false) } else { None }
}

/// The same of a stream that may have freed something. Takes none in that has not: of those that
/// are seen, and of the thread's own, it is known whether they are served.
pub(crate) fn place_if_used(driver: &Driver, stream: Handle) -> Option<Place> {
    let context = if is_created(stream) { 0 } else { context::current(driver)?.addr() };
    let is_served = seen::served(context as u64, named(stream)).is_some();
    if !is_served && (stream == PER_THREAD || seen::is_seen(named(stream))) {
        return None;
    }
    place_if_any(driver, stream)
}

#[cold]
fn find(
    driver: &Driver,
    stream: Handle,
    context: usize,
    may_open: impl FnOnce(c_int) -> bool,
) -> Option<Place> {
    let _relaxed = Relaxed::enter(driver);
    let ordinal = match context {
        0 => ordinal_of(driver, stream)?,
        context => context::ordinal_of(driver, ptr::with_exposed_provenance_mut(context))?,
    };
    // A device is opened by calls that a capture may forbid.
    if registry::find(ordinal).is_none() && (captures::any() || !may_open(ordinal)) {
        return None;
    }
    let (device, handle) = (device::open(ordinal)?, named(stream).0);
    let is_seen = seen::is_seen(named(stream));
    if !is_seen {
        count_one();
    }
    // The end of one that was seen will be seen, too.
    let id = if is_seen { device.keep_stream(handle) } else { device.stream(handle) }.ok()?;
    if is_seen || context != 0 {
        let served = Served { ordinal: device.ordinal, id };
        seen::serve(context as u64, named(stream), served);
    }
    Some(Place { device, stream: id })
}

/// The device of a stream that the program passed, if that is of a primary context. While it is
/// captured nobody is asked: before CUDA 12.5 that broke the capture.
pub(crate) fn ordinal_of(driver: &Driver, stream: Handle) -> Option<c_int> {
    if captures::asks(driver, stream) {
        return None;
    }
    // SAFETY: writes a handle; the program passed the stream.
    let of = answer(ptr::null_mut(), |to| unsafe { (driver.cuStreamGetCtx)(stream, to) })?;
    context::ordinal_of(driver, of)
}

/// A stream is about to be destroyed: its memory serves others once its work is over. Also where
/// the program brought it to Drystone's own interface alone, or has retired it by that.
pub(crate) fn retire(stream: Handle) {
    captures::ended(stream);
    seen::destroyed(named(stream));
    registry::in_use().for_each(|device| device.allocator.retire_handle(named(stream)));
}
