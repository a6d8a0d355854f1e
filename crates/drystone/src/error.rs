//! Errors of the library: typed, with figures and the way out.

use std::fmt;

use drystone_core::{Poisoned, PoolId, RequestError, StreamError};
use drystone_driver::{Call, DriverError, ErrorCode};

use crate::decimal::Hundredths;
use crate::tag::TagStats;

/// Why an allocation failed. The allocator stays usable, and the same call may be made again,
/// unless the request was refused as [`RequestError::Poisoned`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// There is not enough memory, after everything unused was given back.
    #[error(transparent)]
    OutOfMemory(#[from] Box<OutOfMemory>),
    /// The size, the stream or the pool is none of the allocator's.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The driver failed for another reason than a lack of memory.
    #[error("{error} while allocating {bytes} bytes")]
    Driver {
        /// The failed call.
        error: DriverError,
        /// The size asked for.
        bytes: u64,
    },
}

impl From<StreamError> for AllocateError {
    fn from(error: StreamError) -> Self {
        AllocateError::Request(error.into())
    }
}

impl From<Poisoned> for AllocateError {
    fn from(error: Poisoned) -> Self {
        AllocateError::Request(error.into())
    }
}

/// What a poisoned state machine makes of a call that it would decide on.
pub(crate) fn poisoned(call: Call) -> impl FnOnce(Poisoned) -> DriverError {
    move |_| DriverError::new(call, ErrorCode::Poisoned)
}

/// Why memory was not given back. What was given back before the failure stays so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gave {given_back_bytes} bytes back, then: {error}")]
#[non_exhaustive]
pub struct TrimError {
    /// The failed call.
    pub error: DriverError,
    /// Bytes given back before it.
    pub given_back_bytes: u64,
}

impl TrimError {
    /// A trim that failed before it gave anything back.
    pub(crate) const fn before_anything(error: DriverError) -> Self {
        Self { error, given_back_bytes: 0 }
    }

    /// Whether the device may work again later.
    pub const fn is_final(&self) -> bool {
        is_final(self.error.code)
    }
}

/// Why another device cannot reuse all memory. Its access cannot be taken back: memory of the
/// allocator stays usable, and the same call may be made again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {peer_ordinal} was not given access to all memory: {open_bytes} bytes are open to it, \
     {closed_bytes} are not: {error}"
)]
#[non_exhaustive]
pub struct PeerError {
    /// The other device.
    pub peer_ordinal: u32,
    /// The failed call.
    pub error: DriverError,
    /// Mapped bytes that were opened before it failed.
    pub open_bytes: u64,
    /// Mapped bytes that were not.
    pub closed_bytes: u64,
}

/// Whether no driver call can succeed any more, or none is made.
pub(crate) const fn is_final(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Deinitialized
            | ErrorCode::NotInitialized
            | ErrorCode::ContextLost
            | ErrorCode::DeviceReset
            | ErrorCode::Poisoned
    )
}

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
    /// Free in private pools, such as a graph's, but for the pool asked: none of it serves others.
    pub private_free_bytes: u64,
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
    /// The driver's refusal; `None` if the limit refused, or if the driver was not even asked: the
    /// device has less free than it takes.
    pub refusal: Option<DriverError>,
}

impl std::error::Error for OutOfMemory {}

impl OutOfMemory {
    /// What stands in the way, and what to do about it.
    fn advice(&self) -> String {
        if self.requested_bytes > self.device_bytes {
            return "The request is larger than the device's memory.".to_owned();
        }
        if self.is_capturing {
            return "A graph is being captured, so nothing could be given back: allocate once \
                    before the capture, or trim before it begins."
                .to_owned();
        }
        // Where all of the device is allowed, the device is what is too small.
        if self.is_at_limit && self.limit_bytes < self.device_bytes {
            return format!(
                "The limit of {} stands in the way: raise limit or limit_fraction.",
                Bytes(self.limit_bytes)
            );
        }
        if self.is_out_of_mappings() {
            return "The driver has no mappings left: make granule larger, so that each covers more."
                .to_owned();
        }
        if self.would_do(self.pending_bytes) {
            return format!(
                "Freed memory is still in use on other streams, {}: synchronise them earlier, or \
                 record fewer uses.",
                Bytes(self.pending_bytes)
            );
        }
        if self.would_do(self.private_free_bytes) {
            return format!(
                "{} are free in private pools, which keep them for their CUDA graphs or their \
                 users: drop graphs and pools that are done with, or let graphs share one pool.",
                Bytes(self.private_free_bytes)
            );
        }
        let used = self.allocated_bytes + self.pending_bytes + self.private_free_bytes;
        let unused = self.reserved_bytes.saturating_sub(used);
        if unused >= self.requested_bytes {
            return self.advice_on_pieces(unused);
        }
        let others = self.other_bytes();
        if others > self.allocated_bytes && self.would_do(others) {
            return format!(
                "Most of the device, {}, is held by other processes, or by this one outside of \
                 Drystone: free it there.",
                Bytes(others)
            );
        }
        "Use a smaller batch, or free memory of this or another process on the device.".to_owned()
    }

    /// What to do where enough is free within what live blocks keep.
    fn advice_on_pieces(&self, unused: u64) -> String {
        match self.granule_bytes {
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
        }
    }

    /// Whether the request would fit if so much more were free.
    fn would_do(&self, bytes: u64) -> bool {
        let free = self.device_free_bytes.unwrap_or(0);
        bytes > 0 && free + bytes >= self.requested_bytes
    }

    /// What the device has in use that is not Drystone's.
    fn other_bytes(&self) -> u64 {
        let free = self.device_free_bytes.unwrap_or(self.device_bytes);
        self.device_bytes.saturating_sub(free + self.reserved_bytes)
    }

    /// The driver refuses access with memory to spare only when its table of mappings is full.
    fn is_out_of_mappings(&self) -> bool {
        let is_access = self.refusal.as_ref().is_some_and(|error| error.call == Call::SetAccess);
        is_access && self.device_free_bytes.is_some_and(|free| free >= self.requested_bytes)
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
        write!(
            f,
            ". Drystone holds {}: {} allocated, {} pending on other streams, largest free block \
             {}.",
            Bytes(self.reserved_bytes),
            Bytes(self.allocated_bytes),
            Bytes(self.pending_bytes),
            Bytes(self.largest_free_bytes)
        )?;
        if self.private_free_bytes > 0 {
            write!(f, " {} are free in private pools.", Bytes(self.private_free_bytes))?;
        }
        let others = self.other_bytes();
        if others > 0 {
            write!(f, " {} are held outside of Drystone.", Bytes(others))?;
        }
        if !self.tags.is_empty() {
            let by_tag = |tag: &TagStats| format!("{} {}", tag.name, Bytes(tag.bytes));
            let by_tag: Vec<String> = self.tags.iter().map(by_tag).collect();
            write!(f, " By tag: {}.", by_tag.join(", "))?;
        }
        if let Some(refusal) = &self.refusal {
            write!(f, " The driver: {refusal}.")?;
        }
        Ok(())
    }
}

/// A size in binary units with two decimals, as PyTorch prints it.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in UNITS {
            if self.0 >= 1 << shift {
                return write!(f, "{} {unit}", Hundredths { number: self.0, shift });
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> OutOfMemory {
        OutOfMemory {
            requested_bytes: 2 << 30,
            ordinal: 0,
            pool: PoolId::DEFAULT,
            device_bytes: 8 << 30,
            device_free_bytes: Some(1 << 30),
            limit_bytes: u64::MAX,
            allocated_bytes: 6 << 30,
            pending_bytes: 0,
            reserved_bytes: 7 << 30,
            largest_free_bytes: 512 << 20,
            private_free_bytes: 0,
            granule_bytes: Some(2 << 20),
            granule_bytes_min: 2 << 20,
            is_capturing: false,
            is_at_limit: false,
            tags: Vec::new(),
            refusal: Some(
                DriverError::new(Call::Create, ErrorCode::OutOfMemory).with_figures(2 << 20, 0),
            ),
        }
    }

    #[test]
    fn message_has_the_figures_and_the_way_out() {
        assert_eq!(
            sample().to_string(),
            "CUDA out of memory. Tried to allocate 2.00 GiB. Use a smaller batch, or free memory \
             of this or another process on the device. GPU 0 has a total capacity of 8.00 GiB of \
             which 1.00 GiB is free. Drystone holds 7.00 GiB: 6.00 GiB allocated, 0 bytes pending \
             on other streams, largest free block 512.00 MiB. The driver: cuMemCreate failed: out \
             of memory (2097152 bytes)."
        );
    }

    #[test]
    fn advice_names_what_stands_in_the_way() {
        let limited = OutOfMemory { is_at_limit: true, limit_bytes: 7 << 30, ..sample() };
        let whole = OutOfMemory { limit_bytes: 8 << 30, ..limited.clone() }.to_string();
        assert!(whole.contains("2.00 GiB. Use a smaller batch"), "{whole}");
        let full = OutOfMemory { refusal: None, ..sample() }.to_string();
        assert!(full.ends_with("block 512.00 MiB."), "{full}");
        assert!(limited.to_string().contains("; 7.00 GiB allowed"));
        assert!(limited.to_string().contains("raise limit or limit_fraction"));
        let pending = OutOfMemory { pending_bytes: 3 << 30, ..sample() };
        assert!(pending.to_string().contains("still in use on other streams"));
        let pieces = OutOfMemory { reserved_bytes: 9 << 30, ..sample() };
        assert!(pieces.to_string().contains("3.00 GiB are unused, in pieces that live blocks"));
        let granules = OutOfMemory { granule_bytes_min: 1 << 20, ..pieces };
        assert!(granules.to_string().contains("3.00 GiB are unused, in granules of 2.00 MiB"));
        let segments = OutOfMemory { granule_bytes: None, ..granules };
        assert!(segments.to_string().contains("backend:vmm gives parts of them back"));
        let mappings = OutOfMemory {
            device_free_bytes: Some(4 << 30),
            refusal: Some(DriverError::new(Call::SetAccess, ErrorCode::OutOfMemory)),
            ..sample()
        };
        assert!(mappings.to_string().contains("no mappings left: make granule larger"));
        let capturing = OutOfMemory { is_capturing: true, ..sample() };
        assert!(capturing.to_string().contains("A graph is being captured"));
        let absurd = OutOfMemory { requested_bytes: 9 << 30, refusal: None, ..sample() };
        assert!(absurd.to_string().contains("The request is larger than the device's memory. GPU"));
    }

    #[test]
    fn advice_names_who_has_the_memory() {
        // What a private pool keeps is no matter of granules, however much of it is unused.
        let pools =
            OutOfMemory { allocated_bytes: 4 << 30, private_free_bytes: 3 << 30, ..sample() };
        assert!(pools.to_string().contains("3.00 GiB are free in private pools, which keep them"));
        let little = OutOfMemory { private_free_bytes: 1 << 20, ..sample() }.to_string();
        assert!(little.contains("2.00 GiB. Use a smaller batch"), "{little}");
        assert!(
            little.ends_with(
                "1.00 MiB are free in private pools. The driver: cuMemCreate failed: out of memory \
                 (2097152 bytes)."
            ),
            "{little}"
        );
        let tag = |name: &str, bytes| TagStats { name: name.to_owned(), bytes, peak_bytes: bytes };
        let tags = vec![tag("weights", 4 << 30), tag("kv", 3 << 29)];
        let tagged = OutOfMemory { tags, refusal: None, ..sample() }.to_string();
        assert!(tagged.ends_with("512.00 MiB. By tag: weights 4.00 GiB, kv 1.50 GiB."), "{tagged}");
        let outside = OutOfMemory { allocated_bytes: 1 << 30, reserved_bytes: 1 << 30, ..sample() };
        let outside = outside.to_string();
        assert!(outside.contains("Most of the device, 6.00 GiB, is held by other processes"));
        assert!(outside.contains("6.00 GiB are held outside of Drystone."), "{outside}");
        let unknown = OutOfMemory { device_free_bytes: None, ..sample() }.to_string();
        assert!(!unknown.contains("outside"), "{unknown}");
    }
}
