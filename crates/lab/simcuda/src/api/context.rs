//! Contexts, limits, and access of devices to each other.

use super::host;
use crate::abi::{In, Out, Raw};
use crate::config::DEVICES_MAX;
use crate::context::{
    CREATED, RETAINED, current, current_ordinal, current_raw, ordinal_of, ordinal_or_current, pop,
    primary, push, set_top,
};
use crate::handle::{Handle, Kind};
use crate::process::resolve;
use crate::status::{
    INVALID_DEVICE, INVALID_VALUE, Outcome, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED, UNSUPPORTED_LIMIT,
};
use crate::{backing, context, process, stats};
use drystone_driver::{Driver, ErrorCode, Event, Stream};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Flags that a context may have: scheduling, mapping, and those of later versions.
const FLAGS: u32 = 0xff;

/// Flags of the primary contexts.
static PRIMARY_FLAGS: [AtomicU32; DEVICES_MAX] = [const { AtomicU32::new(0) }; DEVICES_MAX];

fn device_index(device: i32) -> Outcome<usize> {
    let index = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
    if index < process::device_count() { Ok(index) } else { Err(INVALID_DEVICE) }
}

fn create(out: Out<Raw>, flags: u32, device: i32) -> Outcome {
    let ordinal = device_index(device)?;
    INVALID_VALUE.when(flags & !FLAGS != 0)?;
    out.check()?;
    let raw = context::create(ordinal, flags)?;
    push(raw).or_else(|status| context::take(raw).and(Err(status)))?;
    out.set(raw)
}

/// Ends a context and what it has: CUDA driver API, `cuCtxDestroy`, which names that.
fn destroy(context: Raw) -> Outcome {
    let (ordinal, gone) = context::take(context)?;
    let device = process::device(ordinal)?;
    for (address, bytes) in device.sim.destroy_context(gone) {
        backing::close(device.backing.as_ref(), address, bytes);
    }
    let events = device.tables.lock().end_context(context);
    for event in events {
        let _ = device.sim.destroy_event(Event(event));
    }
    host::end_context(context);
    if current_raw() == context {
        pop()?;
    }
    Ok(())
}

/// Waits for one context's work: CUDA driver API, `cuCtxSynchronize`.
fn synchronize(context: Raw) -> Outcome {
    let device = process::device(ordinal_or_current(context)?)?;
    Ok(device.sim.synchronize_context(context::of(context)?)?)
}

/// The program or the last release resets a device.
fn reset(ordinal: usize) -> Outcome {
    let device = process::device(ordinal)?;
    stats::keep(&device);
    let config = device.config.clone();
    RESETS[ordinal].fetch_add(1, Ordering::Relaxed);
    context::start_device_anew(ordinal, &config)
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

/// How often each device was reset by the program.
static RESETS: [AtomicU32; DEVICES_MAX] = [const { AtomicU32::new(0) }; DEVICES_MAX];
static LIMITS: Mutex<[Option<usize>; 10]> = Mutex::new([None; 10]);

api! {
    fn cuDevicePrimaryCtxRetain(context: Out<Raw>, device: i32) |call| {
        let ordinal = device_index(device)?;
        context.check()?;
        context::retain(ordinal)?;
        context.set(primary(ordinal))
    }

    fn cuDevicePrimaryCtxRelease_v2 = cuDevicePrimaryCtxRelease (device: i32) |call| {
        let ordinal = device_index(device)?;
        if context::release(ordinal)? { reset(ordinal) } else { Ok(()) }
    }

    fn cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxReset (device: i32) |call| {
        reset(device_index(device)?)
    }

    fn cuDevicePrimaryCtxSetFlags_v2 = cuDevicePrimaryCtxSetFlags (device: i32, flags: u32) |call| {
        INVALID_VALUE.when(flags & !FLAGS != 0)?;
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
        destroy(context)
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
        INVALID_VALUE.when(flags & !FLAGS != 0)?;
        PRIMARY_FLAGS[current_ordinal()?].store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(context: Raw, id: Out<u64>) |call| {
        let ordinal = ordinal_or_current(context)?;
        let raw = if context.0 == 0 { current_raw() } else { context };
        // A context that was reset is another one.
        let resets = u64::from(RESETS[ordinal].load(Ordering::Relaxed));
        id.set((resets << 40) + (raw.0 & 0xff_ffff_ffff) + 1)
    }

    fn cuCtxGetApiVersion(context: Raw, version: Out<u32>) |call| {
        ordinal_or_current(context)?;
        version.set(3020)
    }

    fn cuCtxSynchronize() |call| { synchronize(Raw(0)) }

    fn cuCtxSynchronize_v2(context: Raw) |call| { synchronize(context) }

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
        let device = process::device(current_ordinal()?)?;
        parameter.set([0, device.config.multiprocessors as u32])
    }

    fn cuCtxRecordEvent(context: Raw, event: Raw) |call| {
        let device = process::device(ordinal_or_current(context)?)?;
        let value = device.value(event, Kind::Event)?;
        Ok(device.sim.record_on(Event(value), Stream::DEFAULT)?)
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
        INVALID_VALUE.when(flags != 0)?;
        PEER_ACCESS_ALREADY_ENABLED.when(device.peers.load(Ordering::Relaxed) & 1 << other != 0)?;
        let place = process::device(other)?.place;
        device.sim.enable_peer_access(place as u32).map_err(|error| match error.code {
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
