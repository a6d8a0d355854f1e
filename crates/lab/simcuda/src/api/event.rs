//! Events. Each is of the context that was current when it was made.

use super::stream;
use crate::abi::{Out, Raw};
use crate::capture;
use crate::context::{self, current};
use crate::device::Device;
use crate::entry::Call;
use crate::handle::Kind;
use crate::process::resolve;
use crate::queue::{note_poll, queue};
use crate::status::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome};
use crate::tables::EventRecord;
use drystone_driver::{Driver, Event};

/// Blocking wait, no timing, IPC.
const FLAGS: u32 = 7;
const NO_TIMING: u32 = 2;
const IPC: u32 = 4;

fn record(call: &Call, event: Raw, stream: Raw) -> Outcome {
    let queue = queue(call, stream)?;
    let value = queue.device.value(event, Kind::Event)?;
    // CUDA driver API, `cuEventRecord`: the two must be of one context.
    if let Ok(of_event) = record_of(&queue.device, value)
        && of_event.context != stream::record_of(&queue).context
    {
        return Err(INVALID_HANDLE);
    }
    queue.device.sim.record_on(Event(value), queue.stream)?;
    if capture::any(&queue.device) {
        capture::record(&queue.device, queue.stream, value)?;
    }
    Ok(())
}

/// How an event was created; refused when it is none.
fn record_of(device: &Device, value: u64) -> Outcome<EventRecord> {
    device.tables.lock().events.get(&value).copied().ok_or(INVALID_HANDLE)
}

fn elapsed(start: Raw, end: Raw) -> Outcome<f32> {
    let mut times_ns = [0; 2];
    for (time_ns, event) in times_ns.iter_mut().zip([start, end]) {
        let (device, value) = resolve(event, Kind::Event)?;
        INVALID_HANDLE.when(record_of(&device, value)?.flags & NO_TIMING != 0)?;
        let mark = device.sim.mark(Event(value))?.ok_or(INVALID_HANDLE)?;
        NOT_READY.when(mark.ready_ns() > device.sim.now_ns())?;
        *time_ns = mark.ready_ns();
    }
    Ok(((times_ns[1] as f64 - times_ns[0] as f64) / 1e6) as f32)
}

api! {
    fn cuEventCreate(event: Out<Raw>, flags: u32) |call| {
        INVALID_VALUE.when(flags & !FLAGS != 0 || flags & (IPC | NO_TIMING) == IPC)?;
        let device = current()?;
        event.check()?;
        let value = device.sim.create_event()?.0;
        let record = EventRecord { flags, context: context::current_raw() };
        device.tables.lock().events.insert(value, record);
        event.set(device.handle(Kind::Event, value))
    }

    fn cuEventDestroy_v2 = cuEventDestroy (event: Raw) |call| {
        let (device, value) = resolve(event, Kind::Event)?;
        device.sim.destroy_event(Event(value))?;
        device.tables.lock().events.remove(&value);
        Ok(())
    }

    fn cuEventRecord | cuEventRecord_ptsz (event: Raw, stream: Raw) |call| {
        record(call, event, stream)
    }

    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz (
        event: Raw, stream: Raw, flags: u32
    ) |call| {
        INVALID_VALUE.when(flags > 1)?;
        record(call, event, stream)
    }

    fn cuEventQuery(event: Raw) |call| {
        let (device, value) = resolve(event, Kind::Event)?;
        if device.sim.query(Event(value))? {
            return Ok(());
        }
        if let Some(mark) = device.sim.mark(Event(value))? {
            note_poll(&device, mark.ready_ns());
        }
        Err(NOT_READY)
    }

    fn cuEventSynchronize(event: Raw) |call| {
        let (device, value) = resolve(event, Kind::Event)?;
        Ok(device.sim.synchronize_event(Event(value))?)
    }

    fn cuEventElapsedTime_v2 = cuEventElapsedTime (ms: Out<f32>, start: Raw, end: Raw) |call| {
        ms.check()?.set(elapsed(start, end)?)
    }
}
