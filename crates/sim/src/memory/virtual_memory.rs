//! [`VirtualMemory`]: reservations, physical handles and mappings.
//!
//! Refuses what the driver refuses: mapping over a mapping, outside one reservation, or in part;
//! ranges that cut a mapping or have a gap; giving addresses back while something is mapped there.
//! Invariant: physical memory lives as long as its handle or one of its mappings does, and a handle
//! value is free for reuse as soon as it is released, mappings or not.

use super::{Physical, Piece, Supply};
use crate::GRANULARITY_BYTES;
use crate::handle_table::HandleTable;
use drystone_driver::{ErrorCode, Handle};
use std::collections::BTreeMap;

const FIRST_HANDLE: u64 = 0xa000_0000;

#[derive(Debug)]
pub(crate) struct VirtualMemory {
    reservations: BTreeMap<u64, u64>,
    handles: HandleTable<Physical>,
    objects: BTreeMap<Physical, Object>,
    mappings: BTreeMap<u64, Mapping>,
    mapping_limit: u64,
    accessible_granules: u64,
}

/// Physical memory made by one create.
#[derive(Debug)]
struct Object {
    bytes: u64,
    has_handle: bool,
    mappings: u32,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: Physical,
    has_access: bool,
}

const fn is_granular(value: u64) -> bool {
    value.is_multiple_of(GRANULARITY_BYTES)
}

impl VirtualMemory {
    pub(crate) const fn new(mapping_limit: u64) -> Self {
        Self {
            reservations: BTreeMap::new(),
            handles: HandleTable::new(FIRST_HANDLE),
            objects: BTreeMap::new(),
            mappings: BTreeMap::new(),
            mapping_limit,
            accessible_granules: 0,
        }
    }

    pub(crate) fn reserve(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
        align: u64,
    ) -> Result<u64, ErrorCode> {
        if bytes == 0 || !is_granular(bytes) || (align != 0 && !align.is_power_of_two()) {
            return Err(ErrorCode::InvalidValue);
        }
        let address = supply.take_addresses(bytes, align.max(GRANULARITY_BYTES))?;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn unreserve(
        &mut self,
        supply: &mut Supply,
        address: u64,
        bytes: u64,
    ) -> Result<(), ErrorCode> {
        let is_whole = self.reservations.get(&address) == Some(&bytes);
        if !is_whole || self.mappings.range(address..address + bytes).next().is_some() {
            return Err(ErrorCode::InvalidValue);
        }
        self.reservations.remove(&address);
        supply.give_addresses(address, bytes);
        Ok(())
    }

    pub(crate) fn create(&mut self, supply: &mut Supply, bytes: u64) -> Result<Handle, ErrorCode> {
        if bytes == 0 || !is_granular(bytes) {
            return Err(ErrorCode::InvalidValue);
        }
        let physical = supply.take(bytes)?;
        self.objects.insert(physical, Object { bytes, has_handle: true, mappings: 0 });
        Ok(Handle(self.handles.insert(physical)))
    }

    /// Returns the physical memory when this was the last thing that kept it.
    pub(crate) fn release(
        &mut self,
        supply: &mut Supply,
        handle: Handle,
    ) -> Result<Option<Piece>, ErrorCode> {
        let physical = self.handles.remove(handle.0).ok_or(ErrorCode::InvalidHandle)?;
        if let Some(object) = self.objects.get_mut(&physical) {
            object.has_handle = false;
        }
        Ok(self.collect(supply, physical))
    }

    pub(crate) fn map(
        &mut self,
        address: u64,
        bytes: u64,
        handle: Handle,
    ) -> Result<(), ErrorCode> {
        let physical = *self.handles.get(handle.0).ok_or(ErrorCode::InvalidHandle)?;
        let object = self.objects.get_mut(&physical).ok_or(ErrorCode::InvalidHandle)?;
        let is_reserved = in_one_reservation(&self.reservations, address, bytes);
        if !is_granular(address) || bytes != object.bytes || !is_reserved {
            return Err(ErrorCode::InvalidValue);
        }
        let below = self.mappings.range(..address + bytes).next_back();
        if below.is_some_and(|(&start, mapping)| start + mapping.bytes > address) {
            return Err(ErrorCode::InvalidValue);
        }
        object.mappings += 1;
        self.mappings.insert(address, Mapping { bytes, physical, has_access: false });
        Ok(())
    }

    pub(crate) fn set_access(&mut self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.check_whole_mappings(address, bytes)?;
        let range = address..address + bytes;
        let without = self.mappings.range(range.clone()).filter(|(_, mapping)| !mapping.has_access);
        let fresh: u64 = without.map(|(_, mapping)| mapping.bytes / GRANULARITY_BYTES).sum();
        if self.accessible_granules + fresh > self.mapping_limit {
            return Err(ErrorCode::OutOfMemory);
        }
        self.accessible_granules += fresh;
        for (_, mapping) in self.mappings.range_mut(range) {
            mapping.has_access = true;
        }
        Ok(())
    }

    /// Whether [`unmap`](Self::unmap) would do it: asked first, because the oracle looks at the
    /// range before the mappings are gone.
    pub(crate) fn check_whole_mappings(&self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        if bytes == 0 || !in_one_reservation(&self.reservations, address, bytes) {
            return Err(ErrorCode::InvalidValue);
        }
        let mut expected = address;
        for (&start, mapping) in self.mappings.range(address..address + bytes) {
            if start != expected {
                return Err(ErrorCode::InvalidValue);
            }
            expected = start + mapping.bytes;
        }
        if expected == address + bytes { Ok(()) } else { Err(ErrorCode::InvalidValue) }
    }

    /// Unmaps the range and returns the physical memory that nothing keeps any more.
    pub(crate) fn unmap(
        &mut self,
        supply: &mut Supply,
        address: u64,
        bytes: u64,
    ) -> Result<Vec<Piece>, ErrorCode> {
        self.check_whole_mappings(address, bytes)?;
        let mut gone = Vec::new();
        let starts: Vec<u64> =
            self.mappings.range(address..address + bytes).map(|(&start, _)| start).collect();
        for start in starts {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            if mapping.has_access {
                self.accessible_granules -= mapping.bytes / GRANULARITY_BYTES;
            }
            if let Some(object) = self.objects.get_mut(&mapping.physical) {
                object.mappings -= 1;
            }
            gone.extend(self.collect(supply, mapping.physical));
        }
        Ok(gone)
    }

    /// The mapping with access rights that holds `at`.
    pub(crate) fn accessible_at(&self, at: u64) -> Option<Piece> {
        let (&address, mapping) = self.mappings.range(..=at).next_back()?;
        let piece = Piece { address, physical: mapping.physical, bytes: mapping.bytes };
        (mapping.has_access && at - address < piece.bytes).then_some(piece)
    }

    pub(crate) fn reservations(&self) -> usize {
        self.reservations.len()
    }

    pub(crate) fn handles(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Gives the memory back if neither a handle nor a mapping keeps it.
    fn collect(&mut self, supply: &mut Supply, physical: Physical) -> Option<Piece> {
        let object = self.objects.get(&physical)?;
        if object.has_handle || object.mappings > 0 {
            return None;
        }
        let bytes = object.bytes;
        self.objects.remove(&physical);
        supply.give_back(bytes);
        Some(Piece { address: 0, physical, bytes })
    }
}

fn in_one_reservation(reservations: &BTreeMap<u64, u64>, address: u64, bytes: u64) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let holder = reservations.range(..=address).next_back();
    holder.is_some_and(|(&start, &size)| end <= start + size)
}
