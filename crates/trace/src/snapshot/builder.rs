//! A snapshot of a replay: what an allocator did with a trace, for MemoryViz.
//!
//! Invariants: the entries end in the state that the address map shows, as the viewer replays
//! them backwards from there; memory that has been taken away (hollow blocks) is in no segment.

use std::collections::HashSet;

use serde_json::Value;

use super::{Action, Block, BlockState, Entry, PoolId, Segment, Snapshot};
use crate::model::{Event, Kind, Trace};
use crate::replay::{self, Layout, LayoutBlock, LayoutSegment};

/// Takes a replay's events one after the other.
///
/// Streams, pools, stacks and the time base are those of the trace's recording, if it has one;
/// otherwise they are the trace's own numbers.
pub struct SnapshotBuilder<'t> {
    trace: &'t Trace,
    entries: Vec<Entry>,
}

impl<'t> SnapshotBuilder<'t> {
    /// Starts with nothing having happened.
    pub fn new(trace: &'t Trace) -> Self {
        Self { trace, entries: Vec::new() }
    }

    /// An event of the trace has been carried out; `address` is where its block is or was. Only
    /// allocations and frees leave entries.
    pub fn event(&mut self, index: usize, address: u64) {
        match self.trace.events.get(index).map(|event| event.kind) {
            Some(Kind::Allocate) => self.push(Action::Alloc, index, address),
            Some(Kind::Free) => {
                self.push(Action::FreeRequested, index, address);
                self.push(Action::FreeCompleted, index, address);
            }
            _ => {}
        }
    }

    /// An allocation of the trace was refused when the device had `free_bytes` left.
    pub fn refused(&mut self, index: usize, free_bytes: u64) {
        self.push(Action::OutOfMemory, index, free_bytes);
    }

    fn push(&mut self, action: Action, index: usize, address: u64) {
        let Some(event) = self.trace.events.get(index) else { return };
        let Event { time_ns, bytes, stream, pool, .. } = *event;
        let stack = self.trace.recording.as_ref().and_then(|r| r.stacks.get(index).copied());
        let entry = self.entry(action, time_ns, address, bytes, stream, pool);
        self.entries.push(Entry { stack: stack.flatten(), ..entry });
    }

    /// Memory came from the device or went back to it: [`Action::SegmentAlloc`] and its kin.
    pub fn segment(&mut self, action: Action, time_ns: u64, segment: &LayoutSegment) {
        let LayoutSegment { address, bytes, stream, pool, .. } = *segment;
        let entry = self.entry(action, time_ns, address, bytes, stream, pool);
        self.entries.push(entry);
    }

    fn entry(
        &self,
        action: Action,
        time_ns: u64,
        address: u64,
        bytes: u64,
        stream: u16,
        pool: u8,
    ) -> Entry {
        let base_us = self.trace.recording.as_ref().map_or(0, |recording| recording.base_us);
        // Cannot overflow: 2^64 ns are fewer than 2^63 us.
        let time_us = base_us.saturating_add((time_ns / 1000) as i64);
        let (stream, pool) = (self.stream(stream), Some(self.pool(pool)));
        Entry { action, address, bytes, stream, time_us, pool, stack: None, note: None }
    }

    fn stream(&self, number: u16) -> u64 {
        let recording = self.trace.recording.as_ref();
        let raw = recording.and_then(|recording| recording.streams.get(usize::from(number)));
        raw.copied().unwrap_or(u64::from(number))
    }

    fn pool(&self, number: u8) -> PoolId {
        let recording = self.trace.recording.as_ref();
        let raw = recording.and_then(|recording| recording.pools.get(usize::from(number)));
        raw.copied().unwrap_or(PoolId(0, u32::from(number)))
    }

    /// The snapshot at the end of the replay. `settings` is a dictionary, such as the options the
    /// allocator ran with; null for none.
    pub fn finish(mut self, layout: &Layout, settings: Value) -> Snapshot {
        self.leave_pending(layout);
        let mut segments = Vec::new();
        for segment in &layout.segments {
            self.mapped_runs(segment, &mut segments);
        }
        let recording = self.trace.recording.as_ref();
        let stacks = recording.map(|recording| recording.snapshot.stacks.clone());
        Snapshot {
            segments,
            device_traces: vec![self.entries],
            settings,
            annotations: Vec::new(),
            stacks: stacks.unwrap_or_default(),
            notes: Vec::new(),
        }
    }

    /// Takes back the completion of frees that are still pending.
    fn leave_pending(&mut self, layout: &Layout) {
        let blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
        let mut pending: HashSet<u64> = blocks
            .filter(|block| block.state == replay::BlockState::Pending)
            .map(|block| block.address)
            .collect();
        if pending.is_empty() {
            return;
        }
        self.entries.reverse();
        self.entries.retain(|entry| {
            entry.action != Action::FreeCompleted || !pending.remove(&entry.address)
        });
        self.entries.reverse();
    }

    /// One segment for each stretch between hollow blocks, as PyTorch shows expandable ones.
    fn mapped_runs(&self, segment: &LayoutSegment, into: &mut Vec<Segment>) {
        let is_hollow = |block: &LayoutBlock| block.state == replay::BlockState::Hollow;
        for blocks in segment.blocks.split(is_hollow).filter(|blocks| !blocks.is_empty()) {
            let blocks: Vec<Block> = blocks.iter().map(block).collect();
            let mut run = Segment {
                device: 0,
                address: blocks[0].address,
                bytes: blocks.iter().map(|block| block.bytes).sum(),
                allocated_bytes: 0,
                active_bytes: 0,
                requested_bytes: 0,
                stream: self.stream(segment.stream),
                is_small: segment.is_small,
                pool: Some(self.pool(segment.pool)),
                is_expandable: Some(segment.is_expandable),
                stack: None,
                blocks,
            };
            run.sum_blocks();
            into.push(run);
        }
    }
}

fn block(block: &LayoutBlock) -> Block {
    let state = match block.state {
        replay::BlockState::Live => BlockState::Allocated,
        replay::BlockState::Pending => BlockState::PendingFree,
        replay::BlockState::Free | replay::BlockState::Hollow => BlockState::Inactive,
    };
    let LayoutBlock { address, bytes, requested_bytes, .. } = *block;
    Block { address, bytes, requested_bytes, state, stack: None }
}
