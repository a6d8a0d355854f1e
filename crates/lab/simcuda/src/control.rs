//! The control functions: what a test asks of the simulated devices beside CUDA's own API.
//!
//! They take no part in the process's phases: they answer before `cuInit` and after exit began.

use crate::abi::{Out, Raw, Text};
use crate::context::{current_ordinal, start_device_anew};
use crate::device::Device;
use crate::entry::{Call, Function};
use crate::handle::Kind;
use crate::process::device_at;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, Outcome, Status, UNKNOWN};
use crate::tables::Node;
use crate::{fault, process, queue, stats};
use drystone_driver::Stream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Carries out a control function; a device that does not exist has nothing of anything.
fn control<T>(failed: impl FnOnce(Status) -> T, body: impl FnOnce() -> Outcome<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(status)) => failed(status),
        Err(_) => failed(UNKNOWN),
    }
}

fn done(body: impl FnOnce() -> Outcome) -> i32 {
    control(|status| status.0, || body().map(|()| 0))
}

fn number(body: impl FnOnce() -> Outcome<u64>) -> u64 {
    control(|_| 0, body)
}

/// Writes as much of the text as fits and a NUL; returns how many bytes there are without it.
fn text(out: Out<u8>, room: u64, text: &str) -> Outcome<u64> {
    let kept = text.len().min((room as usize).saturating_sub(1));
    if room > 0 && !out.is_null() {
        for (index, byte) in text.bytes().take(kept).chain([0]).enumerate() {
            out.at(index).set(byte)?;
        }
    }
    Ok(text.len() as u64)
}

/// The device's stream behind a handle; a default stream is the current context's, or else that of
/// the device's primary one.
fn stream_of(device: &Device, raw: Raw) -> Outcome<Stream> {
    static NOBODY: Function = Function::new("simcuda", std::ptr::null());
    match raw.0 {
        0 | 1 if current_ordinal() != Ok(device.ordinal) => Ok(Stream::DEFAULT),
        0..=2 => Ok(queue::queue(&Call::new(&NOBODY), raw)?.stream),
        _ => Ok(Stream(device.value(raw, Kind::Stream)?)),
    }
}

/// Reports what the call has broken, as the API's own functions do.
fn with_report(name: &str, arguments: &dyn Fn() -> String, body: impl FnOnce() -> Outcome) -> i32 {
    let status = done(body);
    if crate::violation::is_pending() {
        crate::violation::report(name, status, arguments, process::config().strict);
    }
    status
}

/// A kernel's time that stands for what the settings give one.
const AS_CONFIGURED: u64 = u64::MAX;

/// Exports control functions, by what their bodies are: a deed (`does`), one that may be refused
/// (`tries`), or a figure (`counts`).
macro_rules! controls {
    (@does $body:block) => { done(|| { $body; Ok(()) }) };
    (@tries $body:block) => { done(|| $body) };
    (@counts $body:block) => { number(|| Ok($body)) };
    (@of does) => { i32 };
    (@of tries) => { i32 };
    (@of counts) => { u64 };
    ($(fn $name:ident($($value:ident: $type:ty),*) $kind:ident $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($value: $type),*) -> controls!(@of $kind) {
            controls!(@$kind $body)
        }
    )*};
}

controls! {
    fn simcuda_configure(conf: Text) tries {
        process::configure(&conf.get()?).map_err(|error| {
            eprintln!("simcuda: simcuda_configure: {error}");
            INVALID_VALUE
        })
    }

    fn simcuda_reset_device(ordinal: i32, conf: Text) does {
        let mut config = process::config().clone();
        if let Ok(text) = conf.get() {
            config = config.with(&text).map_err(|error| {
                eprintln!("simcuda: simcuda_reset_device: {error}");
                INVALID_VALUE
            })?;
        }
        let ordinal = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
        start_device_anew(ordinal, &config)?;
        stats::forget(ordinal)
    }

    fn simcuda_launch(ordinal: i32, stream: Raw, ns: u64) does {
        let device = device_at(ordinal)?;
        let stream = stream_of(&device, stream)?;
        let ns = if ns == AS_CONFIGURED { device.config.kernel_ns } else { ns };
        let queue = queue::Queue { device, stream };
        queue.push(ns, || Node::Kernel)?;
        queue.device.kernels.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn simcuda_advance_ns(ordinal: i32, ns: u64) does { device_at(ordinal)?.sim.advance_by(ns) }

    fn simcuda_now_ns(ordinal: i32) counts { device_at(ordinal)?.sim.now_ns() }

    fn simcuda_violation_count(ordinal: i32) counts { device_at(ordinal)?.sim.violation_count() }

    fn simcuda_violations(ordinal: i32, out: Out<u8>, room: u64) counts {
        let all = device_at(ordinal)?.sim.violations();
        let lines: Vec<String> = all.iter().map(ToString::to_string).collect();
        text(out, room, &lines.join("\n"))?
    }

    fn simcuda_calls(ordinal: i32) counts { device_at(ordinal)?.sim.calls() }

    fn simcuda_physical_bytes(ordinal: i32) counts { device_at(ordinal)?.sim.physical_bytes() }

    fn simcuda_peak_physical_bytes(ordinal: i32) counts {
        device_at(ordinal)?.sim.peak_physical_bytes()
    }

    fn simcuda_read_files(ordinal: i32, bytes: u64) does {
        device_at(ordinal)?.sim.read_files(bytes)
    }

    fn simcuda_host_programs(ordinal: i32, bytes: u64) does {
        device_at(ordinal)?.sim.set_host_programs(bytes)
    }

    fn simcuda_lowest_host_bytes(ordinal: i32) counts {
        device_at(ordinal)?.sim.host_free_and_lowest_bytes().map_or(0, |host| host.1)
    }

    fn simcuda_live_objects(ordinal: i32, out: Out<u8>, room: u64) counts {
        text(out, room, &live_objects(&*device_at(ordinal)?))?
    }

    fn simcuda_fail(ordinal: i32, name: Text, nth: u64, is_for_ever: i32, error: i32) tries {
        let (ordinal, name) = (usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?, name.get()?);
        fault::install(ordinal, &name, nth, is_for_ever != 0, Status(error))
    }

    fn simcuda_clear_faults(ordinal: i32) tries {
        fault::clear(usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?)
    }

    fn simcuda_faults_fired(ordinal: i32) counts {
        usize::try_from(ordinal).map_or(0, fault::fired)
    }

    fn simcuda_lose_context(ordinal: i32) does { device_at(ordinal)?.sim.lose_context() }

    fn simcuda_begin_exit(ordinal: i32) does { device_at(ordinal)?.sim.begin_exit() }

    fn simcuda_count(name: Text) does { stats::count(&name.get()?) }

    fn simcuda_workspace(address: u64) does { stats::workspace(address) }

    fn simcuda_convolution(likely: u64, most: u64) does { stats::convolution(likely, most) }

    fn simcuda_engine(bytes: u64) does { stats::engine(bytes) }

    fn simcuda_engine_bytes() counts { device_at(0)?.config.engine_bytes }

    fn simcuda_stats_json(out: Out<u8>, room: u64) counts { text(out, room, &stats::json())? }
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_check_alloc(ordinal: i32, address: u64, bytes: u64, stream: Raw) -> i32 {
    let arguments = || format!("{ordinal}, {address:#x}, {bytes}, {stream:?}");
    with_report("simcuda_check_alloc", &arguments, || {
        let device = device_at(ordinal)?;
        device.sim.check_alloc(address, bytes, stream_of(&device, stream)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_check_use(ordinal: i32, address: u64, stream: Raw) -> i32 {
    let arguments = || format!("{ordinal}, {address:#x}, {stream:?}");
    with_report("simcuda_check_use", &arguments, || {
        let device = device_at(ordinal)?;
        device.sim.check_use(address, stream_of(&device, stream)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_check_free(ordinal: i32, address: u64) -> i32 {
    let arguments = || format!("{ordinal}, {address:#x}");
    with_report("simcuda_check_free", &arguments, || {
        device_at(ordinal)?.sim.check_free(address);
        Ok(())
    })
}

/// What is still alive, a line for each kind. The default pool always is.
fn live_objects(device: &Device) -> String {
    let live = device.sim.live_objects();
    let (default, streams) = {
        let tables = device.tables.lock();
        let created = tables.streams.values().filter(|one| !one.is_own);
        (tables.pools.initial(), created.count())
    };
    let kinds = [
        ("reservations", live.reservations),
        ("handles", live.handles),
        ("mappings", live.mappings),
        ("plain allocations", live.plain_allocations),
        ("memory pools", live.memory_pools.saturating_sub(default)),
        ("stream-ordered allocations", live.async_allocations),
        ("events", live.events),
        ("streams", streams),
    ];
    let alive = kinds.into_iter().filter(|kind| kind.1 > 0);
    alive.map(|(kind, count)| format!("{count} {kind}\n")).collect()
}
