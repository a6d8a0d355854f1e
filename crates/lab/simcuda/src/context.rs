//! Contexts: one primary for each device and those that a program creates; which one is current
//! in each thread.
//!
//! Streams, events, modules and plain memory are of the context that they were made in, and end
//! with it; so do default streams, of which each context has its own. The rest is the device's.
//! Contexts survive a reset of the device by the control functions, because programs keep the
//! primary one forever.

use crate::abi::Raw;
use crate::config::{Config, DEVICES_MAX};
use crate::device::Device;
use crate::handle::{Handle, Kind};
use crate::status::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, Outcome};
use crate::{process, violation};
use arc_swap::Guard;
use drystone_sim::{Context, HandleTable};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How deep contexts can be pushed in one thread.
const DEPTH: usize = 32;
/// Values of the contexts that programs create; 0 is the primary one of its device.
const FIRST_CREATED: u64 = 16;

thread_local! {
    /// The thread's stack of contexts; the last one is current. No destructor, so that it answers
    /// to the last call of a thread.
    static STACK: Cell<[u64; DEPTH]> = const { Cell::new([0; DEPTH]) };
    static HEIGHT: Cell<usize> = const { Cell::new(0) };
    /// The last one, kept apart because every call asks for it.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// How often each primary context is retained. Changed under [`LIVES`].
pub(crate) static RETAINED: [AtomicU32; DEVICES_MAX] = [const { AtomicU32::new(0) }; DEVICES_MAX];

/// Held while contexts begin or end, so that each has its memory exactly as long as it lives.
static LIVES: Mutex<()> = Mutex::new(());

pub(crate) struct Created {
    pub(crate) ordinal: usize,
    pub(crate) flags: u32,
    /// What the device calls it: its handle may have been another's before.
    context: Context,
}

impl Created {
    pub(crate) fn new(ordinal: usize, flags: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { ordinal, flags, context: Context(NEXT.fetch_add(1, Ordering::Relaxed)) }
    }
}

pub(crate) static CREATED: Mutex<HandleTable<Created>> =
    Mutex::new(HandleTable::new(FIRST_CREATED));

pub(crate) const fn encode(ordinal: usize, value: u64) -> Raw {
    Handle { kind: Kind::Context, ordinal, generation: 0, value }.encode()
}

/// The ordinal of a context's device, for a call that names the context. Where stale handles end
/// the process, that of a destroyed one does.
pub(crate) fn ordinal_of(context: Raw) -> Outcome<usize> {
    let found = find(context);
    if found.is_err() && context.0 != 0 && process::config().sim.harsh.stale_handles_end {
        violation::note_fatal(&format!("context {context:?} is destroyed, or was nobody's"));
    }
    found
}

fn find(context: Raw) -> Outcome<usize> {
    let handle = Handle::decode(context, Kind::Context).ok_or(INVALID_CONTEXT)?;
    INVALID_CONTEXT.when(handle.ordinal >= process::device_count())?;
    let is_alive = match handle.value {
        0 => RETAINED[handle.ordinal].load(Ordering::Relaxed) > 0,
        value => CREATED.lock().get(value).is_some_and(|one| one.ordinal == handle.ordinal),
    };
    if is_alive { Ok(handle.ordinal) } else { Err(CONTEXT_IS_DESTROYED) }
}

/// What a device calls a context; the current one for null.
pub(crate) fn of(context: Raw) -> Outcome<Context> {
    let raw = if context.0 == 0 { current_raw() } else { context };
    let handle = Handle::decode(raw, Kind::Context).ok_or(INVALID_CONTEXT)?;
    match handle.value {
        0 => Ok(Context::PRIMARY),
        value => CREATED.lock().get(value).map(|one| one.context).ok_or(CONTEXT_IS_DESTROYED),
    }
}

/// The primary context of a device is retained, and begins if nobody had it.
/// Errors: out of memory where there is no room for it.
pub(crate) fn retain(ordinal: usize) -> Outcome {
    let _lives = LIVES.lock();
    if RETAINED[ordinal].load(Ordering::Relaxed) == 0 {
        take_memory(ordinal)?;
    }
    RETAINED[ordinal].fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The primary context of a device is released; whether that was the last time. Its memory goes
/// with the device, which starts anew.
pub(crate) fn release(ordinal: usize) -> Outcome<bool> {
    let _lives = LIVES.lock();
    let less = |count: u32| count.checked_sub(1);
    let before = RETAINED[ordinal].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    before.map(|count| count == 1).map_err(|_| INVALID_CONTEXT)
}

/// A context that a program creates.
/// Errors: out of memory where there is no room for it.
pub(crate) fn create(ordinal: usize, flags: u32) -> Outcome<Raw> {
    let _lives = LIVES.lock();
    take_memory(ordinal)?;
    Ok(encode(ordinal, CREATED.lock().insert(Created::new(ordinal, flags))))
}

fn take_memory(ordinal: usize) -> Outcome {
    let device = process::device(ordinal)?;
    Ok(device.sim.take_context_memory(device.config.context_bytes)?)
}

/// A device starts anew: contexts that live on have their memory of it.
pub(crate) fn start_device_anew(ordinal: usize, config: &Config) -> Outcome {
    let _lives = LIVES.lock();
    process::replace_device(ordinal, config)?;
    let device = process::device(ordinal)?;
    let is_retained = RETAINED[ordinal].load(Ordering::Relaxed) > 0;
    let created = CREATED.lock();
    let created = created.iter().filter(|one| one.ordinal == ordinal).count() as u64;
    let bytes = (created + u64::from(is_retained)) * device.config.context_bytes;
    Ok(device.sim.keep_context_memory(bytes)?)
}

/// Takes a context that a program has created from those there are: its device, and what that calls
/// it.
pub(crate) fn take(context: Raw) -> Outcome<(usize, Context)> {
    let _lives = LIVES.lock();
    let ordinal = ordinal_of(context)?;
    let value = Handle::decode(context, Kind::Context).map_or(0, |handle| handle.value);
    let gone = CREATED.lock().remove(value).ok_or(INVALID_CONTEXT)?;
    let device = process::device(ordinal)?;
    device.sim.give_context_memory(device.config.context_bytes);
    Ok((ordinal, gone.context))
}

/// The current context of the calling thread; 0 when it has none.
pub(crate) fn current_raw() -> Raw {
    Raw(CURRENT.get())
}

/// The ordinal of the current context's device.
pub(crate) fn current_ordinal() -> Outcome<usize> {
    match CURRENT.get() {
        0 => Err(INVALID_CONTEXT),
        raw => find(Raw(raw)),
    }
}

/// The primary context of a device, as pointer attributes name it.
pub(crate) const fn primary(ordinal: usize) -> Raw {
    encode(ordinal, 0)
}

/// Replaces the current context; null takes it away.
pub(crate) fn set_top(context: Raw) {
    let (mut stack, height) = (STACK.get(), HEIGHT.get());
    match (height, context.0) {
        (0, 0) => return,
        (0, raw) => {
            stack[0] = raw;
            HEIGHT.set(1);
        }
        (height, 0) => HEIGHT.set(height - 1),
        (height, raw) => stack[height - 1] = raw,
    }
    STACK.set(stack);
    refresh();
}

pub(crate) fn push(context: Raw) -> Outcome {
    let (mut stack, height) = (STACK.get(), HEIGHT.get());
    *stack.get_mut(height).ok_or(INVALID_VALUE)? = context.0;
    STACK.set(stack);
    HEIGHT.set(height + 1);
    refresh();
    Ok(())
}

pub(crate) fn pop() -> Outcome<Raw> {
    let height = HEIGHT.get().checked_sub(1).ok_or(INVALID_CONTEXT)?;
    let top = STACK.get()[height];
    HEIGHT.set(height);
    refresh();
    Ok(Raw(top))
}

fn refresh() {
    let height = HEIGHT.get();
    CURRENT.set(if height == 0 { 0 } else { STACK.get()[height - 1] });
}

/// The given context's device; of the current one for null.
pub(crate) fn ordinal_or_current(context: Raw) -> Outcome<usize> {
    if context.0 == 0 { current_ordinal() } else { ordinal_of(context) }
}

/// The device of the calling thread's current context.
pub(crate) fn current() -> Outcome<Guard<Arc<Device>>> {
    process::device(current_ordinal()?)
}
