//! The recorded program through PyTorch's allocators and Drystone.
//!
//! Invariant: requests that failed when recorded are asked for again, and freed at once: whoever
//! serves them would have gone on.

use anyhow::Result;
use drystone_models::{Candidate, DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_trace::model::{Event, Kind, Trace};
use drystone_trace::replay::{self, Options};

use crate::args::{Capacity, Quirks};
use crate::candidates::Device;

/// Those that are asked, and what people call them.
const ASKED: [(&str, &str); 3] = [
    (TORCH_NATIVE, "PyTorch"),
    (TORCH_EXPANDABLE, "expandable segments"),
    (DRYSTONE_VMM, "Drystone"),
];

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Replayed {
    pub(super) allocator: &'static str,
    /// What it holds at most, with ample memory.
    pub(super) held_bytes: u64,
    /// Whether it serves everything on the recorded device; absent where that is not known.
    pub(super) is_served: Option<bool>,
}

pub(super) fn all(trace: &Trace, device_bytes: Option<u64>) -> Result<Vec<Replayed>> {
    let trace = asked_again(trace);
    let ample = Device::untimed(Quirks::default(), None);
    let one = |&(name, allocator): &(&str, &'static str)| -> Result<Replayed> {
        let candidate = Candidate::named(name, "")?;
        let options = Options { timed_passes: 0, curve_points: 1 };
        let mut free = ample.build(&candidate, &trace)?;
        let held_bytes = replay::run(&trace, free.as_mut(), &options).metrics.peak_reserved_bytes;
        let is_served = device_bytes.map(|bytes| -> Result<bool> {
            let device = Device { capacity_bytes: Capacity::Bytes(bytes).resolve(0), ..ample };
            Ok(replay::completes(&trace, device.build(&candidate, &trace)?.as_mut()))
        });
        Ok(Replayed { allocator, held_bytes, is_served: is_served.transpose()? })
    };
    ASKED.iter().map(one).collect()
}

fn asked_again(trace: &Trace) -> Trace {
    let mut events = Vec::with_capacity(trace.events.len());
    let mut completions = trace.completions.clone();
    let mut next = completions.iter_mut().peekable();
    for (index, &event) in trace.events.iter().enumerate() {
        while let Some(completion) = next.next_if(|one| one.event as usize == index) {
            completion.event = events.len() as u32;
        }
        if event.kind == Kind::OutOfMemory {
            let request = Event { kind: Kind::Allocate, block: trace.blocks, ..event };
            events.extend([request, Event { kind: Kind::Free, ..request }]);
        } else {
            events.push(event);
        }
    }
    Trace {
        name: trace.name.clone(),
        events,
        blocks: trace.blocks + 1,
        completions,
        recording: None,
        ..*trace
    }
}

#[cfg(test)]
mod tests {
    use super::asked_again;
    use drystone_trace::model::{Completion, Event, Kind, Trace};

    #[test]
    fn a_refused_request_is_asked_again_and_completions_stay_with_their_frees() {
        let event =
            |kind, block, bytes| Event { time_ns: 0, bytes, block, stream: 0, pool: 0, kind };
        let trace = Trace {
            events: vec![
                event(Kind::Allocate, 0, 512),
                event(Kind::OutOfMemory, 0, 4096),
                event(Kind::Free, 0, 512),
            ],
            blocks: 1,
            streams: 1,
            pools: 1,
            completions: vec![Completion { event: 2, time_ns: 9 }],
            ..Trace::default()
        };
        let again = asked_again(&trace);
        let kinds: Vec<_> = again.events.iter().map(|event| (event.kind, event.block)).collect();
        assert_eq!(
            kinds,
            [(Kind::Allocate, 0), (Kind::Allocate, 1), (Kind::Free, 1), (Kind::Free, 0)]
        );
        assert_eq!(again.completions, [Completion { event: 3, time_ns: 9 }]);
        assert_eq!(again.blocks, 2);
    }
}
