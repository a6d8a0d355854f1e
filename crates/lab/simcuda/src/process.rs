//! The process: whether it may call CUDA now, and its devices.
//!
//! Invariant: before `cuInit`, in a forked child and after exit began a call does nothing but say
//! so; none of these answers takes a lock.

use crate::abi::Raw;
use crate::config::Config;
use crate::device::{Device, ordinal_of_address};
use crate::handle::{Handle, Kind};
use crate::status::{
    DEINITIALIZED, INVALID_DEVICE, INVALID_HANDLE, NO_DEVICE, NOT_INITIALIZED, Outcome,
    SYSTEM_NOT_READY,
};
use crate::violation;
use crate::visible;
use arc_swap::{ArcSwap, Guard};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// What the process may do.
const BEFORE_INIT: u8 = 0;
const RUNNING: u8 = 1;
const EXITING: u8 = 2;
const FORKED_CHILD: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(BEFORE_INIT);

/// Functions that need no `cuInit`.
const EARLY: [&str; 7] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
];

/// Whether the process may call this function now.
pub(crate) fn admit(name: &str) -> Outcome {
    match PHASE.load(Ordering::Relaxed) {
        RUNNING => Ok(()),
        EXITING => Err(DEINITIALIZED),
        phase if EARLY.contains(&name) && (phase != FORKED_CHILD || name != "cuInit") => Ok(()),
        phase => {
            if phase == FORKED_CHILD {
                violation::note(&format!("{name} was called in a forked child"));
            }
            Err(NOT_INITIALIZED)
        }
    }
}

/// The process's settings, from the first time that anybody looks.
static CONFIG: OnceLock<Result<Config, String>> = OnceLock::new();

fn settings() -> &'static Result<Config, String> {
    CONFIG.get_or_init(|| from_environment("").inspect_err(|error| eprintln!("simcuda: {error}")))
}

/// The environment's settings with what `text` says changed.
fn from_environment(text: &str) -> Result<Config, String> {
    let environment = std::env::var("SIMCUDA_CONF").unwrap_or_default();
    let config = Config::default().with(&environment);
    config.map_err(|error| format!("SIMCUDA_CONF: {error}"))?.with(text)
}

/// Changes the environment's settings for this process, which must not have looked yet.
pub(crate) fn configure(text: &str) -> Result<(), String> {
    let config = from_environment(text)?;
    CONFIG.set(Ok(config)).map_err(|_| "the devices have been made already".to_owned())
}

/// The places of the visible devices, by ordinal: as the environment had them when CUDA started.
static PLACES: LazyLock<Vec<usize>> = LazyLock::new(places);

/// The same, as the environment has them now.
fn places() -> Vec<usize> {
    let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    visible::places(list.as_deref(), config().devices, config().named_devices)
}

static DEVICES: LazyLock<Box<[ArcSwap<Device>]>> = LazyLock::new(|| {
    let mut devices: Vec<Arc<Device>> = Vec::new();
    for ordinal in 0..PLACES.len() {
        let beside = devices.first().map(|first| &first.sim);
        devices.push(Arc::new(Device::new(ordinal, &PLACES, 0, config(), beside)));
    }
    devices.into_iter().map(ArcSwap::new).collect()
});

/// The environment's settings, or the initial ones where it has none that can be.
pub(crate) fn config() -> &'static Config {
    static INITIAL: LazyLock<Config> = LazyLock::new(Config::default);
    settings().as_ref().unwrap_or(&INITIAL)
}

pub(crate) fn device_count() -> usize {
    DEVICES.len()
}

pub(crate) fn place_count() -> usize {
    let named = places().iter().map(|place| place + 1).max();
    named.unwrap_or(0).max(config().devices)
}

/// The device at a place, if it is visible and CUDA has started.
pub(crate) fn started_at(place: usize) -> Option<Guard<Arc<Device>>> {
    let has_started = PHASE.load(Ordering::Relaxed) != BEFORE_INIT;
    has_started.then(|| device(ordinal_at(place)?).ok())?
}

/// The ordinal of the device at a place, if it is visible.
pub(crate) fn ordinal_at(place: usize) -> Option<usize> {
    PLACES.iter().position(|&one| one == place)
}

/// The device with this ordinal; it stays as it is while the guard is held.
pub(crate) fn device(ordinal: usize) -> Outcome<Guard<Arc<Device>>> {
    DEVICES.get(ordinal).map(ArcSwap::load).ok_or(INVALID_DEVICE)
}

pub(crate) fn device_at(ordinal: i32) -> Outcome<Guard<Arc<Device>>> {
    device(usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?)
}

/// The device of a handle, and the value behind it. Where stale handles end the process, one of a
/// stream, an event or a pool that is gone does.
pub(crate) fn resolve(raw: Raw, kind: Kind) -> Outcome<(Guard<Arc<Device>>, u64)> {
    let found = find(raw, kind);
    if config().sim.harsh.stale_handles_end {
        let is_alive = match &found {
            Ok((device, value)) => device.is_alive(kind, *value),
            Err(_) => !matches!(kind, Kind::Stream | Kind::Event | Kind::Pool),
        };
        if !is_alive {
            violation::note_fatal(&format!("{kind:?} {raw:?} is gone, or was nobody's"));
        }
    }
    found
}

/// The same, of a handle that may be gone.
pub(crate) fn find(raw: Raw, kind: Kind) -> Outcome<(Guard<Arc<Device>>, u64)> {
    let handle = Handle::decode(raw, kind).ok_or(INVALID_HANDLE)?;
    let device = device(handle.ordinal).map_err(|_| INVALID_HANDLE)?;
    let value = device.value(raw, kind)?;
    Ok((device, value))
}

pub(crate) fn devices() -> impl Iterator<Item = Guard<Arc<Device>>> {
    DEVICES.iter().map(ArcSwap::load)
}

/// The device whose addresses these are.
pub(crate) fn device_of_address(address: u64) -> Option<Guard<Arc<Device>>> {
    device(ordinal_of_address(address, device_count())?).ok()
}

/// Puts a fresh device instead of one.
pub(crate) fn replace_device(ordinal: usize, config: &Config) -> Outcome {
    let place = DEVICES.get(ordinal).ok_or(INVALID_DEVICE)?;
    let before = place.load();
    let beside = (!config.own_clock).then_some(&before.sim);
    let generation = before.generation.wrapping_add(1);
    let fresh = Device::new(ordinal, &PLACES, generation, config, beside);
    place.store(Arc::new(fresh));
    Ok(())
}

/// What is done at exit while everything is still there.
static LAST_ACT: OnceLock<fn()> = OnceLock::new();

/// `cuInit`
pub(crate) fn init(last_act: fn()) -> Outcome {
    settings().as_ref().map_err(|_| SYSTEM_NOT_READY)?;
    NO_DEVICE.when(device_count() == 0)?;
    let first = PHASE.compare_exchange(BEFORE_INIT, RUNNING, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() {
        let _ = LAST_ACT.set(last_act);
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        // SAFETY: as above.
        unsafe { libc::atexit(at_exit) };
    }
    Ok(())
}

extern "C" fn after_fork() {
    PHASE.store(FORKED_CHILD, Ordering::Relaxed);
}

/// Whoever calls later is told that the driver is shutting down.
extern "C" fn at_exit() {
    if PHASE.load(Ordering::Relaxed) == RUNNING {
        if let Some(last_act) = LAST_ACT.get() {
            let _ = std::panic::catch_unwind(last_act);
        }
        PHASE.store(EXITING, Ordering::Relaxed);
    }
}
