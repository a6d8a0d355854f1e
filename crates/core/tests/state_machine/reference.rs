//! The slow reference: which blocks there are, what they wait for, and what the statistics say.
//!
//! It decides nothing. It is told what the heap answered and what the program and the device did,
//! keeps maps of all of it, and knows from that what the heap must say next.

use std::collections::BTreeMap;
use std::ops::Range;

use drystone_core::{Fence, Gauge, SizeClass, SizeClassStats, Stats, StreamId};

use crate::clocks::Clock;
use crate::pool_streams::PoolStreams;

/// The largest request that is served from segments of small blocks.
pub const SMALL_MAX_BYTES: u64 = 1 << 20;

/// The size of the block for a request: whole quanta.
pub fn rounded(requested: u64) -> u64 {
    requested.div_ceil(512) * 512
}

pub fn size_class(requested: u64) -> SizeClass {
    if rounded(requested) <= SMALL_MAX_BYTES { SizeClass::Small } else { SizeClass::Large }
}

/// One block that the program has, or that waits.
#[derive(Clone, Debug)]
pub struct Block {
    pub address: u64,
    pub requested: u64,
    pub bytes: u64,
    /// Whose memory it lies in.
    pub class: SizeClass,
    pub pool: usize,
    pub stream: StreamId,
    /// Streams recorded beside its own.
    pub uses: Vec<StreamId>,
    /// Work on it, on all its streams.
    pub work: Clock,
    /// Whether any work was queued at all: none can be on a stream that is gone.
    pub is_worked: bool,
    pub physical: Vec<Range<u64>>,
}

/// What the program did with a block that it does not have any more.
#[derive(Clone, Debug)]
pub enum Away {
    /// A plan that records its uses is under way.
    Claimed,
    /// Waits for these fences.
    Pending(Vec<Fence>),
    /// Waits for an idle device.
    Quarantined,
}

/// See the top of this file.
#[derive(Debug, Default)]
pub struct Reference {
    pub live: BTreeMap<u64, Block>,
    pub away: BTreeMap<u64, (Block, Away)>,
    /// The streams that can be used.
    pub streams: Vec<StreamId>,
    /// The last fence of each retired stream.
    pub retired: BTreeMap<StreamId, u64>,
    /// The last fence seen in a plan, and the last one the heap was told of, by stream.
    pub issued: BTreeMap<StreamId, u64>,
    pub told: BTreeMap<StreamId, u64>,
    stats: Stats,
    pub pool_streams: PoolStreams,
}

impl Reference {
    /// Whether the heap knows that a retired stream has done its work.
    pub fn is_ended(&self, stream: StreamId) -> bool {
        self.retired.get(&stream).is_some_and(|&last| self.has_told(Fence { stream, point: last }))
    }

    fn has_told(&self, fence: Fence) -> bool {
        self.told.get(&fence.stream).is_some_and(|&point| point >= fence.point)
    }

    pub fn note_issued(&mut self, fence: Fence) {
        let last = self.issued.entry(fence.stream).or_insert(0);
        *last = (*last).max(fence.point);
    }

    /// Whether a block that is live or away has a byte in this range of addresses.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let end = address + bytes;
        let live = self.live.range(..end).next_back().map(|(at, block)| at + block.bytes);
        let away = self.away.range(..end).next_back().map(|(at, (block, _))| at + block.bytes);
        live.max(away).is_some_and(|last| last > address)
    }

    /// The address of a block that is live or away and shares physical bytes with these.
    pub fn sharing(&self, physical: &[Range<u64>]) -> Option<u64> {
        let away = self.away.values().map(|(block, _)| block);
        let meet = |a: &Range<u64>| physical.iter().any(|b| a.start < b.end && b.start < a.end);
        let mut blocks = self.live.values().chain(away);
        blocks.find(|block| block.physical.iter().any(meet)).map(|block| block.address)
    }

    pub fn grant(&mut self, address: u64, block: Block) {
        self.each_scale(block.class, |stats| {
            add(&mut stats.requested_bytes, block.requested);
            add(&mut stats.allocated_bytes, block.bytes);
            add(&mut stats.active_bytes, block.bytes);
            add(&mut stats.allocations, 1);
            add(&mut stats.active_blocks, 1);
        });
        self.pool_streams.grant(&block);
        self.live.insert(address, block);
    }

    /// The program gives a block back; the caller says what becomes of it.
    pub fn free(&mut self, address: u64) -> Block {
        let block = self.live.remove(&address).expect("a live block");
        self.each_scale(block.class, |stats| {
            stats.allocated_bytes.current -= block.bytes;
            stats.allocations.current -= 1;
        });
        block
    }

    /// No stream uses the block any more.
    pub fn complete(&mut self, block: &Block) {
        self.each_scale(block.class, |stats| {
            stats.requested_bytes.current -= block.requested;
            stats.active_bytes.current -= block.bytes;
            stats.active_blocks.current -= 1;
        });
        self.pool_streams.complete(block);
    }

    pub fn reset_peaks(&mut self) {
        let stats = &mut self.stats;
        for class in std::iter::once(&mut stats.all).chain(&mut stats.classes) {
            for gauge in [
                &mut class.requested_bytes,
                &mut class.allocated_bytes,
                &mut class.active_bytes,
                &mut class.allocations,
                &mut class.active_blocks,
            ] {
                gauge.peak = gauge.current;
            }
        }
        self.pool_streams.reset_peaks();
    }

    /// The uses of a block that the heap must wait for, as fences; those of live streams are
    /// fences to be recorded.
    pub fn waited_for(&self, block: &Block) -> Vec<StreamId> {
        block.uses.iter().copied().filter(|&stream| !self.is_ended(stream)).collect()
    }

    /// A block whose fences are recorded: pending, or complete if all have passed already.
    pub fn publish(&mut self, address: u64, fences: &[Fence]) -> Option<Block> {
        let left: Vec<Fence> = fences.iter().copied().filter(|&f| !self.has_told(f)).collect();
        self.away.get_mut(&address).expect("a claimed block").1 = Away::Pending(left);
        self.sweep().into_iter().next()
    }

    /// The heap is told that a fence has passed. Returns the blocks that are complete now.
    pub fn tell(&mut self, fence: Fence) -> Vec<Block> {
        let last = self.told.entry(fence.stream).or_insert(0);
        *last = (*last).max(fence.point);
        self.sweep()
    }

    fn sweep(&mut self) -> Vec<Block> {
        let told = self.told.clone();
        for (_, away) in self.away.values_mut() {
            if let Away::Pending(fences) = away {
                fences.retain(|f| told.get(&f.stream).is_none_or(|&point| point < f.point));
            }
        }
        let done = |away: &Away| matches!(away, Away::Pending(fences) if fences.is_empty());
        let complete: Vec<u64> =
            self.away.iter().filter(|(_, (_, away))| done(away)).map(|(&at, _)| at).collect();
        complete.into_iter().filter_map(|address| self.take_away(address)).collect()
    }

    /// A block that was away is complete.
    pub fn take_away(&mut self, address: u64) -> Option<Block> {
        let (block, _) = self.away.remove(&address)?;
        self.complete(&block);
        Some(block)
    }

    pub fn quarantined(&self) -> Vec<u64> {
        let is_quarantined = |away: &Away| matches!(away, Away::Quarantined);
        self.away.iter().filter(|(_, (_, a))| is_quarantined(a)).map(|(&at, _)| at).collect()
    }

    fn each_scale(&mut self, class: SizeClass, mut change: impl FnMut(&mut SizeClassStats)) {
        change(&mut self.stats.all);
        change(&mut self.stats.classes[class as usize]);
    }

    /// The heap's statistics are what was counted here. Reserved bytes and segments are compared
    /// elsewhere.
    pub fn assert_stats(&self, found: &Stats) {
        for (ours, theirs) in [
            (&self.stats.all, &found.all),
            (&self.stats.classes[0], &found.classes[0]),
            (&self.stats.classes[1], &found.classes[1]),
        ] {
            let mut theirs = *theirs;
            (theirs.reserved_bytes, theirs.segments) = Default::default();
            assert_eq!(*ours, theirs, "statistics differ (I8, B41)");
        }
        let quarantined = self.quarantined().iter().map(|at| self.away[at].0.bytes).sum::<u64>();
        assert_eq!(quarantined, found.quarantined_bytes);
    }
}

pub fn add(gauge: &mut Gauge, amount: u64) {
    gauge.current += amount;
    gauge.total += amount;
    gauge.peak = gauge.peak.max(gauge.current);
}
