//! [`VirtualMemory`]: reservations, physical handles and mappings.
//!
//! Refuses what the driver refuses: mapping over a mapping, outside one reservation, or in part;
//! ranges that cut a mapping or have a gap; giving addresses back while something is mapped there.
//! Invariant: physical memory lives as long as one of its handles, mappings or descriptors
//! (`export`) does, and a handle value is free for reuse as soon as it is released, mappings or
//! not.

mod export;
mod foreign;

use super::piece::{Physical, Piece};
use super::supply::Supply;
use crate::GRANULARITY_BYTES;
use crate::config::SimConfig;
use crate::handle_table::HandleTable;
use crate::refuse::refuse;
use crate::shared_file::{FileIdentity, SharedFile};
use drystone_driver::{ErrorCode, Handle};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const FIRST_HANDLE: u64 = 0xa000_0000;

/// Marks a granule-sized piece of a reservation where nothing is mapped.
const UNMAPPED: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct VirtualMemory {
    ordinal: u32,
    reservations: BTreeMap<u64, Reservation>,
    handles: HandleTable<Physical>,
    /// Looked up only, never walked: the order of a hash table decides nothing.
    objects: FxHashMap<Physical, Object>,
    exports: Exports,
    mappings: Vec<Mapping>,
    spare_mappings: Vec<u32>,
    mapping_limit: u64,
    alias_limit: u64,
    reservation_limit_bytes: u64,
    accessible_granules: u64,
}

#[derive(Debug)]
struct Reservation {
    bytes: u64,
    /// The mapping of each granule-sized piece, as far up as was ever mapped.
    pieces: Vec<u32>,
}

/// Physical memory made by one create.
#[derive(Debug)]
struct Object {
    bytes: u64,
    handles: u32,
    mappings: u32,
    /// Stands for it elsewhere, once it was asked for.
    file: Option<Arc<SharedFile>>,
    holders: Holders,
}

/// What stands for physical memory in files.
#[derive(Debug, Default)]
struct Exports {
    /// Looked up only, never walked.
    by_file: FxHashMap<FileIdentity, Physical>,
    /// Neither handle nor mapping is left, but perhaps a descriptor.
    outlived: Vec<Physical>,
    /// Handles that came by a descriptor.
    imported: FxHashSet<u64>,
}

/// Who else may hold physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holders {
    Nobody,
    /// It was exported.
    Others,
    /// It was exported, and is kept here by nothing else.
    Descriptors,
    /// It was imported: the memory of another process.
    Maker,
    /// Another device, whose memory it is: nothing of this one's is taken.
    OtherDevice,
    /// The host, likewise.
    Host,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    address: u64,
    bytes: u64,
    physical: Physical,
    has_access: bool,
    /// How many peers, of those in the order they were let in, had access when it was last set.
    peers: u32,
}

const fn is_granular(value: u64) -> bool {
    value.is_multiple_of(GRANULARITY_BYTES)
}

impl VirtualMemory {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Self {
            ordinal: config.ordinal,
            reservations: BTreeMap::new(),
            handles: HandleTable::new(FIRST_HANDLE),
            objects: FxHashMap::default(),
            exports: Exports::default(),
            mappings: Vec::new(),
            spare_mappings: Vec::new(),
            mapping_limit: config.mapping_limit,
            alias_limit: config.alias_limit,
            reservation_limit_bytes: config.reservation_limit_bytes,
            accessible_granules: 0,
        }
    }

    pub(crate) fn reserve(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
        align: u64,
    ) -> Result<u64, ErrorCode> {
        refuse(
            ErrorCode::InvalidValue,
            bytes == 0 || !is_granular(bytes) || (align != 0 && !align.is_power_of_two()),
        )?;
        refuse(ErrorCode::OutOfMemory, bytes > self.reservation_limit_bytes)?;
        let address = supply.take_addresses(bytes, align.max(GRANULARITY_BYTES))?;
        self.reservations.insert(address, Reservation { bytes, pieces: Vec::new() });
        Ok(address)
    }

    pub(crate) fn unreserve(
        &mut self,
        supply: &mut Supply,
        address: u64,
        bytes: u64,
    ) -> Result<(), ErrorCode> {
        let is_free = self.reservations.get(&address).is_some_and(|reservation| {
            reservation.bytes == bytes && reservation.pieces.iter().all(|&piece| piece == UNMAPPED)
        });
        refuse(ErrorCode::InvalidValue, !is_free)?;
        self.reservations.remove(&address);
        supply.give_addresses(address, bytes);
        Ok(())
    }

    pub(crate) fn create(&mut self, supply: &mut Supply, bytes: u64) -> Result<Handle, ErrorCode> {
        refuse(ErrorCode::InvalidValue, bytes == 0 || !is_granular(bytes))?;
        let physical = supply.take_handle(bytes)?;
        self.objects.insert(
            physical,
            Object { bytes, handles: 1, mappings: 0, file: None, holders: Holders::Nobody },
        );
        Ok(Handle(self.handles.insert(physical)))
    }

    /// Returns the physical memory when this was the last thing that kept it.
    pub(crate) fn release(
        &mut self,
        supply: &mut Supply,
        handle: Handle,
    ) -> Result<Option<Piece>, ErrorCode> {
        let physical = self.handles.remove(handle.0).ok_or(ErrorCode::InvalidHandle)?;
        self.exports.imported.remove(&handle.0);
        if let Some(object) = self.objects.get_mut(&physical) {
            object.handles -= 1;
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
        refuse(ErrorCode::InvalidValue, !is_granular(address) || bytes != object.bytes)?;
        let (start, reservation) = reservation_of(&mut self.reservations, address, bytes)
            .ok_or(ErrorCode::InvalidValue)?;
        let pieces = pieces(start, address, bytes);
        if reservation.pieces.len() < pieces.end {
            reservation.pieces.resize(pieces.end, UNMAPPED);
        }
        let pieces = &mut reservation.pieces[pieces];
        refuse(ErrorCode::InvalidValue, pieces.iter().any(|&piece| piece != UNMAPPED))?;
        refuse(ErrorCode::OutOfMemory, u64::from(object.mappings) >= self.alias_limit)?;
        object.mappings += 1;
        let mapping = Mapping { address, bytes, physical, has_access: false, peers: 0 };
        let index = match self.spare_mappings.pop() {
            Some(index) => {
                self.mappings[index as usize] = mapping;
                index
            }
            None => {
                self.mappings.push(mapping);
                (self.mappings.len() - 1) as u32
            }
        };
        pieces.fill(index);
        Ok(())
    }

    /// Opens a range to the device, and to as many of its peers as have been let in.
    pub(crate) fn set_access(
        &mut self,
        address: u64,
        bytes: u64,
        peers: u32,
    ) -> Result<(), ErrorCode> {
        let whole = self.whole_mappings(address, bytes)?;
        let without = whole.iter().map(|&index| &self.mappings[index as usize]);
        let fresh: u64 =
            without.filter(|m| !m.has_access).map(|m| m.bytes / GRANULARITY_BYTES).sum();
        refuse(ErrorCode::OutOfMemory, self.accessible_granules + fresh > self.mapping_limit)?;
        self.accessible_granules += fresh;
        for index in whole {
            let mapping = &mut self.mappings[index as usize];
            (mapping.has_access, mapping.peers) = (true, peers);
        }
        Ok(())
    }

    /// Whether [`unmap`](Self::unmap) would do it: asked first, because the oracle looks at the
    /// range before the mappings are gone.
    pub(crate) fn check_whole_mappings(&self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.whole_mappings(address, bytes).map(drop)
    }

    /// The mappings that make up a range, in order; an error if it cuts one or has a gap.
    fn whole_mappings(&self, address: u64, bytes: u64) -> Result<Vec<u32>, ErrorCode> {
        let (&start, reservation) =
            self.reservations.range(..=address).next_back().ok_or(ErrorCode::InvalidValue)?;
        let end = address.checked_add(bytes).ok_or(ErrorCode::InvalidValue)?;
        refuse(ErrorCode::InvalidValue, bytes == 0 || end > start + reservation.bytes)?;
        let mut whole = Vec::with_capacity((bytes / GRANULARITY_BYTES) as usize);
        let mut expected = address;
        while expected < end {
            let piece = ((expected - start) / GRANULARITY_BYTES) as usize;
            let index = reservation.pieces.get(piece).copied().unwrap_or(UNMAPPED);
            match self.mappings.get(index as usize) {
                Some(mapping) if mapping.address == expected => {
                    whole.push(index);
                    expected += mapping.bytes;
                }
                _ => return Err(ErrorCode::InvalidValue),
            }
        }
        if expected == end { Ok(whole) } else { Err(ErrorCode::InvalidValue) }
    }

    /// Unmaps the range and returns the physical memory that nothing keeps any more.
    pub(crate) fn unmap(
        &mut self,
        supply: &mut Supply,
        address: u64,
        bytes: u64,
    ) -> Result<Vec<Piece>, ErrorCode> {
        let whole = self.whole_mappings(address, bytes)?;
        if let Some((start, reservation)) = reservation_of(&mut self.reservations, address, bytes) {
            reservation.pieces[pieces(start, address, bytes)].fill(UNMAPPED);
        }
        let mut gone = Vec::new();
        for index in whole {
            let mapping = self.mappings[index as usize];
            self.spare_mappings.push(index);
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
        let (&start, reservation) = self.reservations.range(..=at).next_back()?;
        let piece = ((at - start) / GRANULARITY_BYTES) as usize;
        let index = *reservation.pieces.get(piece)?;
        let mapping = self.mappings.get(index as usize).filter(|mapping| mapping.has_access)?;
        let Mapping { address, bytes, physical, .. } = *mapping;
        Some(Piece { address, physical, bytes })
    }

    /// The mapping that holds `at`, with or without access rights.
    pub(crate) fn mapping_at(&self, at: u64) -> Option<Piece> {
        let mapping = &self.mappings[self.mapping_index(at)? as usize];
        let Mapping { address, bytes, physical, .. } = *mapping;
        Some(Piece { address, physical, bytes })
    }

    /// Takes the access rights of whole mappings away.
    pub(crate) fn remove_access(&mut self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        for index in self.whole_mappings(address, bytes)? {
            let mapping = &mut self.mappings[index as usize];
            if std::mem::take(&mut mapping.has_access) {
                self.accessible_granules -= mapping.bytes / GRANULARITY_BYTES;
            }
        }
        Ok(())
    }

    /// A new handle of mapped memory whose own was released.
    pub(crate) fn handle_again(&mut self, at: u64) -> Result<Handle, ErrorCode> {
        let index = self.mapping_index(at).ok_or(ErrorCode::InvalidValue)?;
        let physical = self.mappings[index as usize].physical;
        let object = self.objects.get_mut(&physical).ok_or(ErrorCode::InvalidValue)?;
        object.handles += 1;
        Ok(Handle(self.handles.insert(physical)))
    }

    fn mapping_index(&self, at: u64) -> Option<u32> {
        let (&start, reservation) = self.reservations.range(..=at).next_back()?;
        let piece = ((at - start) / GRANULARITY_BYTES) as usize;
        reservation.pieces.get(piece).copied().filter(|&index| index != UNMAPPED)
    }

    /// How many peers the mapping that holds `at` is open to.
    pub(crate) fn peers_at(&self, at: u64) -> Option<u32> {
        let mapping = &self.mappings[self.mapping_index(at)? as usize];
        mapping.has_access.then_some(mapping.peers)
    }

    pub(crate) fn reservations(&self) -> usize {
        self.reservations.len()
    }

    pub(crate) fn reserved_address_bytes(&self) -> u64 {
        self.reservations.values().map(|reservation| reservation.bytes).sum()
    }

    pub(crate) fn handles(&self) -> usize {
        self.handles.len()
    }

    /// How many mappings begin in a range of one reservation.
    pub(crate) fn mappings_in(&self, address: u64, bytes: u64) -> u64 {
        let Some((&start, reservation)) = self.reservations.range(..=address).next_back() else {
            return 0;
        };
        let within = address..address.saturating_add(bytes);
        let first = ((address - start) / GRANULARITY_BYTES) as usize;
        let most = bytes.div_ceil(GRANULARITY_BYTES) as usize + 1;
        let begins_here = |(piece, index): &(usize, &u32)| {
            let at = start + *piece as u64 * GRANULARITY_BYTES;
            let mapping = self.mappings.get(**index as usize);
            within.contains(&at) && mapping.is_some_and(|mapping| mapping.address == at)
        };
        let pieces = reservation.pieces.iter().enumerate().skip(first).take(most);
        pieces.filter(begins_here).count() as u64
    }

    pub(crate) fn mappings(&self) -> usize {
        self.mappings.len() - self.spare_mappings.len()
    }

    /// Gives the memory back if no handle, mapping or descriptor keeps it.
    fn collect(&mut self, supply: &mut Supply, physical: Physical) -> Option<Piece> {
        let object = self.objects.get(&physical)?;
        let bytes = object.bytes;
        if object.handles > 0 || object.mappings > 0 || self.is_kept(supply, physical) {
            return None;
        }
        let Object { holders, file, .. } = self.objects.remove(&physical)?;
        match (holders, file) {
            (Holders::OtherDevice | Holders::Host, _) => {}
            (Holders::Others | Holders::Descriptors | Holders::Maker, Some(file)) => {
                supply.give_back_shared(file.identity(), bytes);
            }
            _ => supply.give_back(bytes),
        }
        Some(Piece { address: 0, physical, bytes })
    }
}

/// The reservation that holds a whole range, with its start.
fn reservation_of(
    reservations: &mut BTreeMap<u64, Reservation>,
    address: u64,
    bytes: u64,
) -> Option<(u64, &mut Reservation)> {
    let (&start, reservation) = reservations.range_mut(..=address).next_back()?;
    let is_inside = address.checked_add(bytes)? <= start + reservation.bytes;
    is_inside.then_some((start, reservation))
}

/// The pieces of a reservation from `start` that a granular range covers.
const fn pieces(start: u64, address: u64, bytes: u64) -> Range<usize> {
    let first = ((address - start) / GRANULARITY_BYTES) as usize;
    first..first + (bytes / GRANULARITY_BYTES) as usize
}
