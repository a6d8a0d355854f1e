//! Contexts: one primary for each device and those that a program creates; which one is current
//! in each thread.
//!
//! Contexts of one device share all it has. They survive a reset of the device by the control
//! functions, because programs keep the primary one for ever.

use crate::abi::{In, Out, Raw};
use crate::config::DEVICES_MAX;
use crate::device::{current, resolve};
use crate::handle::{Handle, Kind};
use crate::process;
use crate::status::{
    CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, Outcome,
    PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED,
    UNSUPPORTED_LIMIT,
};
use drystone_driver::{Driver, ErrorCode, Event, Stream};
use drystone_sim::HandleTable;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// How deep contexts can be pushed in one thread.
const DEPTH: usize = 32;
/// Values of the contexts that programs create; 0 is the primary one of its device.
const FIRST_CREATED: u64 = 16;
/// Flags that a context may have: scheduling, mapping, and those of later versions.
const FLAGS: u32 = 0xff;

thread_local! {
    /// The thread's stack of contexts; the last one is current. No destructor, so that it answers
    /// to the last call of a thread.
    static STACK: Cell<[u64; DEPTH]> = const { Cell::new([0; DEPTH]) };
    static HEIGHT: Cell<usize> = const { Cell::new(0) };
    /// The last one, kept apart because every call asks for it.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// How often each primary context is retained.
static RETAINED: [AtomicU32; DEVICES_MAX] = [const { AtomicU32::new(0) }; DEVICES_MAX];
static PRIMARY_FLAGS: [AtomicU32; DEVICES_MAX] = [const { AtomicU32::new(0) }; DEVICES_MAX];

struct Created {
    ordinal: usize,
    flags: u32,
}

static CREATED: Mutex<HandleTable<Created>> = Mutex::new(HandleTable::new(FIRST_CREATED));

const fn encode(ordinal: usize, value: u64) -> Raw {
    Handle { kind: Kind::Context, ordinal, generation: 0, value }.encode()
}

/// The ordinal of a context's device.
fn ordinal_of(context: Raw) -> Outcome<usize> {
    let handle = Handle::decode(context, Kind::Context).ok_or(INVALID_CONTEXT)?;
    if handle.ordinal >= process::device_count() {
        return Err(INVALID_CONTEXT);
    }
    let is_alive = match handle.value {
        0 => RETAINED[handle.ordinal].load(Ordering::Relaxed) > 0,
        value => CREATED.lock().get(value).is_some_and(|one| one.ordinal == handle.ordinal),
    };
    if is_alive { Ok(handle.ordinal) } else { Err(CONTEXT_IS_DESTROYED) }
}

/// The current context of the calling thread; 0 when it has none.
pub(crate) fn current_raw() -> Raw {
    Raw(CURRENT.get())
}

/// The ordinal of the current context's device.
pub(crate) fn current_ordinal() -> Outcome<usize> {
    match CURRENT.get() {
        0 => Err(INVALID_CONTEXT),
        raw => ordinal_of(Raw(raw)),
    }
}

/// The primary context of a device, as pointer attributes name it.
pub(crate) const fn primary(ordinal: usize) -> Raw {
    encode(ordinal, 0)
}

fn set_top(context: Raw) {
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

fn push(context: Raw) -> Outcome {
    let (mut stack, height) = (STACK.get(), HEIGHT.get());
    *stack.get_mut(height).ok_or(INVALID_VALUE)? = context.0;
    STACK.set(stack);
    HEIGHT.set(height + 1);
    refresh();
    Ok(())
}

fn pop() -> Outcome<Raw> {
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

fn device_index(device: i32) -> Outcome<usize> {
    let index = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
    if index < process::device_count() { Ok(index) } else { Err(INVALID_DEVICE) }
}

fn create(context: Out<Raw>, flags: u32, device: i32) -> Outcome {
    let ordinal = device_index(device)?;
    if flags & !FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    context.check()?;
    let value = CREATED.lock().insert(Created { ordinal, flags });
    let raw = encode(ordinal, value);
    push(raw)?;
    context.set(raw)
}

/// The given context's device; of the current one for null.
fn ordinal_or_current(context: Raw) -> Outcome<usize> {
    if context.0 == 0 { current_ordinal() } else { ordinal_of(context) }
}

/// Initial value, as a GPU of compute capability 9.0 has it.
fn limit_of(limit: i32) -> Outcome<usize> {
    match limit {
        0 => Ok(1024),
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        3 => Ok(2),
        4 => Ok(2048),
        5 => Ok(64),
        6..=9 => Ok(0),
        _ => Err(UNSUPPORTED_LIMIT),
    }
}

static LIMITS: Mutex<[Option<usize>; 10]> = Mutex::new([None; 10]);

api! {
    fn cuDevicePrimaryCtxRetain(context: Out<Raw>, device: i32) |call| {
        let ordinal = device_index(device)?;
        context.set(primary(ordinal))?;
        RETAINED[ordinal].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2 = cuDevicePrimaryCtxRelease (device: i32) |call| {
        let less = |count: u32| count.checked_sub(1);
        let count = &RETAINED[device_index(device)?];
        let released = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        released.map(drop).map_err(|_| INVALID_CONTEXT)
    }

    fn cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxReset (device: i32) |call| {
        let ordinal = device_index(device)?;
        let config = process::device(ordinal)?.config.clone();
        process::replace_device(ordinal, &config)
    }

    fn cuDevicePrimaryCtxSetFlags_v2 = cuDevicePrimaryCtxSetFlags (device: i32, flags: u32) |call| {
        if flags & !FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        PRIMARY_FLAGS[device_index(device)?].store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |call| {
        let ordinal = device_index(device)?;
        flags.check()?;
        active.set((RETAINED[ordinal].load(Ordering::Relaxed) > 0).into())?;
        flags.set(PRIMARY_FLAGS[ordinal].load(Ordering::Relaxed))
    }

    fn cuCtxCreate_v2 = cuCtxCreate (context: Out<Raw>, flags: u32, device: i32) |call| {
        create(context, flags, device)
    }

    fn cuCtxCreate_v3(
        context: Out<Raw>, affinities: In<u8>, count: i32, flags: u32, device: i32
    ) |call| { create(context, flags, device) }

    fn cuCtxCreate_v4(context: Out<Raw>, parameters: In<u8>, flags: u32, device: i32) |call| {
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2 = cuCtxDestroy (context: Raw) |call| {
        ordinal_of(context)?;
        let value = Handle::decode(context, Kind::Context).map_or(0, |handle| handle.value);
        CREATED.lock().remove(value).ok_or(INVALID_CONTEXT)?;
        if current_raw() == context {
            pop()?;
        }
        Ok(())
    }

    fn cuCtxAttach(context: Out<Raw>, flags: u32) |call| {
        current_ordinal()?;
        context.set(current_raw())
    }

    fn cuCtxDetach(context: Raw) |call| { ordinal_of(context).map(drop) }

    fn cuCtxPushCurrent_v2 = cuCtxPushCurrent (context: Raw) |call| {
        ordinal_of(context)?;
        push(context)
    }

    fn cuCtxPopCurrent_v2 = cuCtxPopCurrent (context: Out<Raw>) |call| {
        let top = pop()?;
        context.set_if_wanted(top);
        Ok(())
    }

    fn cuCtxSetCurrent(context: Raw) |call| {
        if context.0 != 0 {
            ordinal_of(context)?;
        }
        set_top(context);
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<Raw>) |call| { context.set(current_raw()) }

    fn cuCtxGetDevice(device: Out<i32>) |call| { device.set(current_ordinal()? as i32) }

    fn cuCtxGetDevice_v2(device: Out<i32>, context: Raw) |call| {
        device.set(ordinal_or_current(context)? as i32)
    }

    fn cuCtxGetFlags(flags: Out<u32>) |call| {
        let ordinal = current_ordinal()?;
        let value = Handle::decode(current_raw(), Kind::Context).map_or(0, |handle| handle.value);
        let created = CREATED.lock().get(value).map(|one| one.flags);
        flags.set(created.unwrap_or_else(|| PRIMARY_FLAGS[ordinal].load(Ordering::Relaxed)))
    }

    fn cuCtxSetFlags(flags: u32) |call| {
        if flags & !FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        PRIMARY_FLAGS[current_ordinal()?].store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(context: Raw, id: Out<u64>) |call| {
        ordinal_or_current(context)?;
        let raw = if context.0 == 0 { current_raw() } else { context };
        id.set((raw.0 & 0xff_ffff_ffff) + 1)
    }

    fn cuCtxGetApiVersion(context: Raw, version: Out<u32>) |call| {
        ordinal_or_current(context)?;
        version.set(3020)
    }

    fn cuCtxSynchronize() |call| { Ok(current()?.sim.synchronize_device()?) }

    fn cuCtxSynchronize_v2(context: Raw) |call| {
        Ok(process::device(ordinal_or_current(context)?)?.sim.synchronize_device()?)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) |call| {
        current_ordinal()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: i32) |call| {
        current_ordinal()?;
        let initial = limit_of(limit)?;
        value.set(LIMITS.lock()[limit as usize].unwrap_or(initial))
    }

    fn cuCtxSetLimit(limit: i32, value: usize) |call| {
        current_ordinal()?;
        limit_of(limit)?;
        LIMITS.lock()[limit as usize] = Some(value);
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: Out<i32>) |call| {
        current_ordinal()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(config: i32) |call| { current_ordinal().map(drop) }

    fn cuCtxGetSharedMemConfig(config: Out<i32>) |call| {
        current_ordinal()?;
        config.set(1)
    }

    fn cuCtxSetSharedMemConfig(config: i32) |call| { current_ordinal().map(drop) }

    fn cuCtxResetPersistingL2Cache() |call| { current_ordinal().map(drop) }

    fn cuCtxGetExecAffinity(parameter: Out<[u32; 2]>, kind: i32) |call| {
        current_ordinal()?;
        parameter.set([0, crate::attribute::MULTIPROCESSORS as u32])
    }

    fn cuCtxRecordEvent(context: Raw, event: Raw) |call| {
        let device = process::device(ordinal_or_current(context)?)?;
        let value = device.value(event, Kind::Event)?;
        Ok(device.sim.record(Event(value), Stream::DEFAULT)?)
    }

    fn cuCtxWaitEvent(context: Raw, event: Raw) |call| {
        let device = process::device(ordinal_or_current(context)?)?;
        let (of, value) = resolve(event, Kind::Event)?;
        if of.ordinal == device.ordinal {
            return Ok(device.sim.wait(Stream::DEFAULT, Event(value))?);
        }
        if let Some(mark) = of.sim.mark(Event(value))? {
            device.sim.wait_mark(Stream::DEFAULT, &mark)?;
        }
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: Raw, flags: u32) |call| {
        let device = current()?;
        let other = ordinal_of(peer)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if device.peers.load(Ordering::Relaxed) & 1 << other != 0 {
            return Err(PEER_ACCESS_ALREADY_ENABLED);
        }
        device.sim.enable_peer_access(other as u32).map_err(|error| match error.code {
            ErrorCode::NotSupported => PEER_ACCESS_UNSUPPORTED,
            ErrorCode::InvalidValue => INVALID_DEVICE,
            code => code.into(),
        })?;
        device.peers.fetch_or(1 << other, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxDisablePeerAccess(peer: Raw) |call| {
        let bit = 1 << ordinal_of(peer)?;
        let before = current()?.peers.fetch_and(!bit, Ordering::Relaxed);
        if before & bit != 0 { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    }
}
