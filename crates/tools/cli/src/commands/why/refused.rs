//! A request that failed when it was recorded, and what was there for it.

use drystone_trace::metrics::live_at;
use drystone_trace::model::{Kind, Trace};
use drystone_trace::snapshot::{Action, Recording};

/// The last request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Refused {
    pub(super) event: usize,
    /// Nanoseconds since the first event.
    pub(super) time_ns: u64,
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// Its dense stream number.
    pub(super) stream: usize,
    /// What the program had in use.
    pub(super) live_bytes: u64,
    /// What the allocator held then, where that was recorded.
    pub(super) reserved_bytes: Option<u64>,
    /// What the device had free then, where that was recorded.
    pub(super) free_bytes: Option<u64>,
    /// What this process had of the device: the two together, or the most that it ever held.
    pub(super) device_bytes: Option<u64>,
}

impl Refused {
    pub(super) fn last_of(trace: &Trace) -> Option<Self> {
        let is_refusal = |kind| kind == Kind::OutOfMemory;
        let (event, last) =
            trace.events.iter().enumerate().rfind(|(_, event)| is_refusal(event.kind))?;
        let recording = trace.recording.as_deref();
        let reserved_bytes = recording.map(|recording| reserved_at(recording, last.time_ns));
        let free_bytes = recording.and_then(free_of_last);
        // It may have given memory back right before, of which the device does not tell at once.
        let most_held = recording.map_or(0, |recording| recording.peak_reserved_bytes());
        let device_bytes = reserved_bytes.zip(free_bytes).map(|(held, free)| held + free);
        Some(Self {
            event,
            time_ns: last.time_ns,
            bytes: last.bytes,
            count: trace.events.iter().filter(|event| is_refusal(event.kind)).count() as u64,
            stream: usize::from(last.stream),
            live_bytes: live_at(trace, event).iter().map(|(_, event)| event.bytes).sum(),
            reserved_bytes,
            free_bytes,
            device_bytes: device_bytes.map(|bytes| bytes.max(most_held)),
        })
    }

    /// What the program would have in use with it.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.live_bytes.saturating_add(self.bytes)
    }

    /// Whether this process has less memory than that: no allocator helps. `None` where it is not
    /// known how much it has.
    pub(super) fn is_beyond_device(&self) -> Option<bool> {
        self.device_bytes.map(|device_bytes| self.needed_bytes() > device_bytes)
    }
}

fn reserved_at(recording: &Recording, time_ns: u64) -> u64 {
    let before = recording.reserved.iter().take_while(|point| point.time_ns <= time_ns);
    before.last().map_or(0, |point| point.bytes)
}

/// PyTorch's recorder keeps it where other entries have their address. Replays that are written as
/// snapshots leave it at 0.
fn free_of_last(recording: &Recording) -> Option<u64> {
    let entries = recording.snapshot.device_traces.get(recording.device as usize)?;
    let last = entries.iter().rfind(|entry| entry.action == Action::OutOfMemory)?;
    Some(last.address)
}
