//! [`AsyncPool`]: what `cudaMallocFromPoolAsync` gives: memory ordered by streams.
//!
//! Invariant: memory freed on a stream goes to another stream only when the free has been reached,
//! or together with a dependency that makes the other stream wait for it, as far as the pool's
//! attributes allow. A request tries, in this order, what its stream may use at once, new memory in
//! steps of 32 MiB or else just enough, new memory after idle segments went back, and what its
//! stream has to wait for. Segments are never joined. Only those go back whose frees the host has
//! seen: the end of a synchronising call shows it what has been reached, and gives idle ones back
//! down to the release threshold. That a stream waits already for another's free is known only
//! where an oracle keeps their order. `docs/evidence/models.md` has the source of each rule.

use super::free_extents::{FreeExtent, FreeExtents, FreePoint};
use super::piece::{Physical, Piece};
use super::supply::Supply;
use crate::GRANULARITY_BYTES;
use crate::happens_before::VectorClock;
use crate::refuse::refuse;
use drystone_driver::{ErrorCode, MemoryPoolConfig, MemoryPoolUsage};
use std::collections::BTreeMap;

const GROWTH_BYTES: u64 = 32 << 20;
const ALIGN_BYTES: u64 = 512;

#[derive(Debug)]
pub(crate) struct AsyncPool {
    config: MemoryPoolConfig,
    usage: MemoryPoolUsage,
    segments: BTreeMap<u64, Piece>,
    live: BTreeMap<u64, u64>,
    free: FreeExtents,
    /// Frees reached by then are known to the host, which had waited for something.
    seen_ns: Option<u64>,
}

/// Who asks for memory, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) stream: u32,
    pub(crate) now_ns: u64,
    /// What the stream is ordered after; `None` when no oracle watches.
    pub(crate) order: Option<&'a VectorClock>,
}

/// What a stream must do to use a free extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is ordered after the free.
    AtOnce,
    /// It is made to wait for the free.
    AfterWait,
}

impl AsyncPool {
    pub(crate) fn new(config: MemoryPoolConfig) -> Self {
        Self {
            config,
            usage: MemoryPoolUsage::default(),
            segments: BTreeMap::new(),
            live: BTreeMap::new(),
            free: FreeExtents::default(),
            seen_ns: None,
        }
    }

    /// The host has waited for something.
    pub(crate) const fn see(&mut self, now_ns: u64) {
        self.seen_ns = Some(now_ns);
    }

    pub(crate) const fn config(&self) -> &MemoryPoolConfig {
        &self.config
    }

    pub(crate) const fn configure(&mut self, config: MemoryPoolConfig) {
        self.config = config;
    }

    pub(crate) const fn reset_peaks(&mut self, reserved: bool, used: bool) {
        if reserved {
            self.usage.reserved_peak_bytes = self.usage.reserved_bytes;
        }
        if used {
            self.usage.used_peak_bytes = self.usage.used_bytes;
        }
    }

    pub(crate) const fn usage(&self) -> MemoryPoolUsage {
        self.usage
    }

    /// An address, and what the stream must wait for before it may use it. Segments that went back
    /// for it are added to `gone`, also where it is refused.
    pub(crate) fn malloc(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
        asker: Asker<'_>,
        gone: &mut Vec<Piece>,
    ) -> Result<(u64, Option<FreePoint>), ErrorCode> {
        refuse(ErrorCode::InvalidValue, bytes == 0)?;
        let rounded = bytes.checked_next_multiple_of(ALIGN_BYTES).ok_or(ErrorCode::OutOfMemory)?;
        let found = self.best(rounded, asker, Use::AtOnce).or_else(|| {
            self.merge(asker.now_ns, Use::AtOnce);
            self.best(rounded, asker, Use::AtOnce)
        });
        let address = match found {
            Some(address) => address,
            None => self.grow(supply, rounded).or_else(|code| {
                gone.extend(self.trim(supply, 0));
                let grown = if gone.is_empty() { Err(code) } else { self.grow(supply, rounded) };
                grown.or_else(|code| self.best_after_wait(rounded, asker).ok_or(code))
            })?,
        };
        let extent = self.free.remove(address).ok_or(ErrorCode::OutOfMemory)?;
        let rest = FreeExtent { bytes: extent.bytes - rounded, point: extent.point.clone() };
        if rest.bytes > 0 {
            self.free.insert(address + rounded, rest);
        }
        self.live.insert(address, rounded);
        self.usage.used_bytes += rounded;
        self.usage.used_peak_bytes = self.usage.used_peak_bytes.max(self.usage.used_bytes);
        Ok((address, extent.point.filter(|point| point.stream != Some(asker.stream))))
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
    pub(crate) fn trim(&mut self, supply: &mut Supply, keep_bytes: u64) -> Vec<Piece> {
        let Some(seen_ns) = self.seen_ns else { return Vec::new() };
        if self.usage.reserved_bytes <= keep_bytes {
            return Vec::new();
        }
        let inside = |segment: &Piece| segment.address..segment.address + segment.bytes;
        let is_idle = |segment: &Piece| {
            let extents = self.free.within(inside(segment));
            let reached = extents.filter(|(_, extent)| extent.is_reached(seen_ns));
            reached.map(|(_, extent)| extent.bytes).sum::<u64>() == segment.bytes
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
            let extents: Vec<u64> = self.free.within(inside(segment)).map(|one| one.0).collect();
            extents.into_iter().for_each(|address| drop(self.free.remove(address)));
            self.segments.remove(&segment.address);
            supply.give_back(segment.bytes);
            supply.give_addresses(segment.address, segment.bytes);
        }
        idle
    }

    /// Gives everything back, live or not, and returns it.
    pub(crate) fn give_all_back(&mut self, supply: &mut Supply) -> Vec<Piece> {
        let segments: Vec<Piece> = std::mem::take(&mut self.segments).into_values().collect();
        for segment in &segments {
            supply.give_back(segment.bytes);
            supply.give_addresses(segment.address, segment.bytes);
        }
        (self.live, self.free) = Default::default();
        segments
    }

    /// The live allocation that holds `at`.
    pub(crate) fn extent_at(&self, at: u64) -> Option<Piece> {
        let (&address, &bytes) = self.live.range(..=at).next_back()?;
        let segment = self.segments.range(..=address).next_back()?.1;
        let physical: Physical = segment.physical + (address - segment.address);
        (at - address < bytes).then_some(Piece { address, physical, bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// The extent to take among those that ask for no more than `most`: first what needs no
    /// waiting, then the smallest, then the lowest.
    fn best(&self, bytes: u64, asker: Asker<'_>, most: Use) -> Option<u64> {
        let mut after_wait = None;
        for (address, extent) in self.free.at_least(bytes) {
            match self.usable(extent, asker) {
                Some(Use::AtOnce) => return Some(address),
                Some(Use::AfterWait) => after_wait = after_wait.or(Some(address)),
                None => {}
            }
        }
        after_wait.filter(|_| most == Use::AfterWait)
    }

    /// The same with neighbours joined for which the stream has to wait; they stay as they are
    /// where even that is not enough.
    fn best_after_wait(&mut self, bytes: u64, asker: Asker<'_>) -> Option<u64> {
        let before = self.free.clone();
        self.merge(asker.now_ns, Use::AfterWait);
        let found = self.best(bytes, asker, Use::AfterWait);
        if found.is_none() {
            self.free = before;
        }
        found
    }

    /// What it takes to use a free extent; `None` where the attributes forbid it.
    fn usable(&self, extent: &FreeExtent, asker: Asker<'_>) -> Option<Use> {
        let Some(point) = &extent.point else { return Some(Use::AtOnce) };
        let config = &self.config;
        let is_ordered = point.stream == Some(asker.stream)
            || config.reuse_is_opportunistic && point.reached_ns <= asker.now_ns
            || config.reuse_follows_events
                && asker.order.is_some_and(|order| order.covers(&point.clock));
        match (is_ordered, config.reuse_adds_dependencies) {
            (true, _) => Some(Use::AtOnce),
            (false, true) => Some(Use::AfterWait),
            (false, false) => None,
        }
    }

    /// Takes a fresh segment and returns its address, which is one free extent.
    fn grow(&mut self, supply: &mut Supply, bytes: u64) -> Result<u64, ErrorCode> {
        let mut take = |step: u64| {
            let grown = bytes.checked_next_multiple_of(step).ok_or(ErrorCode::OutOfMemory)?;
            let (address, physical) = supply.take_addressed(grown, grown, GRANULARITY_BYTES)?;
            Ok::<_, ErrorCode>((grown, address, physical))
        };
        // The last that a device has may be less than a step.
        let (grown, address, physical) = take(GROWTH_BYTES).or_else(|_| take(GRANULARITY_BYTES))?;
        self.segments.insert(address, Piece { address, physical, bytes: grown });
        self.usage.reserved_bytes += grown;
        self.usage.reserved_peak_bytes =
            self.usage.reserved_peak_bytes.max(self.usage.reserved_bytes);
        self.free.insert(address, FreeExtent { bytes: grown, point: None });
        Ok(address)
    }

    /// Joins free neighbours of one segment, where a stream that may use one part may use the
    /// other, at once or after a wait; the result is reached when both parts are.
    fn merge(&mut self, now_ns: u64, most: Use) {
        let MemoryPoolConfig { reuse_is_opportunistic, reuse_adds_dependencies, .. } = self.config;
        let joins = |one: &FreeExtent, other: &FreeExtent| {
            let both_are_reached = one.is_reached(now_ns) && other.is_reached(now_ns);
            most == Use::AfterWait && reuse_adds_dependencies
                || reuse_is_opportunistic && both_are_reached
                || match (&one.point, &other.point) {
                    (Some(one), Some(other)) => one.stream.is_some() && one.stream == other.stream,
                    _ => true,
                }
        };
        let mut merged: BTreeMap<u64, FreeExtent> = BTreeMap::new();
        for (address, extent) in self.free.take() {
            match merged.last_entry() {
                Some(mut below)
                    if below.key() + below.get().bytes == address
                        && joins(below.get(), &extent)
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
        merged.into_iter().for_each(|(address, extent)| self.free.insert(address, extent));
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
