//! Handles: what the device creates, maps and releases at once, and where they begin and end.
//!
//! A handle is one granule, or, in programs that hold much, a few. It goes elsewhere as a whole: so
//! ranges that are lent, sent home, kept or released begin and end where handles do (I13).

use std::ops::Range;

use super::{Config, Heap};
use crate::granule::GranuleId;
use crate::policy::{self, SizeClass};
use crate::segment::Segment;
use crate::size::{round_down, round_up, whole_units};

/// What a growth takes.
#[derive(Debug)]
pub(super) struct Supply {
    /// Handles that back nothing.
    pub(super) idle: Vec<GranuleId>,
    /// How many granules are missing then.
    pub(super) missing: usize,
    /// How many of them a new handle gets at most.
    pub(super) most: u16,
}

impl Heap {
    /// The whole handles in a range of a segment's addresses; empty if there is none.
    pub(crate) fn whole_handles(&self, segment: u32, addresses: Range<u64>) -> Range<u64> {
        let granule_bytes = self.config.granule_bytes;
        let Range { start, end } = whole_units(addresses.start, addresses.end, granule_bytes);
        if start >= end {
            return start..end;
        }
        let start = start + self.after(segment, start);
        let end = end - self.before(segment, end);
        start.min(end)..end
    }

    /// The handles that a range of a segment's addresses touches.
    pub(super) fn handles_around(&self, segment: u32, addresses: Range<u64>) -> Range<u64> {
        let granule_bytes = self.config.granule_bytes;
        let start = round_down(addresses.start, granule_bytes);
        let end = round_up(addresses.end, granule_bytes).unwrap_or(addresses.end);
        start - self.before(segment, start)..end + self.after(segment, end)
    }

    /// How many bytes of the handle that an address lies in come before it.
    fn before(&self, segment: u32, address: u64) -> u64 {
        let granule = self.granule_at(segment, address);
        granule.map_or(0, |id| self.granules.before(id) as u64 * self.config.granule_bytes)
    }

    /// How many bytes of the handle that an address lies in come after it; 0 where one begins.
    fn after(&self, segment: u32, address: u64) -> u64 {
        let granule = self.granule_at(segment, address);
        granule.map_or(0, |id| self.granules.after(id) as u64 * self.config.granule_bytes)
    }

    /// The granule that an address leads to, where its handle may have others.
    fn granule_at(&self, segment: u32, address: u64) -> Option<GranuleId> {
        if !self.granules.has_large_handles() {
            return None;
        }
        let segment = self.segments.get(segment)?;
        // A plain segment begins anywhere, and has no granules.
        let offset = address.checked_sub(segment.address)?;
        segment.granule((offset / self.config.granule_bytes) as usize)
    }

    /// How many slots from `first` on, at least so many, end where a handle does.
    pub(super) fn whole_front(&self, segment: &Segment, first: usize, slots: usize) -> usize {
        slots + segment.granule(first + slots).map_or(0, |id| self.granules.after(id))
    }

    /// Addresses that the last handle of a loan may need beyond the request.
    pub(super) const fn room_for_last_handle(&self) -> u64 {
        if self.granules.has_large_handles() { policy::HANDLE_MAX_BYTES } else { 0 }
    }

    /// How many granules new handles of a class get. Small blocks would hold large ones up.
    pub(super) fn handle_granules(&self, class: SizeClass) -> u16 {
        if class == SizeClass::Small || self.memory_is_scarce {
            return 1;
        }
        let Config { held_per_handle, granule_bytes, .. } = self.config;
        policy::handle_granules(self.granules.len(), held_per_handle, granule_bytes)
    }

    /// What a growth by so many granules takes: handles that back nothing, then new ones.
    pub(super) fn supply(&self, granules: usize, most: u16) -> Supply {
        let mut supply = Supply { idle: Vec::new(), missing: granules, most };
        for &id in self.granules.idle().iter().rev() {
            let granules = self.granules.handle(id).len();
            if granules <= supply.missing {
                supply.missing -= granules;
                supply.idle.push(id);
            }
        }
        supply
    }

    pub(super) const fn missing_bytes(&self, supply: &Supply) -> u64 {
        supply.missing as u64 * self.config.granule_bytes
    }

    /// Names new handles for the granules that are missing, each of a power of two of them.
    pub(super) fn name_handles(&mut self, supply: &Supply) -> Vec<GranuleId> {
        let mut handles = Vec::with_capacity(supply.missing / usize::from(supply.most) + 1);
        let (mut left, mut size) = (supply.missing, supply.most);
        while left > 0 {
            while usize::from(size) > left {
                size /= 2;
            }
            left -= usize::from(size);
            handles.push(self.granules.name(size));
        }
        handles
    }
}
