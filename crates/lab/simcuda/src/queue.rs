//! [`Queue`]: the stream that a handle means in a call: a created one, the legacy default stream,
//! or the thread's own default stream.
//!
//! Invariant: a thread's own stream ends with its thread, and its handle is another stream's next.
//! What is made by the last destructors of a thread, after that, stays; so does one of a context
//! that the program made, until that ends.
//!
//! And polls: time stands still while a program asks again and again whether work is complete,
//! unless calls take time. So that no program hangs, a long row of answers "not ready" moves the
//! clock to where the answer changes.

use crate::abi::Raw;
use crate::capture;
use crate::config::DEVICES_MAX;
use crate::context::{self, current};
use crate::device::Device;
use crate::entry::Call;
use crate::handle::Kind;
use crate::process::{find, resolve};
use crate::status::{Outcome, STREAM_CAPTURE_IMPLICIT};
use crate::tables::{Node, StreamRecord};
use arc_swap::Guard;
use drystone_driver::Stream;
use drystone_sim::{Context, SimDevice};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

thread_local! {
    /// The thread's own default stream of each primary context, as a handle; 0 before its first
    /// use.
    static OWN: Cell<[u64; DEVICES_MAX]> = const { Cell::new([0; DEVICES_MAX]) };
    /// Dropped with the thread, if it had any.
    static ENDING: Ending = const { Ending };
}

/// Ends the thread's own streams.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        for own in OWN.replace([0; DEVICES_MAX]) {
            // Of a device that was reset it is gone; one that is being captured stays.
            if let Ok((device, value)) = find(Raw(own), Kind::Stream)
                && device.sim.destroy_stream(Stream(value)).is_ok()
            {
                device.tables.lock().streams.remove(&value);
            }
        }
    }
}

/// A stream and its device.
pub(crate) struct Queue {
    pub(crate) device: Guard<Arc<Device>>,
    pub(crate) stream: Stream,
}

/// The stream that a handle means in this call; refused where the call breaks the stream's capture.
pub(crate) fn queue(call: &Call, raw: Raw) -> Outcome<Queue> {
    let queue = find_queue(call, raw)?;
    capture::permit_on(call.name(), &queue.device, queue.stream)?;
    Ok(queue)
}

fn find_queue(call: &Call, raw: Raw) -> Outcome<Queue> {
    let is_own = raw.0 == PER_THREAD || (raw.0 == 0 && call.is_per_thread);
    if is_own {
        return own_queue();
    }
    if raw.0 == 0 || raw.0 == LEGACY {
        let queue = legacy_queue()?;
        if let Some(blocking) = captured_beside(&queue) {
            queue.device.sim.break_capture_of(blocking);
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        return Ok(queue);
    }
    let (device, value) = resolve(raw, Kind::Stream)?;
    Ok(Queue { device, stream: Stream(value) })
}

/// The same for a call that only asks whether the stream is captured: it is refused as others are,
/// and breaks nothing.
pub(crate) fn asked_queue(call: &Call, raw: Raw) -> Outcome<Queue> {
    if raw.0 != LEGACY && (raw.0 != 0 || call.is_per_thread) {
        return queue(call, raw);
    }
    let queue = legacy_queue()?;
    if captured_beside(&queue).is_some() { Err(STREAM_CAPTURE_IMPLICIT) } else { Ok(queue) }
}

/// A stream of the same context that is captured, and that its legacy default stream would wait
/// for: any use of that is invalid then. CUDA programming guide, CUDA graphs, prohibited and
/// unhandled operations; CUDA driver API, `cuStreamIsCapturing`.
fn captured_beside(legacy: &Queue) -> Option<Stream> {
    let device = &legacy.device;
    if !capture::any(device) {
        return None;
    }
    let context = context::current_raw();
    let tables = device.tables.lock();
    let blocking = |one: &StreamRecord| one.context == context && one.flags & NON_BLOCKING == 0;
    let beside = tables.streams.iter().filter(|(_, one)| blocking(one));
    let is_captured = |stream| matches!(device.sim.capture_of(stream), Ok(Some(_)));
    beside.map(|(&value, _)| Stream(value)).find(|&stream| is_captured(stream))
}

/// The legacy default stream of the current context.
fn legacy_queue() -> Outcome<Queue> {
    let device = current()?;
    match context::of(Raw(0))? {
        Context::PRIMARY => Ok(Queue { device, stream: Stream::DEFAULT }),
        created => Ok(default_queue(device, None, |sim| sim.create_default_stream_of(created))),
    }
}

/// A default stream of the current context, which a program has created; made at its first use.
fn default_queue(
    device: Guard<Arc<Device>>,
    thread: Option<ThreadId>,
    create: impl FnOnce(&SimDevice) -> Stream,
) -> Queue {
    let mut tables = device.tables.lock();
    let place = tables.defaults.entry((context::current_raw(), thread));
    let stream = Stream(*place.or_insert_with(|| create(&device.sim).0));
    drop(tables);
    Queue { device, stream }
}

fn own_queue() -> Outcome<Queue> {
    let device = current()?;
    let context = context::of(Raw(0))?;
    if context != Context::PRIMARY {
        let thread = Some(thread::current().id());
        return Ok(default_queue(device, thread, |sim| sim.create_stream_of(context)));
    }
    let mut all = OWN.get();
    let known = device.value(Raw(all[device.ordinal]), Kind::Stream);
    let stream = known.map(Stream).unwrap_or_else(|_| {
        let stream = device.sim.create_stream();
        // The default stream waits for it, as for those that a program creates without a flag.
        let context = context::current_raw();
        let record = StreamRecord { flags: 0, priority: 0, context, is_own: true };
        device.tables.lock().streams.insert(stream.0, record);
        all[device.ordinal] = device.handle(Kind::Stream, stream.0).0;
        OWN.set(all);
        // A thread that is ending has no end to wait for any more.
        let _ = ENDING.try_with(|_| ());
        stream
    });
    Ok(Queue { device, stream })
}

impl Queue {
    /// Whether it is a context's legacy default stream.
    pub(crate) fn is_legacy(&self) -> bool {
        self.stream == Stream::DEFAULT
    }

    /// The streams of its context that its default stream waits for, and they for it; of other
    /// threads' own, those that were used.
    pub(crate) fn blocking(&self) -> Vec<Stream> {
        let context = context::current_raw();
        let tables = self.device.tables.lock();
        let blocking = |one: &StreamRecord| one.context == context && one.flags & NON_BLOCKING == 0;
        let created = tables.streams.iter().filter(|(_, one)| blocking(one));
        created.map(|(&value, _)| Stream(value)).collect()
    }

    /// Queues work, which becomes part of the graph where the stream is being captured, and says
    /// whether it ran.
    pub(crate) fn push(&self, duration_ns: u64, node: impl FnOnce() -> Node) -> Outcome<bool> {
        self.device.sim.launch(self.stream, duration_ns)?;
        if !capture::any(&self.device) {
            return Ok(true);
        }
        capture::add(&self.device, self.stream, node)
    }
}

/// So many answers "not ready" in a row, of all threads, before the clock moves by itself.
const POLLS: u64 = 10_000;
static POLLED: AtomicU64 = AtomicU64::new(0);

/// Counts an answer "not ready".
pub(crate) fn note_poll(device: &Device, ready_ns: u64) {
    if POLLED.fetch_add(1, Ordering::Relaxed) >= POLLS {
        POLLED.store(0, Ordering::Relaxed);
        device.sim.advance_to(ready_ns);
    }
}
