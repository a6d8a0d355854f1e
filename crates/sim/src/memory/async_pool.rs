//! [`AsyncPool`]: what `cudaMallocFromPoolAsync` gives: memory ordered by streams.
//!
//! Invariant: memory freed on a stream goes to another stream only when the free has been reached,
//! or together with a dependency that makes the other stream wait for it. Segments are taken 32 MiB
//! at a time; a synchronising call gives idle ones back down to the release threshold.
//! Not modelled: allocation nodes of a graph under capture.

use super::{Physical, Piece, Supply};
use crate::GRANULARITY_BYTES;
use crate::happens_before::VectorClock;
use drystone_driver::{ErrorCode, MemoryPoolConfig, MemoryPoolUsage};
use std::collections::BTreeMap;

const GROWTH_BYTES: u64 = 32 << 20;
const ALIGN_BYTES: u64 = 512;

/// The moment, in its stream's order, at which memory was freed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreePoint {
    /// `None`: memory of several streams has been merged.
    pub(crate) stream: Option<u32>,
    pub(crate) reached_ns: u64,
    /// What the freeing stream was ordered after; empty when no oracle watches.
    pub(crate) clock: VectorClock,
}

#[derive(Debug)]
pub(crate) struct AsyncPool {
    config: MemoryPoolConfig,
    usage: MemoryPoolUsage,
    segments: BTreeMap<u64, Piece>,
    live: BTreeMap<u64, u64>,
    free: BTreeMap<u64, FreeExtent>,
}

#[derive(Clone, Debug)]
struct FreeExtent {
    bytes: u64,
    /// `None`: never used since its segment was taken.
    point: Option<FreePoint>,
}

impl AsyncPool {
    pub(crate) fn new(config: MemoryPoolConfig) -> Self {
        Self {
            config,
            usage: MemoryPoolUsage::default(),
            segments: BTreeMap::new(),
            live: BTreeMap::new(),
            free: BTreeMap::new(),
        }
    }

    pub(crate) const fn config(&self) -> &MemoryPoolConfig {
        &self.config
    }

    pub(crate) const fn usage(&self) -> MemoryPoolUsage {
        self.usage
    }

    /// An address, and what the stream must wait for before it may use it.
    pub(crate) fn malloc(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
        stream: u32,
        now_ns: u64,
    ) -> Result<(u64, Option<FreePoint>), ErrorCode> {
        if bytes == 0 {
            return Err(ErrorCode::InvalidValue);
        }
        let rounded = bytes.checked_next_multiple_of(ALIGN_BYTES).ok_or(ErrorCode::OutOfMemory)?;
        let found = self.best(rounded, stream, now_ns).or_else(|| {
            self.merge();
            self.best(rounded, stream, now_ns)
        });
        let address = match found {
            Some(address) => address,
            None => self.grow(supply, rounded)?,
        };
        let extent = self.free.remove(&address).ok_or(ErrorCode::OutOfMemory)?;
        let rest = FreeExtent { bytes: extent.bytes - rounded, point: extent.point.clone() };
        if rest.bytes > 0 {
            self.free.insert(address + rounded, rest);
        }
        self.live.insert(address, rounded);
        self.usage.used_bytes += rounded;
        self.usage.used_peak_bytes = self.usage.used_peak_bytes.max(self.usage.used_bytes);
        Ok((address, extent.point.filter(|point| point.stream != Some(stream))))
    }

    pub(crate) fn live_bytes_at(&self, address: u64) -> Option<u64> {
        self.live.get(&address).copied()
    }

    pub(crate) fn free(&mut self, address: u64, point: FreePoint) {
        if let Some(bytes) = self.live.remove(&address) {
            self.usage.used_bytes -= bytes;
            self.free.insert(address, FreeExtent { bytes, point: Some(point) });
        }
    }

    /// Gives wholly idle segments back, as long as more than this is held, and returns them.
    pub(crate) fn trim(&mut self, supply: &mut Supply, now_ns: u64, keep_bytes: u64) -> Vec<Piece> {
        if self.usage.reserved_bytes <= keep_bytes {
            return Vec::new();
        }
        self.merge();
        let is_idle = |segment: &Piece| {
            self.free.get(&segment.address).is_some_and(|extent| {
                let reached = extent.point.as_ref().is_none_or(|point| point.reached_ns <= now_ns);
                reached && extent.bytes == segment.bytes
            })
        };
        let mut idle: Vec<Piece> =
            self.segments.values().copied().filter(|segment| is_idle(segment)).collect();
        let mut held_bytes = self.usage.reserved_bytes;
        idle.retain(|segment| {
            let is_above = held_bytes > keep_bytes;
            held_bytes -= if is_above { segment.bytes } else { 0 };
            is_above
        });
        self.usage.reserved_bytes = held_bytes;
        for segment in &idle {
            self.free.remove(&segment.address);
            self.segments.remove(&segment.address);
            supply.give_back(segment.bytes);
            supply.give_addresses(segment.address, segment.bytes);
        }
        idle
    }

    /// The live allocation that holds `at`.
    pub(crate) fn extent_at(&self, at: u64) -> Option<Piece> {
        let (&address, &bytes) = self.live.range(..=at).next_back()?;
        let segment = self.segments.range(..=at).next_back()?.1;
        let physical: Physical = segment.physical + (address - segment.address);
        (at - address < bytes).then_some(Piece { address, physical, bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// The extent to take: first what needs no waiting, then the smallest, then the lowest.
    fn best(&self, bytes: u64, stream: u32, now_ns: u64) -> Option<u64> {
        let fitting = self.free.iter().filter(|(_, extent)| extent.bytes >= bytes);
        let rank = |(&address, extent): (&u64, &FreeExtent)| {
            let must_wait = extent
                .point
                .as_ref()
                .is_some_and(|point| point.stream != Some(stream) && point.reached_ns > now_ns);
            (must_wait, extent.bytes, address)
        };
        fitting.map(rank).min().map(|(_, _, address)| address)
    }

    /// Takes a fresh segment and returns its address, which is one free extent.
    fn grow(&mut self, supply: &mut Supply, bytes: u64) -> Result<u64, ErrorCode> {
        let grown = bytes.checked_next_multiple_of(GROWTH_BYTES).ok_or(ErrorCode::OutOfMemory)?;
        let (address, physical) = supply.take_addressed(grown, grown, GRANULARITY_BYTES)?;
        self.segments.insert(address, Piece { address, physical, bytes: grown });
        self.usage.reserved_bytes += grown;
        self.usage.reserved_peak_bytes =
            self.usage.reserved_peak_bytes.max(self.usage.reserved_bytes);
        self.free.insert(address, FreeExtent { bytes: grown, point: None });
        Ok(address)
    }

    /// Joins free neighbours of one segment; the result is reached when both parts are.
    fn merge(&mut self) {
        let mut merged: BTreeMap<u64, FreeExtent> = BTreeMap::new();
        for (address, extent) in std::mem::take(&mut self.free) {
            match merged.last_entry() {
                Some(mut below)
                    if below.key() + below.get().bytes == address
                        && !self.segments.contains_key(&address) =>
                {
                    let below = below.get_mut();
                    below.bytes += extent.bytes;
                    below.point = join(below.point.take(), extent.point);
                }
                _ => {
                    merged.insert(address, extent);
                }
            }
        }
        self.free = merged;
    }
}

fn join(one: Option<FreePoint>, other: Option<FreePoint>) -> Option<FreePoint> {
    match (one, other) {
        (Some(mut one), Some(other)) => {
            one.stream = one.stream.filter(|_| one.stream == other.stream);
            one.reached_ns = one.reached_ns.max(other.reached_ns);
            one.clock.join(&other.clock);
            Some(one)
        }
        (one, other) => one.or(other),
    }
}
