//! Streams: created ones, the legacy default stream, and each thread's own default stream.

use crate::abi::{HostFunction, Out, Raw};
use crate::context::current;
use crate::handle::Kind;
use crate::process::resolve;
use crate::queue::{Queue, note_poll, queue};
use crate::status::{INVALID_VALUE, NOT_READY, NOT_SUPPORTED, Outcome};
use crate::tables::{Node, StreamRecord, UserData};
use crate::{capture, context};
use drystone_driver::{Driver, Event, Stream};
use std::ffi::c_void;

/// Greatest priority; the least is 0.
const PRIORITY: i32 = -5;

/// How a stream was created. A default stream is of the context that is current.
pub(super) fn record_of(queue: &Queue) -> StreamRecord {
    let context = context::current_raw();
    let initial = StreamRecord { flags: 0, priority: 0, context, is_own: true };
    queue.device.tables.lock().streams.get(&queue.stream.0).copied().unwrap_or(initial)
}

/// The context of a stream. Drivers before 12.5 do not tell while it is being captured:
/// NVIDIA/cuda-python, `_get_conditional_context`.
pub(super) fn context_of(queue: &Queue) -> Outcome<Raw> {
    if queue.device.config.driver_version < 12050 {
        queue.device.sim.stream_id(queue.stream)?;
    }
    Ok(record_of(queue).context)
}

fn create(stream: Out<Raw>, flags: u32, priority: i32) -> Outcome {
    INVALID_VALUE.when(flags > 1)?;
    let device = current()?;
    stream.check()?;
    device.sim.wait_for_held("cuStreamCreate");
    let value = device.sim.create_stream_of(context::of(Raw(0))?).0;
    let priority = priority.clamp(PRIORITY, 0);
    let context = context::current_raw();
    let record = StreamRecord { flags, priority, context, is_own: false };
    device.tables.lock().streams.insert(value, record);
    stream.set(device.handle(Kind::Stream, value))
}

/// Calls a host function as if the stream had just drained.
fn call_host(queue: &Queue, function: impl FnOnce() + Send, node: Node) -> Outcome {
    if queue.push(0, || node)? {
        let until = queue.device.sim.busy_until_ns(queue.stream)?;
        queue.device.sim.advance_to(until);
        function();
    }
    Ok(())
}

/// Makes a stream wait for an event, of its own device or of another.
fn wait(queue: &Queue, event: Raw) -> Outcome {
    let (of, value) = resolve(event, Kind::Event)?;
    let Queue { device, stream } = queue;
    if of.ordinal == device.ordinal {
        device.sim.wait(*stream, Event(value))?;
        capture::join(device, *stream, value);
    } else if let Some(mark) = of.sim.mark(Event(value))? {
        device.sim.wait_mark(*stream, &mark)?;
    }
    Ok(())
}

pub(crate) type Callback = Option<unsafe extern "C" fn(Raw, i32, *mut c_void)>;

api! {
    fn cuStreamCreate(stream: Out<Raw>, flags: u32) |call| { create(stream, flags, 0) }

    fn cuStreamCreateWithPriority(stream: Out<Raw>, flags: u32, priority: i32) |call| {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2 = cuStreamDestroy (stream: Raw) |call| {
        let (device, value) = resolve(stream, Kind::Stream)?;
        device.sim.wait_for_held("cuStreamDestroy");
        device.sim.destroy_stream(Stream(value))?;
        device.tables.lock().streams.remove(&value);
        Ok(())
    }

    fn cuStreamQuery | cuStreamQuery_ptsz (stream: Raw) |call| {
        let queue = queue(call, stream)?;
        if queue.device.sim.query_stream(queue.stream)? {
            return Ok(());
        }
        let until_ns = queue.device.sim.busy_until_ns(queue.stream)?;
        note_poll(&queue.device, until_ns);
        Err(NOT_READY)
    }

    fn cuStreamSynchronize | cuStreamSynchronize_ptsz (stream: Raw) |call| {
        let queue = queue(call, stream)?;
        Ok(queue.device.sim.synchronize_stream(queue.stream)?)
    }

    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz (stream: Raw, event: Raw, flags: u32) |call| {
        INVALID_VALUE.when(flags > 1)?;
        wait(&queue(call, stream)?, event)
    }

    fn cuStreamGetPriority | cuStreamGetPriority_ptsz (stream: Raw, priority: Out<i32>) |call| {
        priority.set(record_of(&queue(call, stream)?).priority)
    }

    fn cuStreamGetFlags | cuStreamGetFlags_ptsz (stream: Raw, flags: Out<u32>) |call| {
        flags.set(record_of(&queue(call, stream)?).flags)
    }

    fn cuStreamGetId | cuStreamGetId_ptsz (stream: Raw, id: Out<u64>) |call| {
        let queue = queue(call, stream)?;
        id.set(queue.device.sim.stream_id(queue.stream)?)
    }

    fn cuStreamGetDevice | cuStreamGetDevice_ptsz (stream: Raw, device: Out<i32>) |call| {
        let queue = queue(call, stream)?;
        queue.device.sim.stream_id(queue.stream)?;
        device.set(queue.device.ordinal as i32)
    }

    fn cuStreamGetCtx | cuStreamGetCtx_ptsz (stream: Raw, context: Out<Raw>) |call| {
        context.set(context_of(&queue(call, stream)?)?)
    }

    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz (
        stream: Raw, context: Out<Raw>, green: Out<Raw>
    ) |call| {
        green.set_if_wanted(Raw(0));
        context.set(context_of(&queue(call, stream)?)?)
    }

    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz (
        stream: Raw, address: u64, bytes: usize, flags: u32
    ) |call| { queue(call, stream).map(drop) }

    fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz (to: Raw, from: Raw) |call| {
        queue(call, to)?;
        queue(call, from).map(drop)
    }

    fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz (
        stream: Raw, attribute: i32, value: Out<[u64; 8]>
    ) |call| {
        let queue = queue(call, stream)?;
        let priority = record_of(&queue).priority;
        value.set(match attribute {
            8 => [u64::from(priority as u32), 0, 0, 0, 0, 0, 0, 0],
            _ => [0; 8],
        })
    }

    fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz (
        stream: Raw, attribute: i32, value: Raw
    ) |call| { queue(call, stream).map(drop) }

    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz (
        stream: Raw, function: HostFunction, data: Raw
    ) |call| {
        let data = UserData(data.0 as *mut c_void);
        let entry = function.ok_or(INVALID_VALUE)?;
        let node = Node::Host { function: entry, data };
        // SAFETY: the program asked for this function to be called with this pointer.
        call_host(&queue(call, stream)?, move || unsafe { entry({ data }.0) }, node)
    }

    fn cuStreamAddCallback | cuStreamAddCallback_ptsz (
        stream: Raw, callback: Callback, data: Raw, flags: u32
    ) |call| {
        let queue = queue(call, stream)?;
        let entry = callback.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        let data = UserData(data.0 as *mut c_void);
        // SAFETY: the program asked for this function to be called with this stream and pointer.
        call_host(&queue, move || unsafe { entry(stream, 0, { data }.0) }, Node::Empty)
    }

    fn cuStreamGetGreenCtx | cuStreamGetGreenCtx_ptsz (stream: Raw, context: Out<Raw>) |call| {
        Err(NOT_SUPPORTED)
    }
}
