//! One device's trace in the making: event after event, then the whole.
//!
//! Invariants: time never goes back; addresses and stacks run parallel to the events.

use std::collections::HashMap;
use std::sync::Arc;

use super::annotations::Told;
use crate::codec::builder::{Builder, OTHER_STREAM};
use crate::codec::error::{Place, Problem};
use crate::codec::limits::Limits;
use crate::model::{Completion, Kind, Trace};
use crate::snapshot::{
    Action, Entry, Mark, PoolId, Recording, ReservedPoint, Segment, Snapshot, StackId,
};

/// One device's trace in the making.
pub(super) struct Converter<'s> {
    snapshot: &'s Arc<Snapshot>,
    pub(super) device: u32,
    pub(super) entries: &'s [Entry],
    pub(super) segments: Vec<&'s Segment>,
    /// By address: the last entry that made a segment there.
    made: HashMap<u64, usize>,
    pub(super) base_us: i64,
    now_ns: u64,
    builder: Builder,
    addresses: Vec<u64>,
    stacks: Vec<Option<StackId>>,
    /// By dense number.
    pools: Vec<PoolId>,
    completions: Vec<Completion>,
    /// Number of the block at an address.
    live: HashMap<u64, u32>,
    /// Index in `completions` of the block at an address.
    pending: HashMap<u64, usize>,
    missed_frees: u32,
}

pub(super) type Step<T = ()> = Result<T, Problem>;

impl<'s> Converter<'s> {
    /// With nothing taken yet.
    pub(super) fn new(snapshot: &'s Arc<Snapshot>, device: u32, limits: &Limits) -> Self {
        let entries = snapshot.device_traces.get(device as usize).map_or(&[][..], Vec::as_slice);
        let mut segments: Vec<&Segment> =
            snapshot.segments.iter().filter(|segment| segment.device == device).collect();
        segments.sort_by_key(|segment| segment.address);
        let made = entries.iter().enumerate();
        let made = made.filter(|(_, entry)| entry.action == Action::SegmentAlloc);
        Self {
            snapshot,
            device,
            entries,
            segments,
            made: made.map(|(index, entry)| (entry.address, index)).collect(),
            base_us: entries.first().map_or(0, |entry| entry.time_us),
            now_ns: 0,
            builder: Builder::new(limits),
            addresses: Vec::new(),
            stacks: Vec::new(),
            pools: vec![PoolId::default()],
            completions: Vec::new(),
            live: HashMap::new(),
            pending: HashMap::new(),
            missed_frees: 0,
        }
    }

    /// Where an entry stands in the file.
    pub(super) fn place(&self, index: usize) -> Place {
        Place::Item(format!("device_traces[{}][{index}]", self.device))
    }

    /// Time on the trace's clock, which never goes back.
    pub(super) fn time_ns(&mut self, time_us: i64) -> u64 {
        let us = u64::try_from(time_us.saturating_sub(self.base_us)).unwrap_or(0);
        self.now_ns = self.now_ns.max(us.saturating_mul(1000));
        self.now_ns
    }

    pub(super) fn entry(&mut self, index: usize, entry: &Entry) -> Step {
        let time_ns = self.time_ns(entry.time_us);
        match entry.action {
            Action::Alloc => self.allocate(time_ns, index, entry),
            Action::FreeRequested => {
                let completed = self.entries.get(index + 1).is_some_and(|next| {
                    next.action == Action::FreeCompleted && next.address == entry.address
                });
                self.free(time_ns, entry, !completed)
            }
            Action::FreeCompleted => {
                if let Some(index) = self.pending.remove(&entry.address) {
                    self.completions[index].time_ns = time_ns;
                }
                Ok(())
            }
            Action::OutOfMemory => {
                let stream = self.builder.stream(entry.stream)?;
                let pool = self.pool(entry.pool)?;
                self.builder.out_of_memory(time_ns, entry.bytes, stream, pool)?;
                self.note(0, entry.stack);
                Ok(())
            }
            Action::SegmentAlloc
            | Action::SegmentFree
            | Action::SegmentMap
            | Action::SegmentUnmap
            | Action::Snapshot
            | Action::Annotate => Ok(()),
        }
    }

    fn allocate(&mut self, time_ns: u64, index: usize, entry: &Entry) -> Step {
        let address = entry.address;
        // What the recorder missed must have happened by now.
        if let Some(block) = self.live.remove(&address) {
            self.missed_frees = self.missed_frees.saturating_add(1);
            self.builder.free(time_ns, block)?;
            self.note(address, None);
        }
        if let Some(index) = self.pending.remove(&address) {
            self.completions[index].time_ns = time_ns;
        }
        let pool = self.pool_of(index, entry);
        self.take(time_ns, address, entry.bytes, entry.stream, pool, entry.stack)
    }

    /// Allocates a block, at its recorded address.
    pub(super) fn take(
        &mut self,
        time_ns: u64,
        address: u64,
        bytes: u64,
        stream: u64,
        pool: Option<PoolId>,
        stack: Option<StackId>,
    ) -> Step {
        let stream = self.builder.stream(stream)?;
        let pool = self.pool(pool)?;
        let block = self.builder.allocate(time_ns, bytes, stream, pool)?;
        self.live.insert(address, block);
        self.note(address, stack);
        Ok(())
    }

    fn free(&mut self, time_ns: u64, entry: &Entry, is_pending: bool) -> Step {
        let address = entry.address;
        let Some(block) = self.live.remove(&address) else {
            return Err(Problem::UnknownAddress { address });
        };
        if is_pending {
            self.builder.record_stream(time_ns, block, OTHER_STREAM)?;
            self.note(address, entry.stack);
            let limit = u64::from(u32::MAX);
            let event =
                u32::try_from(self.builder.len()).map_err(|_| Problem::TooManyEvents { limit })?;
            self.pending.insert(address, self.completions.len());
            self.completions.push(Completion { event, time_ns });
        }
        self.builder.free(time_ns, block)?;
        self.note(address, entry.stack);
        Ok(())
    }

    pub(super) fn told(&mut self, time_us: i64, told: Told) -> Step {
        let time_ns = self.time_ns(time_us);
        match told {
            Told::Iteration => self.mark(time_ns, Kind::Iteration),
            Told::End(Mark::HostWait) => self.mark(time_ns, Kind::HostWait),
            Told::End(Mark::EmptyCache) => self.mark(time_ns, Kind::EmptyCache),
            Told::Begin(Mark::Capture { stream, pool }) => {
                let (stream, pool) = (self.builder.stream(stream)?, self.pool(Some(pool))?);
                let begun = self.builder.begin_capture(time_ns, stream, pool);
                self.note_change(begun)
            }
            Told::End(Mark::Capture { stream, .. }) => {
                let stream = self.builder.stream(stream)?;
                let ended = self.builder.end_capture(time_ns, stream);
                self.note_change(ended)
            }
            Told::Begin(_) => Ok(()),
        }
    }

    /// A capture has begun or ended. One that did so before the recording began, or that the
    /// annotations tell wrong, is left out: they are the program's own.
    fn note_change(&mut self, changed: Step) -> Step {
        match changed {
            Ok(()) => self.note(0, None),
            Err(Problem::Capture { .. } | Problem::NoCapture { .. }) => {}
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// Marks something that has neither block nor stream.
    pub(super) fn mark(&mut self, time_ns: u64, kind: Kind) -> Step {
        self.builder.mark(time_ns, kind)?;
        self.note(0, None);
        Ok(())
    }

    /// Address and stack of the event just built.
    fn note(&mut self, address: u64, stack: Option<StackId>) {
        self.addresses.push(address);
        self.stacks.push(stack);
    }

    /// The pool of an entry's block: as the entry says, else that of the segment there, unless the
    /// segment was made later. Another was there before, of a pool that nothing tells.
    pub(super) fn pool_of(&self, index: usize, entry: &Entry) -> Option<PoolId> {
        entry.pool.or_else(|| {
            let segment = self.segment_of(entry.address)?;
            let is_later = self.made.get(&segment.address).is_some_and(|&made| made > index);
            if is_later { None } else { segment.pool }
        })
    }

    /// The segment that an address lies in at the end of the recording.
    fn segment_of(&self, address: u64) -> Option<&'s Segment> {
        let after = self.segments.partition_point(|segment| segment.address <= address);
        let segment = self.segments[after.checked_sub(1)?];
        (address - segment.address < segment.bytes).then_some(segment)
    }

    /// The dense number of a pool.
    fn pool(&mut self, pool: Option<PoolId>) -> Step<u8> {
        let pool = pool.unwrap_or_default();
        let limit = u64::from(u8::MAX);
        let index = self.pools.iter().position(|known| *known == pool).unwrap_or_else(|| {
            self.pools.push(pool);
            self.pools.len() - 1
        });
        // 255 would need a count of 256.
        let number = u8::try_from(index).ok().filter(|number| *number < u8::MAX);
        number.ok_or(Problem::TooMany { what: "pools", limit })
    }

    /// The trace, with its recording; `live_at_start` of its first events came before that.
    pub(super) fn finish(mut self, name: String, live_at_start: u32) -> Trace {
        for &index in self.pending.values() {
            self.completions[index].time_ns = self.now_ns;
        }
        let reserved = reserved(self.entries, &self.segments, self.base_us);
        let built = self.builder.finish(name);
        let recording = Recording {
            snapshot: Arc::clone(self.snapshot),
            device: self.device,
            base_us: self.base_us,
            addresses: self.addresses,
            stacks: self.stacks,
            streams: built.streams,
            pools: self.pools,
            reserved,
            live_at_start,
            missed_frees: self.missed_frees,
        };
        let mut trace = built.trace;
        trace.completions = self.completions;
        trace.recording = Some(Box::new(recording));
        trace
    }
}

/// How much memory the recording allocator held over time. The curve ends at the sum of the
/// segments, so what was held before recording began is in it.
fn reserved(entries: &[Entry], segments: &[&Segment], base_us: i64) -> Vec<ReservedPoint> {
    let delta = |entry: &Entry| match entry.action {
        Action::SegmentAlloc | Action::SegmentMap => i128::from(entry.bytes),
        Action::SegmentFree | Action::SegmentUnmap => -i128::from(entry.bytes),
        _ => 0,
    };
    let end: i128 = segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    let mut held = end - entries.iter().map(delta).sum::<i128>();
    // A recording with holes could begin below nothing, or rise above all addresses.
    let bytes = |held: i128| u64::try_from(held.max(0)).unwrap_or(u64::MAX);
    let mut curve = vec![ReservedPoint { time_ns: 0, bytes: bytes(held) }];
    let mut now_ns = 0;
    for entry in entries {
        let us = u64::try_from(entry.time_us.saturating_sub(base_us)).unwrap_or(0);
        now_ns = us.saturating_mul(1000).max(now_ns);
        if delta(entry) != 0 {
            held += delta(entry);
            curve.push(ReservedPoint { time_ns: now_ns, bytes: bytes(held) });
        }
    }
    curve
}
