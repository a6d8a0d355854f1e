//! A fake device: carries plans out step by step and panics on whatever a driver would refuse or
//! punish (I13, B48 to B51). It also knows what the heap must not: which physical bytes stand
//! behind an address, and which work on them is complete.

use std::collections::BTreeMap;
use std::ops::Range;

use drystone_core::{GranuleId, Place, Step};

use crate::clocks::{Clock, Clocks};

/// Why the device did not do a legal step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    OutOfMemory,
    OutOfAddresses,
    StreamIsGone,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    granule: GranuleId,
    is_accessible: bool,
}

#[derive(Debug)]
pub struct Physical {
    /// Where its bytes are among all there ever were, in order: a copy is the same bytes.
    pieces: Vec<Range<u64>>,
    bytes: u64,
    mappings: usize,
    place: Place,
}

impl Physical {
    /// Where so many of its bytes from an offset on are.
    fn within(&self, offset: u64, bytes: u64) -> Vec<Range<u64>> {
        let (mut at, mut found) = (0, Vec::new());
        for piece in &self.pieces {
            let (start, end) = (at.max(offset), (at + piece.end - piece.start).min(offset + bytes));
            if start < end {
                push(&mut found, piece.start + (start - at)..piece.start + (end - at));
            }
            at += piece.end - piece.start;
        }
        found
    }

    /// From an offset on its bytes are others.
    fn put(&mut self, offset: u64, others: Vec<Range<u64>>) {
        let end = offset + others.iter().map(|piece| piece.end - piece.start).sum::<u64>();
        let mut pieces = self.within(0, offset);
        others.into_iter().for_each(|piece| push(&mut pieces, piece));
        let rest = self.within(end, self.bytes - end);
        rest.into_iter().for_each(|piece| push(&mut pieces, piece));
        self.pieces = pieces;
    }
}

/// Adds a range, as part of the last one where it follows that.
fn push(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        Some(Range { end, .. }) if *end == next.start => *end = next.end,
        _ => ranges.push(next),
    }
}

/// See the top of this file.
#[derive(Debug)]
pub struct Device {
    pub clocks: Clocks,
    /// Calls about memory so far.
    pub calls: u64,
    pub capacity_bytes: u64,
    addresses_bytes: u64,
    granule_bytes: u64,
    /// Reserved ranges and plain allocations: start to size.
    reserved: BTreeMap<u64, u64>,
    plain: BTreeMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    granules: BTreeMap<GranuleId, Physical>,
    /// Physical bytes are never handed out twice, so that a stale use cannot hide.
    next_physical: u64,
    /// Work on physical bytes that were given back by the program.
    worked: Vec<(Range<u64>, Clock)>,
    /// The same by the addresses it was done through.
    worked_through: Vec<(Range<u64>, Clock)>,
    pub moving: Moving,
}

/// What a plan that moves memory has come to.
#[derive(Debug, Default)]
pub struct Moving {
    pub is_held: bool,
    are_copied: bool,
    /// Handles that are written, from where on, and how much.
    written: Vec<(GranuleId, u64, u64)>,
    /// Handles whose bytes are elsewhere now, unless that is undone.
    lifted: Vec<GranuleId>,
}

const LOWEST_ADDRESS: u64 = 1 << 40;

impl Device {
    pub fn new(capacity_bytes: u64, addresses_bytes: u64, granule_bytes: u64) -> Self {
        Self {
            clocks: Clocks::default(),
            calls: 0,
            capacity_bytes,
            addresses_bytes,
            granule_bytes,
            reserved: BTreeMap::new(),
            plain: BTreeMap::new(),
            mappings: BTreeMap::new(),
            granules: BTreeMap::new(),
            next_physical: 0,
            worked: Vec::new(),
            worked_through: Vec::new(),
            moving: Moving::default(),
        }
    }

    /// Does a step. Returns the address that a `Reserve` or `Malloc` gives.
    pub fn step(&mut self, step: &Step) -> Result<Option<u64>, Refusal> {
        self.calls += 1;
        match *step {
            Step::Reserve { bytes, alignment } => return self.reserve(bytes, alignment).map(Some),
            Step::Malloc { bytes } => return self.malloc(bytes).map(Some),
            Step::Unreserve { address, bytes } => self.unreserve(address, bytes),
            Step::Create { granule, bytes, place } => {
                let physical = match place {
                    Place::Device => self.take_physical(bytes)?,
                    Place::Host => self.new_physical(bytes, place),
                };
                assert_eq!(bytes % self.granule_bytes, 0);
                let twice = self.granules.insert(granule, physical);
                assert!(twice.is_none(), "{granule:?} is created twice");
            }
            Step::Release { granule } => self.release(granule),
            Step::Map { address, bytes, granule } => self.map(address, bytes, granule),
            Step::SetAccess { address, bytes } => {
                assert!(self.is_mapped(address, bytes), "access to unmapped {address:#x}");
                for (_, mapping) in self.mappings.range_mut(address..address + bytes) {
                    mapping.is_accessible = true;
                }
            }
            Step::Unmap { address, bytes } => self.unmap(address, bytes),
            Step::Free { address, .. } => self.free(address),
            Step::Record { fence } => {
                if self.clocks.is_destroyed(fence.stream) {
                    return Err(Refusal::StreamIsGone);
                }
                self.clocks.record(fence);
            }
            Step::Wait { stream, fence } => {
                if self.clocks.is_destroyed(stream) {
                    return Err(Refusal::StreamIsGone);
                }
                self.clocks.wait(stream, fence);
            }
            Step::SynchronizeDevice => self.clocks.synchronize(),
            Step::Stage { granule, bytes } => {
                assert_eq!(self.granules.get(&granule).map(|one| one.bytes), Some(bytes));
                self.moving.written.push((granule, 0, bytes));
            }
            Step::Hold => {
                // All that was queued is done, and the host has seen it.
                self.clocks.synchronize();
                let host = self.clocks.host();
                self.worked_through.retain(|(_, work)| !host.covers(work));
                self.moving.is_held = true;
            }
            Step::Copy { address, bytes, granule } => self.copy(address, bytes, granule),
            Step::CopyTo { address, bytes, to } => self.copy_to(address, bytes, to),
            Step::FinishCopies => self.moving.are_copied = true,
            Step::Lift { address, bytes, granule } => {
                assert!(self.moving.is_held && self.moving.are_copied, "lifted under kernels");
                let mapping = self.mappings.get(&address);
                let is_whole = mapping.is_some_and(|m| (m.bytes, m.granule) == (bytes, granule));
                assert!(is_whole, "{granule:?} is not what is at {address:#x}");
                self.unmap(address, bytes);
                self.moving.lifted.push(granule);
            }
            Step::LetGo => self.moving.is_held = false,
        }
        Ok(None)
    }

    /// Undoes a step that was done; `given` is the address it gave.
    pub fn undo(&mut self, step: &Step, given: u64) {
        match *step {
            Step::Create { granule, .. } => self.release(granule),
            Step::Map { address, bytes, .. } => self.unmap(address, bytes),
            Step::Reserve { bytes, .. } => self.unreserve(given, bytes),
            Step::Malloc { .. } => self.free(given),
            Step::Lift { address, bytes, granule } => {
                self.map(address, bytes, granule);
                self.mappings.entry(address).and_modify(|one| one.is_accessible = true);
                self.moving.lifted.clear();
            }
            _ => {}
        }
    }

    /// A plan is over, done or undone.
    pub fn end_move(&mut self) {
        let Moving { lifted, written, .. } = std::mem::take(&mut self.moving);
        // The others' bytes are nobody's.
        let whole = lifted.iter().map(|&granule| (granule, 0, self.bytes_of(granule)));
        let lost = if lifted.is_empty() { written } else { whole.collect() };
        for (granule, offset, bytes) in lost {
            let others = self.new_piece(bytes);
            self.granules.entry(granule).and_modify(|one| one.put(offset, vec![others]));
        }
    }

    fn bytes_of(&self, granule: GranuleId) -> u64 {
        self.granules.get(&granule).map_or(0, |one| one.bytes)
    }

    fn copy(&mut self, address: u64, bytes: u64, granule: GranuleId) {
        let is_staged = self.moving.written.iter().any(|one| one.0 == granule);
        assert!(is_staged, "copied to where nothing is mapped");
        self.write(address, bytes, (granule, 0));
    }

    fn copy_to(&mut self, address: u64, bytes: u64, to: u64) {
        let (&start, mapping) = self.mappings.range(..=to).next_back().expect("a mapping");
        let (granule, offset) = (mapping.granule, to - start);
        assert!(mapping.is_accessible && offset + bytes <= mapping.bytes, "copied to {to:#x}");
        self.moving.written.push((granule, offset, bytes));
        self.write(address, bytes, (granule, offset));
    }

    fn write(&mut self, address: u64, bytes: u64, (granule, offset): (GranuleId, u64)) {
        assert!(self.moving.is_held, "copied under kernels");
        let from = self.physical(address, bytes);
        let from = from.unwrap_or_else(|| panic!("copied from {address:#x}"));
        self.granules.entry(granule).and_modify(|one| one.put(offset, from));
        self.moving.are_copied = false;
    }

    fn new_piece(&mut self, bytes: u64) -> Range<u64> {
        let start = self.next_physical;
        self.next_physical += bytes;
        start..self.next_physical
    }

    /// What could still be created. Sizes in bytes.
    pub fn free_bytes(&self) -> u64 {
        let own_bytes = self.held_bytes() - self.on_host_bytes();
        self.capacity_bytes.saturating_sub(own_bytes)
    }

    /// What is in the host's memory.
    pub fn on_host_bytes(&self) -> u64 {
        let on_host = self.granules.values().filter(|physical| physical.place == Place::Host);
        on_host.map(|physical| physical.bytes).sum()
    }

    /// Bytes of physical memory that are out, those of the host with them.
    pub fn held_bytes(&self) -> u64 {
        self.granules.values().chain(self.plain.values()).map(|physical| physical.bytes).sum()
    }

    /// How many granules each handle has, by name.
    pub fn handles(&self) -> Vec<u64> {
        self.granules.values().map(|physical| physical.bytes / self.granule_bytes).collect()
    }

    /// I15: nothing is left of anything.
    pub fn assert_empty(&self) {
        assert!(self.reserved.is_empty(), "addresses leaked: {:x?}", self.reserved);
        assert!(self.plain.is_empty(), "plain memory leaked: {:x?}", self.plain);
        assert!(self.mappings.is_empty(), "mappings leaked: {:x?}", self.mappings);
        assert!(self.granules.is_empty(), "granules leaked: {:?}", self.granules);
    }

    /// The lowest free range of addresses; ranges are handed out without gaps, and again.
    fn find_addresses(&self, bytes: u64, alignment: u64) -> Result<u64, Refusal> {
        if bytes > self.addresses_bytes {
            return Err(Refusal::OutOfAddresses);
        }
        let mut address = LOWEST_ADDRESS;
        for (&start, &size) in &self.reserved {
            if address + bytes <= start {
                break;
            }
            address = (start + size).next_multiple_of(alignment);
        }
        let fits = address + bytes <= LOWEST_ADDRESS + self.addresses_bytes;
        if fits { Ok(address) } else { Err(Refusal::OutOfAddresses) }
    }

    fn take_physical(&mut self, bytes: u64) -> Result<Physical, Refusal> {
        if bytes > self.free_bytes() {
            return Err(Refusal::OutOfMemory);
        }
        Ok(self.new_physical(bytes, Place::Device))
    }

    fn new_physical(&mut self, bytes: u64, place: Place) -> Physical {
        Physical { pieces: vec![self.new_piece(bytes)], bytes, mappings: 0, place }
    }

    fn reserve(&mut self, bytes: u64, alignment: u64) -> Result<u64, Refusal> {
        assert!(bytes > 0 && bytes.is_multiple_of(self.granule_bytes), "reserves {bytes}");
        assert!(alignment.is_multiple_of(self.granule_bytes), "aligned to {alignment}");
        let address = self.find_addresses(bytes, alignment)?;
        self.reserved.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&mut self, address: u64, bytes: u64) {
        let is_mapped = self.mappings.range(address..address + bytes).next().is_some();
        assert!(!is_mapped, "{address:#x} is given back with mappings in it");
        assert_eq!(self.reserved.remove(&address), Some(bytes), "{address:#x} is not reserved");
    }

    fn malloc(&mut self, bytes: u64) -> Result<u64, Refusal> {
        let address = self.find_addresses(bytes, 512)?;
        let physical = self.take_physical(bytes)?;
        self.reserved.insert(address, bytes);
        self.plain.insert(address, physical);
        Ok(address)
    }

    fn free(&mut self, address: u64) {
        let Some(physical) = self.plain.remove(&address) else {
            panic!("{address:#x} is freed, but not allocated");
        };
        self.reserved.remove(&address);
        self.assert_complete(&(address..address + physical.bytes));
    }

    /// Memory that another process has of this device; `None` if there is no room for it.
    pub fn physical_of_others(&mut self, bytes: u64) -> Option<Physical> {
        self.take_physical(bytes).ok()
    }

    /// It goes to the heap by a name.
    pub fn adopt(&mut self, granule: GranuleId, physical: Physical) {
        let twice = self.granules.insert(granule, physical);
        assert!(twice.is_none(), "{granule:?} is created twice");
    }

    fn release(&mut self, granule: GranuleId) {
        let released = self.granules.remove(&granule);
        assert!(released.is_some_and(|g| g.mappings == 0), "{granule:?} cannot be released");
    }

    fn map(&mut self, address: u64, bytes: u64, granule: GranuleId) {
        let Some(physical) = self.granules.get_mut(&granule) else {
            panic!("{granule:?} is mapped, but not created");
        };
        let is_aligned = address.is_multiple_of(self.granule_bytes);
        assert!(is_aligned && bytes == physical.bytes, "{granule:?} is mapped in part");
        physical.mappings += 1;
        let segment = self.reserved.range(..=address).next_back();
        let is_reserved = segment.is_some_and(|(&start, &size)| address + bytes <= start + size)
            && !self.plain.contains_key(&address);
        assert!(is_reserved, "{address:#x} is mapped, but not reserved");
        let overlap = self.mappings.range(..address + bytes).next_back();
        assert!(overlap.is_none_or(|(&at, m)| at + m.bytes <= address), "{address:#x} is mapped");
        self.mappings.insert(address, Mapping { bytes, granule, is_accessible: false });
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        // What was queued since a hold begins after it.
        let held = self.moving.is_held.then(|| std::mem::take(&mut self.worked_through));
        self.unmap_complete(address, bytes);
        self.worked_through.extend(held.into_iter().flatten());
    }

    fn unmap_complete(&mut self, address: u64, bytes: u64) {
        assert!(self.is_mapped(address, bytes), "{bytes} bytes at {address:#x} are not mapped");
        let inside: Vec<u64> =
            self.mappings.range(address..address + bytes).map(|m| *m.0).collect();
        for at in inside {
            let Some(mapping) = self.mappings.remove(&at) else { continue };
            if let Some(physical) = self.granules.get_mut(&mapping.granule) {
                physical.mappings -= 1;
            }
            self.assert_complete(&(at..at + mapping.bytes));
        }
    }

    /// Whether whole mappings cover a range exactly.
    fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let mut end = address;
        for (&at, mapping) in self.mappings.range(address..address + bytes) {
            if at != end {
                return false;
            }
            end = at + mapping.bytes;
        }
        bytes > 0 && end == address + bytes
    }

    /// The physical bytes behind a range of addresses, if all of it is backed and accessible.
    pub fn physical(&self, address: u64, bytes: u64) -> Option<Vec<Range<u64>>> {
        if let Some((&start, plain)) = self.plain.range(..=address).next_back()
            && address < start + plain.bytes
        {
            let is_inside = address + bytes <= start + plain.bytes;
            return is_inside.then(|| plain.within(address - start, bytes));
        }
        let (mut at, end) = (address, address + bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        while at < end {
            let (&start, mapping) = self.mappings.range(..=at).next_back()?;
            if at >= start + mapping.bytes || !mapping.is_accessible {
                return None;
            }
            let until = end.min(start + mapping.bytes);
            let within = self.granules.get(&mapping.granule)?.within(at - start, until - at);
            within.into_iter().for_each(|range| push(&mut ranges, range));
            at = until;
        }
        Some(ranges)
    }

    /// Notes that the program gave bytes back after this work on them.
    pub fn note_work(&mut self, addresses: Range<u64>, physical: &[Range<u64>], work: &Clock) {
        for range in physical {
            // Replaces what was known of the very same bytes: that work came before this.
            self.worked.retain(|(old, _)| !(range.start <= old.start && old.end <= range.end));
            self.worked.push((range.clone(), work.clone()));
        }
        // Work through the same addresses may have been on other bytes, so both count.
        self.worked_through.push((addresses, work.clone()));
    }

    /// Whether all work on these bytes is covered by a clock (I10).
    pub fn is_ordered(&self, range: &Range<u64>, clock: &Clock) -> bool {
        covers(clock, &self.worked, range)
    }

    /// Unmapping and freeing do not wait for kernels: the host must know them complete (B13).
    fn assert_complete(&mut self, addresses: &Range<u64>) {
        let host = self.clocks.host();
        let is_complete = covers(host, &self.worked_through, addresses);
        assert!(is_complete, "{addresses:x?} is given back before its last use is complete");
        self.worked_through.retain(|(_, work)| !host.covers(work));
    }
}

/// Whether a clock covers all work that was done in a range.
fn covers(clock: &Clock, worked: &[(Range<u64>, Clock)], range: &Range<u64>) -> bool {
    let mut overlapping =
        worked.iter().filter(|(old, _)| old.start < range.end && range.start < old.end);
    overlapping.all(|(_, work)| clock.covers(work))
}
