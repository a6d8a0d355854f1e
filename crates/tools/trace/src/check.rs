//! Proves the invariants of the model.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::{Event, Kind, Trace};

/// An invariant of [`Trace`] that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event}: {what}")]
pub struct Broken {
    /// Index of the event; the number of events if it is none's.
    pub event: usize,
    /// What does not hold.
    pub what: &'static str,
}

/// A block as its allocation described it.
#[derive(Clone, Copy)]
struct Live {
    bytes: u64,
    stream: u16,
    pool: u8,
}

impl Trace {
    /// Proves every invariant of the model, or names the first event that breaks one.
    pub fn check(&self) -> Result<(), Broken> {
        let mut live: Vec<Option<Live>> = vec![None; self.blocks as usize];
        let mut now_ns = 0;
        let mut free = BinaryHeap::new();
        let mut blocks = 0;
        let mut captures = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            let broken = |what| Broken { event: index, what };
            if event.time_ns < now_ns {
                return Err(broken("time goes back"));
            }
            if index == 0 && event.time_ns != 0 {
                return Err(broken("time does not start at 0"));
            }
            now_ns = event.time_ns;
            if event.stream >= self.streams || event.pool >= self.pools {
                return Err(broken("a stream or pool beyond their count"));
            }
            self.check_event(event, &mut live).map_err(broken)?;
            check_capture(event, &mut captures).map_err(broken)?;
            if event.kind == Kind::Free {
                free.push(Reverse(event.block));
            } else if event.kind == Kind::Allocate {
                if event.block != free.pop().map_or(blocks, |Reverse(block)| block) {
                    return Err(broken("a number that is not the smallest free one"));
                }
                blocks = blocks.max(event.block + 1);
            }
        }
        let at_end = |what| Broken { event: self.events.len(), what };
        if blocks != self.blocks {
            return Err(at_end("a count of blocks that is not one more than the largest"));
        }
        if self.streams == 0 || self.pools == 0 {
            return Err(at_end("no default stream or pool"));
        }
        self.check_tables()
    }

    fn check_event(&self, event: &Event, live: &mut [Option<Live>]) -> Result<(), &'static str> {
        let has_block = matches!(event.kind, Kind::Allocate | Kind::Free | Kind::RecordStream);
        if !has_block {
            let has_place = match event.kind {
                Kind::OutOfMemory => true,
                Kind::CaptureBegin | Kind::CaptureEnd => event.bytes == 0,
                _ => false,
            };
            let is_bare = event.bytes == 0 && event.stream == 0 && event.pool == 0;
            let is_right = event.block == 0 && (has_place || is_bare);
            return if is_right { Ok(()) } else { Err("fields that its kind does not have") };
        }
        let Some(slot) = live.get_mut(event.block as usize) else {
            return Err("a block beyond their count");
        };
        let Event { bytes, stream, pool, .. } = *event;
        match (event.kind, *slot) {
            (Kind::Allocate, Some(_)) => return Err("a live block is allocated"),
            (Kind::Allocate, None) if bytes == 0 => return Err("an allocation of nothing"),
            (Kind::Allocate, None) => *slot = Some(Live { bytes, stream, pool }),
            (_, None) => return Err("a block is used that is not live"),
            (_, Some(of)) if (bytes, pool) != (of.bytes, of.pool) => {
                return Err("a size or pool that is not its allocation's");
            }
            (Kind::Free, Some(of)) if stream != of.stream => {
                return Err("a stream that is not its allocation's");
            }
            (Kind::Free, Some(_)) => *slot = None,
            (_, Some(of)) if stream == of.stream => return Err("a use on the block's own stream"),
            (_, Some(_)) => {}
        }
        Ok(())
    }

    /// The tables beside the events.
    fn check_tables(&self) -> Result<(), Broken> {
        let mut last = None;
        for completion in &self.completions {
            let broken = |what| Broken { event: completion.event as usize, what };
            let event = self.events.get(completion.event as usize);
            let free = event.filter(|event| event.kind == Kind::Free);
            let free = free.ok_or_else(|| broken("a completion of what is no free"))?;
            if completion.time_ns < free.time_ns {
                return Err(broken("a free completes before it is asked for"));
            }
            if last.replace(completion.event).is_some_and(|last| last >= completion.event) {
                return Err(broken("completions are out of order"));
            }
        }
        if let Some(recording) = &self.recording {
            let events = self.events.len();
            if recording.addresses.len() != events || recording.stacks.len() != events {
                let what = "recorded addresses or stacks do not run parallel to the events";
                return Err(Broken { event: events, what });
            }
        }
        Ok(())
    }
}

/// Captures in the order of their streams; `open` are those that have begun.
fn check_capture(event: &Event, open: &mut Vec<(u16, u8)>) -> Result<(), &'static str> {
    let found = open.iter().position(|&(stream, _)| stream == event.stream);
    match (event.kind, found) {
        (Kind::CaptureBegin, Some(_)) => Err("a capture begins on a stream that is captured"),
        (Kind::CaptureBegin, None) if event.stream == 0 => Err("a capture of the default stream"),
        (Kind::CaptureBegin, None) => {
            open.push((event.stream, event.pool));
            Ok(())
        }
        (Kind::CaptureEnd, Some(at)) if open[at].1 == event.pool => {
            open.swap_remove(at);
            Ok(())
        }
        (Kind::CaptureEnd, _) => Err("a capture ends that has not begun"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Completion;

    fn event(kind: Kind, time_ns: u64, block: u32, stream: u16) -> Event {
        Event { time_ns, bytes: 8, block, stream, pool: 0, kind }
    }

    fn sound() -> Trace {
        let events = vec![
            event(Kind::Allocate, 0, 0, 0),
            event(Kind::Allocate, 1, 1, 1),
            event(Kind::RecordStream, 2, 0, 1),
            event(Kind::Free, 3, 0, 0),
            event(Kind::Allocate, 4, 0, 0),
            Event { bytes: 0, ..event(Kind::Iteration, 5, 0, 0) },
            Event { bytes: 0, ..event(Kind::CaptureBegin, 6, 0, 1) },
            Event { bytes: 0, ..event(Kind::HostWait, 6, 0, 0) },
            Event { bytes: 0, ..event(Kind::CaptureEnd, 6, 0, 1) },
        ];
        let completions = vec![Completion { event: 3, time_ns: 9 }];
        Trace { events, blocks: 2, streams: 2, pools: 1, completions, ..Trace::default() }
    }

    #[test]
    fn every_invariant_can_be_broken() {
        assert_eq!(sound().check(), Ok(()));
        type Break = fn(&mut Trace);
        let breaks: [(Break, &str); 22] = [
            (|t| t.events[3].time_ns = 1, "event 3: time goes back"),
            (|t| t.events[0].time_ns = 1, "event 0: time does not start at 0"),
            (|t| t.events[1].stream = 2, "event 1: a stream or pool beyond their count"),
            (|t| t.events[1].pool = 1, "event 1: a stream or pool beyond their count"),
            (|t| t.events[5].block = 1, "event 5: fields that its kind does not have"),
            (|t| t.events[5].bytes = 1, "event 5: fields that its kind does not have"),
            (|t| t.events[3].block = 7, "event 3: a block beyond their count"),
            (|t| t.events[4].block = 1, "event 4: a live block is allocated"),
            (|t| t.events[1].bytes = 0, "event 1: an allocation of nothing"),
            (|t| t.events[4].kind = Kind::Free, "event 4: a block is used that is not live"),
            (|t| t.events[3].bytes = 9, "event 3: a size or pool that is not its allocation's"),
            (|t| t.events[3].stream = 1, "event 3: a stream that is not its allocation's"),
            (|t| t.events[2].stream = 0, "event 2: a use on the block's own stream"),
            (|t| t.events[7].stream = 1, "event 7: fields that its kind does not have"),
            (|t| t.events[6].stream = 0, "event 6: a capture of the default stream"),
            (|t| t.events[8].stream = 0, "event 8: a capture ends that has not begun"),
            (
                |t| t.events[7] = t.events[6],
                "event 7: a capture begins on a stream that is captured",
            ),
            (|t| t.events[6].kind = Kind::CaptureEnd, "event 6: a capture ends that has not begun"),
            (|t| t.blocks = 3, "event 9: a count of blocks that is not one more than the largest"),
            (|t| t.completions[0].event = 2, "event 2: a completion of what is no free"),
            (|t| t.completions[0].time_ns = 2, "event 3: a free completes before it is asked for"),
            (|t| t.completions.push(t.completions[0]), "event 3: completions are out of order"),
        ];
        for (index, (breaks, message)) in breaks.into_iter().enumerate() {
            let mut trace = sound();
            breaks(&mut trace);
            let broken = trace.check().unwrap_err().to_string();
            assert_eq!(broken, message, "break {index}");
        }
        let mut trace = sound();
        (trace.events[0].block, trace.events[1].block) = (1, 0);
        assert_eq!(trace.check().unwrap_err().what, "a number that is not the smallest free one");
    }
}
