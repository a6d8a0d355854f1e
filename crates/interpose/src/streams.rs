//! Where the memory of a stream comes from.
//!
//! Invariant: what is known of a stream is kept from its creation to its destruction, both seen;
//! of a default stream as long as its context, or its thread. About any other stream the driver is
//! asked each time: its handle may be another's by then.
//!
//! The table's lock is held for no call, neither of the driver nor of an allocator. Each thread
//! remembers what it looked up last, until anything in the table is another stream's.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone::StreamId;
use drystone::driver::Stream;
use drystone_process::device::Device;
use drystone_process::registry;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::device;
use crate::driver::{Driver, Handle, answer};
use crate::{captures, context};

/// `CU_STREAM_PER_THREAD`: another stream in each thread.
pub(crate) const PER_THREAD: Handle = ptr::without_provenance_mut(2);

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

/// A stream on the device that serves it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) device: &'static Device,
    pub(crate) stream: StreamId,
}

thread_local! {
    /// The thread's own default stream, with the context it is of.
    static OWN: Cell<Option<(usize, Place)>> = const { Cell::new(None) };
}

/// How many streams a thread remembers; those it meets beyond cost a lock and a look-up.
const REMEMBERED: usize = 4;

/// A stream that the thread looked up: the table's changes until then, context, handle, place.
type Met = Cell<Option<(u64, usize, usize, Place)>>;

thread_local! {
    static MET: [Met; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
}

/// Where a thread remembers a stream.
#[inline]
const fn place_of(handle: usize) -> usize {
    // The product's highest bits depend on all of a handle's.
    ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REMEMBERED
}

type Known = FxHashMap<(usize, usize), Option<Place>>;

/// By context and handle: streams that were created, of context 0 and `None` until they are first
/// used; and legacy default streams.
static KNOWN: RwLock<Known> = RwLock::new(Known::with_hasher(rustc_hash::FxBuildHasher));

/// How often a stream of the table came or went. Whoever is told of a handle by another thread is
/// told of this, too.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Changes the table.
fn change<T>(how: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.write();
    // With the lock held: who finds what was there before has read the number before.
    CHANGES.fetch_add(1, Ordering::Relaxed);
    how(&mut known)
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
    let known = if stream == PER_THREAD {
        OWN.get().filter(|own| own.0 == context).map(|own| Some(own.1))
    } else {
        let met = MET.with(|met| met[place_of(stream.addr())].get());
        match met {
            Some((changes, of, handle, place))
                if (of, handle) == (context, stream.addr())
                    && changes == CHANGES.load(Ordering::Relaxed) =>
            {
                Some(Some(place))
            }
            _ => look_up(context, stream.addr()),
        }
    };
    match known {
        Some(Some(place)) if is_in_use(place.device) => Some(place),
        _ => find(driver, stream, context, known.is_some(), may_open),
    }
}

/// What the table has of a stream, to be remembered by the thread.
#[inline(never)]
fn look_up(context: usize, handle: usize) -> Option<Option<Place>> {
    let known = KNOWN.read();
    let changes = CHANGES.load(Ordering::Relaxed);
    let found = known.get(&(context, handle)).copied();
    drop(known);
    if let Some(Some(place)) = found {
        MET.with(|met| met[place_of(handle)].set(Some((changes, context, handle, place))));
    }
    found
}

/// The same, if anything is served at all. Opens no device.
#[inline]
pub(crate) fn place_if_any(driver: &Driver, stream: Handle) -> Option<Place> {
    registry::in_use().next()?;
    place(driver, stream, |_| false)
}

/// Whether a device was not reset since.
#[inline]
fn is_in_use(device: &'static Device) -> bool {
    registry::find(device.ordinal.cast_signed()).is_some_and(|now| ptr::eq(now, device))
}

#[cold]
fn find(
    driver: &Driver,
    stream: Handle,
    context: usize,
    is_seen: bool,
    may_open: impl FnOnce(c_int) -> bool,
) -> Option<Place> {
    let handle = stream.addr();
    let _relaxed = captures::Relaxed::enter(driver);
    let ordinal = match context {
        0 => ordinal_of(driver, stream)?,
        context => context::ordinal_of(driver, ptr::with_exposed_provenance_mut(context))?,
    };
    // A device is opened by calls that a capture may forbid.
    if registry::find(ordinal).is_none() && (captures::any() || !may_open(ordinal)) {
        return None;
    }
    let device = device::open(ordinal)?;
    if is_seen {
        // Its end will be seen, too.
        device.keep_stream(handle as u64).ok()?;
    }
    let place = Place { device, stream: device.asked_stream(handle as u64).ok()? };
    if stream == PER_THREAD {
        OWN.set(Some((context, place)));
    } else if is_seen || context != 0 {
        change(|known| known.insert((context, handle), Some(place)));
    }
    Some(place)
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

/// A stream was created.
pub(crate) fn created(stream: Handle) {
    change(|known| known.insert((0, stream.addr()), None));
}

/// A stream is about to be destroyed: its memory serves others once its work is over.
pub(crate) fn retire(stream: Handle) {
    captures::ended(stream);
    let known = change(|known| known.remove(&(0, stream.addr())));
    match known {
        Some(Some(place)) if is_in_use(place.device) => {
            // Unless the program has done so by Drystone's own interface.
            let _ = place.device.allocator.retire_stream(place.stream);
        }
        // That interface alone may have been given it.
        Some(None) => {
            let stream = Stream(stream.addr() as u64);
            registry::in_use().for_each(|device| device.allocator.retire_handle(stream));
        }
        _ => {}
    }
}

/// The program has retired the stream by Drystone's own interface: it is a new one from now on.
pub(crate) fn forget(stream: Handle) {
    if stream == PER_THREAD {
        OWN.set(None);
    } else if is_created(stream) {
        change(|known| known.get_mut(&(0, stream.addr())).map(|known| *known = None));
    }
}

/// A device was reset: its streams are no more.
pub(crate) fn forget_device(ordinal: c_int) {
    let is_other = |place: &Option<Place>| {
        place.is_none_or(|place| place.device.ordinal != ordinal.cast_unsigned())
    };
    change(|known| known.retain(|_, place| is_other(place)));
}
