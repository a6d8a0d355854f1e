//! [`Queue`]: the stream that a handle means in a call: a created one, the legacy default stream,
//! or the thread's own default stream.
//!
//! Invariant: a thread's own stream ends with its thread, and its handle is another stream's next.
//! What is made by the last destructors of a thread, after that, stays.

use crate::abi::Raw;
use crate::capture;
use crate::config::DEVICES_MAX;
use crate::context::current;
use crate::device::Device;
use crate::entry::Call;
use crate::handle::Kind;
use crate::process::{find, resolve};
use crate::status::Outcome;
use crate::tables::Node;
use arc_swap::Guard;
use drystone_driver::Stream;
use std::cell::Cell;
use std::sync::Arc;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

thread_local! {
    /// The thread's own default stream on each device, as a handle; 0 before its first use.
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

/// The stream that a handle means in this call.
pub(crate) fn queue(call: &Call, raw: Raw) -> Outcome<Queue> {
    let is_own = raw.0 == PER_THREAD || (raw.0 == 0 && call.is_per_thread);
    if is_own {
        return own_queue();
    }
    if raw.0 == 0 || raw.0 == LEGACY {
        return Ok(Queue { device: current()?, stream: Stream::DEFAULT });
    }
    let (device, value) = resolve(raw, Kind::Stream)?;
    Ok(Queue { device, stream: Stream(value) })
}

fn own_queue() -> Outcome<Queue> {
    let device = current()?;
    let mut all = OWN.get();
    let known = device.value(Raw(all[device.ordinal]), Kind::Stream);
    let stream = known.map(Stream).unwrap_or_else(|_| {
        let stream = device.sim.create_stream();
        all[device.ordinal] = device.handle(Kind::Stream, stream.0).0;
        OWN.set(all);
        // A thread that is ending has no end to wait for any more.
        let _ = ENDING.try_with(|_| ());
        stream
    });
    Ok(Queue { device, stream })
}

impl Queue {
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
