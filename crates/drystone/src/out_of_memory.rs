//! [`OutOfMemory`]: a request that was refused, with its figures; [`Cause`]: what stood in its way.
//!
//! Invariant: a cause is named only if the request would have been served without it, by the
//! figures of the error alone; of several parts of unused memory that are enough together only, the
//! largest. What no figure explains is memory in use.

mod stays;

use std::fmt;

use drystone_core::PoolId;
use drystone_driver::sizes::Bytes;
use drystone_driver::{Call, DriverError};

use crate::neighbours::Neighbour;
use crate::tag::TagStats;

pub use stays::Stays;

/// How many tags are told by name.
const TAGS_MAX: usize = 6;
/// How many processes are told by name.
const NEIGHBOURS_MAX: usize = 4;

/// Out of memory: what was asked for, what to do, and who holds what. All figures in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// What the program asked for.
    pub requested_bytes: u64,
    /// The device.
    pub ordinal: u32,
    /// The pool asked.
    pub pool: PoolId,
    /// The device's memory.
    pub device_bytes: u64,
    /// Of it free, over all processes; `None` if the device could not say.
    pub device_free_bytes: Option<u64>,
    /// What of that is left to the host, on a device whose memory is the host's.
    pub host_floor_bytes: u64,
    /// The allocator's own limit; `u64::MAX` if there is none.
    pub limit_bytes: u64,
    /// In live blocks.
    pub allocated_bytes: u64,
    /// Freed by the program, but other streams may still use it.
    pub pending_bytes: u64,
    /// Held from the driver.
    pub reserved_bytes: u64,
    /// The largest free block of any stream; 0 where the driver keeps them (backend `async`).
    pub largest_free_bytes: u64,
    /// In live blocks of private pools.
    pub private_allocated_bytes: u64,
    /// Free in private pools, such as a graph's, except the pool asked: none of it serves others.
    pub private_free_bytes: u64,
    /// Free in the pool asked, where that is a private one: its memory stays where it is.
    pub own_free_bytes: u64,
    /// Pinned, in whole handles, free or not: it stays where it is.
    pub pinned_bytes: u64,
    /// Free in whole granules, of handles that live blocks have the rest of.
    pub beside_live_bytes: u64,
    /// Why live memory was not moved together; `None` if nothing stood in the way.
    pub stays: Option<Stays>,
    /// Size of a granule; `None` where memory comes in plain allocations.
    pub granule_bytes: Option<u64>,
    /// The smallest that a granule of this device can be.
    pub granule_bytes_min: u64,
    /// A capture is under way: nothing could be waited for or given back.
    pub is_capturing: bool,
    /// The limit refused, and not the device.
    pub is_at_limit: bool,
    /// What each tag of the program's has.
    pub tags: Vec<TagStats>,
    /// Other processes on the device that this one could ask, and what they hold.
    pub neighbours: Vec<Neighbour>,
    /// The driver's refusal; `None` if the limit refused, or if the driver was not even asked: the
    /// device has less free than it takes.
    pub refusal: Option<DriverError>,
}

/// What stood in the way of a request, first of all. All figures in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// It is larger than the device.
    Device,
    /// It is larger than what the device has beside memory held outside of the allocator.
    Rest {
        /// What the device has beside that.
        rest_bytes: u64,
        /// What is held outside: by other processes, by contexts, by other code of this process.
        outside_bytes: u64,
    },
    /// Nothing could be waited for or given back while a graph was captured.
    Capture,
    /// The driver's table of mappings is full.
    Mappings,
    /// The device does not give what it says is free, so much.
    Withheld(u64),
    /// Other streams may still use memory that was freed.
    Pending(u64),
    /// Private pools keep what is free in them.
    PrivatePools(u64),
    /// What is free in the private pool that was asked lies in pieces, which do not move.
    OwnPool(u64),
    /// What is free lies in pieces that live blocks keep.
    Pieces(u64),
    /// What is left to the host: what it can give, and what of that it keeps.
    HostFloor(u64, u64),
    /// The allocator's limit.
    Limit(u64),
    /// Most of the device is held outside of the allocator.
    Outside(u64),
    /// The program's own memory is in use: so much more would have to be free.
    InUse {
        /// What is missing, if all that is unused and not a private pool's serves the request.
        missing_bytes: u64,
    },
}

impl std::error::Error for OutOfMemory {}

impl OutOfMemory {
    /// What stood in the way.
    pub fn cause(&self) -> Cause {
        let outside_bytes = self.outside_bytes();
        let rest_bytes = self.device_bytes.saturating_sub(outside_bytes);
        if self.requested_bytes > self.device_bytes {
            return Cause::Device;
        }
        if self.requested_bytes > self.limit_bytes.min(self.device_bytes) {
            return Cause::Limit(self.limit_bytes);
        }
        if self.requested_bytes > rest_bytes {
            return Cause::Rest { rest_bytes, outside_bytes };
        }
        if self.is_out_of_mappings() {
            return Cause::Mappings;
        }
        if let Some(free_bytes) = self.withheld_bytes() {
            return Cause::Withheld(free_bytes);
        }
        if let Some(unused) = self.unused() {
            return unused;
        }
        if self.has_room_in_the_floor() {
            return Cause::HostFloor(self.device_free_bytes.unwrap_or(0), self.host_floor_bytes);
        }
        // Where all of the device is allowed, the device is what is too small.
        let is_limited = self.is_at_limit && self.limit_bytes < self.device_bytes;
        if is_limited && self.has_room_without_limit() {
            return Cause::Limit(self.limit_bytes);
        }
        if outside_bytes > self.allocated_bytes && self.would_do(outside_bytes) {
            return Cause::Outside(outside_bytes);
        }
        let room_bytes = self.room_bytes().saturating_add(self.cached_bytes());
        Cause::InUse { missing_bytes: self.requested_bytes.saturating_sub(room_bytes) }
    }

    /// What is held and not in use, if that would have served the request.
    fn unused(&self) -> Option<Cause> {
        let unused_bytes = self.unused_bytes();
        if !self.would_do(unused_bytes) {
            return None;
        }
        if self.is_capturing {
            return Some(Cause::Capture);
        }
        let kept = self.pending_bytes + self.private_free_bytes + self.own_free_bytes;
        let parts = [
            Cause::Pending(self.pending_bytes),
            Cause::PrivatePools(self.private_free_bytes),
            Cause::OwnPool(self.own_free_bytes),
            Cause::Pieces(unused_bytes.saturating_sub(kept)),
        ];
        // One that would have done, else the largest of several that would have done together.
        let alone = parts.into_iter().find(|part| self.would_do(part.unused_bytes()));
        alone.or_else(|| parts.into_iter().max_by_key(Cause::unused_bytes))
    }

    /// What to do about the cause, in one or two sentences.
    pub fn advice(&self) -> String {
        match self.cause() {
            Cause::Device => "The request is larger than the device's memory.".to_owned(),
            Cause::Rest { rest_bytes, outside_bytes } => format!(
                "The request is larger than the {} that the device has beside {} held outside of \
                 Drystone, by other processes or by this one: free it there.",
                Bytes(rest_bytes),
                Bytes(outside_bytes)
            ),
            Cause::Capture => {
                "A graph is being captured, so nothing could be given back: allocate \
                               once before the capture, or trim before it begins."
                    .to_owned()
            }
            Cause::Mappings => "The driver has no mappings left: make granule larger, so that \
                                each covers more."
                .to_owned(),
            Cause::Withheld(bytes) => format!(
                "The device says that {} are free and does not give them: this process may have \
                 no more, as under a limit of MPS or of a container, or the driver keeps them. Use \
                 a smaller batch, and set Drystone's limit where you know the other one.",
                Bytes(bytes)
            ),
            Cause::Pending(bytes) => format!(
                "Freed memory is still in use on other streams, {}: synchronise them earlier, or \
                 record fewer uses.",
                Bytes(bytes)
            ),
            Cause::PrivatePools(bytes) => format!(
                "{} are free in private pools, which keep them for their CUDA graphs or their \
                 users: drop graphs and pools that are done with, or let graphs share one pool.",
                Bytes(bytes)
            ),
            Cause::OwnPool(bytes) => format!(
                "{} are free in the private pool that was asked, in pieces that stay where they \
                 are, each too small: allocate its largest blocks first.",
                Bytes(bytes)
            ),
            Cause::Pieces(bytes) => self.advice_on_pieces(bytes),
            Cause::HostFloor(available_bytes, floor_bytes) => format!(
                "The device has the host's memory: {} are available, and {} are left to the host. \
                 Free host memory, use a smaller batch, or lower host_floor.",
                Bytes(available_bytes),
                Bytes(floor_bytes)
            ),
            Cause::Limit(bytes) => format!(
                "The limit of {} stands in the way: raise limit or limit_fraction, or PyTorch's \
                 set_per_process_memory_fraction.",
                Bytes(bytes)
            ),
            Cause::Outside(bytes) => format!(
                "Most of the device, {}, is held by other processes, or by this one outside of \
                 Drystone: free it there.",
                Bytes(bytes)
            ),
            Cause::InUse { missing_bytes } => {
                // Of what is cached some may lie in pieces.
                let least = if self.cached_bytes() > 0 { "at least " } else { "" };
                format!(
                    "Use a smaller batch, or free {least}{} more of this or another process on \
                     the device.{}",
                    Bytes(missing_bytes),
                    self.advice_on_pins()
                )
            }
        }
    }

    /// What to do where enough is free within what live blocks keep.
    fn advice_on_pieces(&self, unused: u64) -> String {
        let text = match self.granule_bytes {
            Some(granule) if granule > self.granule_bytes_min => format!(
                "{} are unused, in granules of {} that live blocks keep in part: a smaller granule \
                 keeps less.",
                Bytes(unused),
                Bytes(granule)
            ),
            Some(_) => format!(
                "{} are unused, in pieces that live blocks beside them keep: free some of those, \
                 or use a smaller batch.",
                Bytes(unused)
            ),
            None => format!(
                "{} are unused, in segments that live blocks keep: backend:vmm gives parts of them \
                 back.",
                Bytes(unused)
            ),
        };
        text + &self.advice_on_moves() + &self.advice_on_pins()
    }

    /// What to do where live memory could have been moved together.
    fn advice_on_moves(&self) -> String {
        match self.stays {
            Some(stays) if self.would_do(self.beside_live_bytes) => {
                format!(" Live memory was not moved together, since {}.", stays.why())
            }
            _ => String::new(),
        }
    }

    fn advice_on_pins(&self) -> String {
        match self.pinned_bytes {
            0 => String::new(),
            bytes => {
                format!(" {} are pinned and do not move: unpin what is done with.", Bytes(bytes))
            }
        }
    }

    /// Who holds what, as the allocator knows it.
    pub fn figures(&self) -> String {
        let mut text = format!(
            "Drystone holds {}: {} allocated, {} pending on other streams, largest free block {}.",
            Bytes(self.reserved_bytes),
            Bytes(self.allocated_bytes),
            Bytes(self.pending_bytes),
            Bytes(self.largest_free_bytes)
        );
        for (bytes, what) in [
            (self.private_free_bytes + self.own_free_bytes, "free in private pools"),
            (self.beside_live_bytes, "unused in granules beside live blocks"),
            (self.of_strangers_bytes(), "held outside of Drystone"),
        ] {
            if bytes > 0 {
                text += &format!(" {} are {what}.", Bytes(bytes));
            }
        }
        text += &self.by_tag();
        text += &self.by_neighbour();
        if let Some(refusal) = &self.refusal {
            text += &format!(" The driver: {refusal}.");
        }
        text
    }

    /// Which tags have most, the most first.
    fn by_tag(&self) -> String {
        let mut left: Vec<&TagStats> = self.tags.iter().filter(|tag| tag.bytes > 0).collect();
        let mut text = String::new();
        for told in 0..TAGS_MAX {
            let most = left.iter().enumerate().rev().max_by_key(|(_, tag)| tag.bytes);
            let Some((at, &tag)) = most else { break };
            text += if told == 0 { " By tag: " } else { ", " };
            text += &format!("{} {}", tag.name, Bytes(tag.bytes));
            left.remove(at);
        }
        if !left.is_empty() {
            let bytes = left.iter().fold(0_u64, |sum, tag| sum.saturating_add(tag.bytes));
            text += &format!(", {} others {}", left.len(), Bytes(bytes));
        }
        if text.is_empty() { text } else { text + "." }
    }

    /// Which other processes hold most, the most first.
    fn by_neighbour(&self) -> String {
        let mut left: Vec<&Neighbour> = self.neighbours.iter().collect();
        let mut text = String::new();
        for _ in 0..NEIGHBOURS_MAX {
            let Some(at) = (0..left.len()).max_by_key(|&at| left[at].held_bytes) else { break };
            let &Neighbour { process, ref name, held_bytes, unused_bytes } = left.swap_remove(at);
            let (held, unused) = (Bytes(held_bytes), Bytes(unused_bytes));
            text += &format!(" Process {process} ({name}) holds {held}, {unused} of it unused.");
        }
        if !left.is_empty() {
            let bytes = left.iter().fold(0_u64, |sum, one| sum.saturating_add(one.held_bytes));
            text += &format!(" {} others hold {}.", left.len(), Bytes(bytes));
        }
        text
    }

    /// Whether the request would fit if so much more were free.
    fn would_do(&self, bytes: u64) -> bool {
        bytes > 0 && self.room_bytes().saturating_add(bytes) >= self.requested_bytes
    }

    /// Held and not in use.
    const fn unused_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Of that, what private pools do not keep. It stays held where it would not do.
    fn cached_bytes(&self) -> u64 {
        let private_bytes = self.private_free_bytes.saturating_add(self.own_free_bytes);
        self.unused_bytes().saturating_sub(private_bytes)
    }

    /// Whether the device itself would have served the request.
    fn has_room_without_limit(&self) -> bool {
        let free_bytes = self.device_free_bytes.unwrap_or(self.device_bytes);
        free_bytes.saturating_add(self.cached_bytes()) >= self.requested_bytes
    }

    /// What could be taken from the device.
    fn room_bytes(&self) -> u64 {
        let allowed = self.limit_bytes.saturating_sub(self.reserved_bytes);
        allowed.min(self.device_free_bytes.unwrap_or(0).saturating_sub(self.host_floor_bytes))
    }

    /// Whether what is left to the host would have served the request.
    fn has_room_in_the_floor(&self) -> bool {
        let floor_bytes = if self.refusal.is_none() { self.host_floor_bytes } else { 0 };
        let free_bytes = self
            .device_free_bytes
            .unwrap_or(0)
            .min(self.limit_bytes.saturating_sub(self.reserved_bytes));
        floor_bytes > 0 && free_bytes.saturating_add(self.cached_bytes()) >= self.requested_bytes
    }

    /// What the device has in use that is not the allocator's.
    pub fn outside_bytes(&self) -> u64 {
        let free = self.device_free_bytes.unwrap_or(self.device_bytes);
        self.device_bytes.saturating_sub(free.saturating_add(self.reserved_bytes))
    }

    /// The same, without what neighbours hold, who are told by name.
    fn of_strangers_bytes(&self) -> u64 {
        let held = self.neighbours.iter().map(|one| one.held_bytes);
        self.outside_bytes().saturating_sub(held.fold(0, u64::saturating_add))
    }

    /// The driver refuses access with memory to spare only when its table of mappings is full.
    fn is_out_of_mappings(&self) -> bool {
        let is_access = self.refusal.as_ref().is_some_and(|error| error.call == Call::SetAccess);
        is_access && self.device_free_bytes.is_some_and(|free| free >= self.requested_bytes)
    }

    /// What the device says is free, if it refused memory that this would have been enough for.
    fn withheld_bytes(&self) -> Option<u64> {
        let refused = self.refusal.as_ref()?;
        let unit_bytes = self.granule_bytes.unwrap_or(self.granule_bytes_min);
        // The least that is created for it.
        let least_bytes = self.requested_bytes.checked_next_multiple_of(unit_bytes)?;
        let is_memory = matches!(refused.call, Call::Create | Call::Malloc);
        let is_withheld = is_memory && !self.is_at_limit && self.room_bytes() >= least_bytes;
        self.device_free_bytes.filter(|_| is_withheld)
    }
}

impl Cause {
    /// Of what is held and not in use.
    const fn unused_bytes(&self) -> u64 {
        match *self {
            Cause::Pending(bytes)
            | Cause::PrivatePools(bytes)
            | Cause::OwnPool(bytes)
            | Cause::Pieces(bytes) => bytes,
            _ => 0,
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CUDA out of memory. Tried to allocate {}. {} GPU {} has a total capacity of {}",
            Bytes(self.requested_bytes),
            self.advice(),
            self.ordinal,
            Bytes(self.device_bytes)
        )?;
        if let Some(free) = self.device_free_bytes {
            write!(f, " of which {} is free", Bytes(free))?;
        }
        if self.limit_bytes != u64::MAX {
            write!(f, "; {} allowed", Bytes(self.limit_bytes))?;
        }
        write!(f, ". {}", self.figures())
    }
}

#[cfg(test)]
mod tests;
