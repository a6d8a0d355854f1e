//! A replayed run as a PyTorch snapshot: what its own recorder would have written down.
//!
//! Invariants: the entries lead to the segments (played backwards from them, every address is
//! known); memory mapped and unmapped by the entries adds up to the segments. Growth is seen as
//! a change of reserved memory, so only then is the address map read.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::engine::{Addresses, Probe, pass};
use super::layout::{BlockState, Layout, LayoutBlock, LayoutSegment};
use super::replayed::{Refusal, Replayed};
use crate::model::{Event, Kind, Trace};
use crate::snapshot::{self, Action, Entry, Mark, PoolId, Segment, Snapshot, StackId};

mod held;

use held::{Held, held, runs, without};

/// Replays a trace over a fresh allocator and records it; `None` where the allocator has no
/// address map. Stacks and the names of streams and pools are those of the trace's recording, if
/// it comes from one.
pub fn record<R: Replayed + ?Sized>(trace: &Trace, allocator: &mut R) -> Option<Snapshot> {
    let before = allocator.layout()?;
    let mut recorder = Recorder {
        names: Names { trace },
        entries: Vec::with_capacity(trace.events.len() * 3 / 2),
        held: held(&before),
        reserved_bytes: allocator.usage().reserved_bytes,
        stacks: HashMap::new(),
        annotations: Vec::new(),
        iterations: 0,
        iteration_start_us: Names { trace }.time_us(0),
    };
    let mut addresses = Addresses::new(trace);
    // The recorder never breaks off.
    let _ = pass(trace, 0..trace.events.len(), 0, &mut addresses, allocator, &mut recorder);
    let layout = allocator.layout()?;
    recorder.compare(&layout, trace.events.last().map_or(0, |event| event.time_ns));
    Some(recorder.finish(&layout))
}

/// What the trace's numbers are called in a snapshot.
struct Names<'t> {
    trace: &'t Trace,
}

impl Names<'_> {
    fn device(&self) -> u32 {
        self.trace.recording.as_ref().map_or(0, |recording| recording.device)
    }

    fn stream(&self, stream: u16) -> u64 {
        let recording = self.trace.recording.as_ref();
        let handle = recording.and_then(|r| r.streams.get(usize::from(stream)).copied());
        handle.unwrap_or(u64::from(stream))
    }

    fn pool(&self, pool: u8) -> PoolId {
        let recording = self.trace.recording.as_ref();
        let id = recording.and_then(|r| r.pools.get(usize::from(pool)).copied());
        id.unwrap_or(PoolId(0, u32::from(pool)))
    }

    fn stack(&self, index: usize) -> Option<StackId> {
        let recording = self.trace.recording.as_ref()?;
        recording.stacks.get(index).copied().flatten()
    }

    fn time_us(&self, time_ns: u64) -> i64 {
        let base_us = self.trace.recording.as_ref().map_or(0, |recording| recording.base_us);
        base_us.saturating_add_unsigned(time_ns / 1000)
    }
}

/// Writes down a pass.
struct Recorder<'t> {
    names: Names<'t>,
    entries: Vec<Entry>,
    held: Vec<Held>,
    reserved_bytes: u64,
    /// Who allocated the block at an address, last time.
    stacks: HashMap<u64, StackId>,
    /// Annotations around every iteration, as PyTorch's profiler leaves them, and of what has no
    /// entries.
    annotations: Vec<Value>,
    iterations: u64,
    iteration_start_us: i64,
}

impl Recorder<'_> {
    fn entry(&mut self, action: Action, index: usize, event: &Event, address: u64) {
        self.entries.push(Entry {
            action,
            address,
            bytes: event.bytes,
            stream: self.names.stream(event.stream),
            time_us: self.names.time_us(event.time_ns),
            pool: Some(self.names.pool(event.pool)),
            stack: self.names.stack(index),
            note: None,
        });
    }

    fn iteration(&mut self, end_us: i64) {
        let name = format!("ProfilerStep#{}", self.iterations);
        self.annotate(&name, "START", self.iteration_start_us);
        self.annotate(&name, "END", end_us);
        self.iterations += 1;
        self.iteration_start_us = end_us;
    }

    fn annotate(&mut self, name: &str, stage: &str, time_us: i64) {
        let device = self.names.device();
        let note = json!({"device": device, "time_us": time_us, "name": name, "stage": stage});
        self.annotations.push(note);
    }

    /// Leaves an annotation of what has no entry.
    fn mark(&mut self, event: &Event) {
        let (stream, pool) = (self.names.stream(event.stream), self.names.pool(event.pool));
        let (mark, stages) = match event.kind {
            Kind::EmptyCache => (Mark::EmptyCache, &["START", "END"][..]),
            Kind::HostWait => (Mark::HostWait, &["START", "END"][..]),
            Kind::CaptureBegin => (Mark::Capture { stream, pool }, &["START"][..]),
            Kind::CaptureEnd => (Mark::Capture { stream, pool }, &["END"][..]),
            _ => return,
        };
        let time_us = self.names.time_us(event.time_ns);
        stages.iter().for_each(|stage| self.annotate(&mark.name(), stage, time_us));
    }

    /// Writes down how the held memory has changed, if it has.
    fn notice<R: Replayed + ?Sized>(&mut self, time_ns: u64, allocator: &R) {
        let reserved_bytes = allocator.usage().reserved_bytes;
        if reserved_bytes != self.reserved_bytes
            && let Some(layout) = allocator.layout()
        {
            self.reserved_bytes = reserved_bytes;
            self.compare(&layout, time_ns);
        }
    }

    fn compare(&mut self, layout: &Layout, time_ns: u64) {
        let now = held(layout);
        let gone = without(&self.held, &now);
        let new = without(&now, &self.held);
        for (held, plain, mapped) in gone
            .into_iter()
            .map(|held| (held, Action::SegmentFree, Action::SegmentUnmap))
            .chain(new.into_iter().map(|held| (held, Action::SegmentAlloc, Action::SegmentMap)))
        {
            self.entries.push(Entry {
                action: if held.is_expandable { mapped } else { plain },
                address: held.address,
                bytes: held.bytes,
                stream: self.names.stream(held.stream),
                time_us: self.names.time_us(time_ns),
                pool: Some(self.names.pool(held.pool)),
                stack: None,
                note: None,
            });
        }
        self.held = now;
    }

    /// A block that is still pending has not been seen complete: its last entry says too much.
    fn take_back_completions(&mut self, mut pending: HashSet<u64>) {
        let mut kept = Vec::with_capacity(self.entries.len());
        while let Some(entry) = self.entries.pop() {
            if entry.action != Action::FreeCompleted || !pending.remove(&entry.address) {
                kept.push(entry);
            }
        }
        kept.reverse();
        self.entries = kept;
    }

    fn finish(mut self, layout: &Layout) -> Snapshot {
        let blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
        let pending = blocks.filter(|block| block.state == BlockState::Pending);
        self.take_back_completions(pending.map(|block| block.address).collect());
        let device = self.names.device();
        let segments = layout.segments.iter().flat_map(|segment| self.segments(segment)).collect();
        let recording = self.names.trace.recording.as_ref();
        let mut device_traces = vec![Vec::new(); device as usize];
        device_traces.push(self.entries);
        Snapshot {
            segments,
            device_traces,
            annotations: self.annotations,
            stacks: recording.map(|r| r.snapshot.stacks.clone()).unwrap_or_default(),
            ..Snapshot::default()
        }
    }

    /// A segment's runs as a snapshot shows them.
    fn segments(&self, segment: &LayoutSegment) -> Vec<Segment> {
        let shown = |(held, range): (Held, std::ops::Range<usize>)| {
            let block = |block: &LayoutBlock| snapshot::Block {
                address: block.address,
                bytes: block.bytes,
                requested_bytes: block.requested_bytes,
                state: match block.state {
                    BlockState::Live => snapshot::BlockState::Allocated,
                    BlockState::Pending => snapshot::BlockState::PendingFree,
                    BlockState::Free | BlockState::Unmapped => snapshot::BlockState::Inactive,
                },
                stack: self.stacks.get(&block.address).copied(),
            };
            let mut shown = Segment {
                device: self.names.device(),
                address: held.address,
                bytes: held.bytes,
                stream: self.names.stream(segment.stream),
                is_small: segment.is_small,
                pool: Some(self.names.pool(segment.pool)),
                is_expandable: Some(segment.is_expandable),
                blocks: segment.blocks[range].iter().map(block).collect(),
                ..Segment::default()
            };
            shown.sum_blocks();
            shown
        };
        runs(segment).into_iter().map(shown).collect()
    }
}

impl<R: Replayed + ?Sized> Probe<R> for Recorder<'_> {
    fn allocated(&mut self, index: usize, event: &Event, address: u64, allocator: &R) {
        self.notice(event.time_ns, allocator);
        self.entry(Action::Alloc, index, event, address);
        match self.names.stack(index) {
            Some(stack) => drop(self.stacks.insert(address, stack)),
            None => drop(self.stacks.remove(&address)),
        }
    }

    fn refused(&mut self, index: usize, event: &Event, _: Refusal) -> std::ops::ControlFlow<()> {
        // A snapshot's entry has the device's free memory here; allocators do not tell it.
        self.entry(Action::OutOfMemory, index, event, 0);
        std::ops::ControlFlow::Continue(())
    }

    fn freed(&mut self, index: usize, event: &Event, address: u64, _: &R) {
        self.entry(Action::FreeRequested, index, event, address);
        self.entry(Action::FreeCompleted, index, event, address);
    }

    fn passed(&mut self, _: usize, event: &Event, allocator: &R) {
        self.notice(event.time_ns, allocator);
        if event.kind == Kind::Iteration {
            self.iteration(self.names.time_us(event.time_ns));
        } else {
            self.mark(event);
        }
    }
}

#[cfg(test)]
mod tests;
