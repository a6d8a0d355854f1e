//! The device's memory: what may be taken, and three ways to take it.
//!
//! Lives here, bottom first: `piece`, `address_space`, `holdings`, `host`, `supply`, the ways
//! (`virtual_memory`, `plain`, and `free_extents`, `async_pool`, `async_pools`), and [`Memory`],
//! which joins them.
//! Invariant: an address belongs to at most one reservation, plain allocation or pool segment, and
//! `used_bytes` is the sum of what is alive. Every physical byte has a number of its own that is
//! never given out again; the oracle knows memory by these numbers, not by addresses.

mod address_space;
mod async_pool;
mod async_pools;
mod free_extents;
mod holdings;
mod host;
mod piece;
mod plain;
mod supply;
mod virtual_memory;

pub(crate) use async_pool::Asker;
pub(crate) use async_pools::Owner;
pub(crate) use free_extents::FreePoint;
pub(crate) use host::HostMemory;
pub(crate) use piece::Piece;

use crate::config::SimConfig;
use async_pools::AsyncPools;
use plain::PlainMemory;
use supply::Supply;
use virtual_memory::VirtualMemory;

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) supply: Supply,
    pub(crate) vm: VirtualMemory,
    pub(crate) plain: PlainMemory,
    pub(crate) pools: AsyncPools,
}

impl Memory {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Self {
            supply: Supply::new(config),
            vm: VirtualMemory::new(config),
            plain: PlainMemory::default(),
            pools: AsyncPools::new(),
        }
    }

    /// The physical bytes behind a range, or `None` when a kernel that touches the whole range
    /// would fault.
    pub(crate) fn resolve(&self, address: u64, bytes: u64) -> Option<Vec<Piece>> {
        let end = address.checked_add(bytes)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = address;
        while at < end {
            let extent = self
                .vm
                .accessible_at(at)
                .or_else(|| self.plain.extent_at(at))
                .or_else(|| self.pools.extent_at(at))?;
            let piece = Piece {
                address: at,
                physical: extent.physical + (at - extent.address),
                bytes: (extent.address + extent.bytes).min(end) - at,
            };
            at += piece.bytes;
            match pieces.last_mut() {
                Some(last) if last.physical + last.bytes == piece.physical => {
                    last.bytes += piece.bytes;
                }
                _ => pieces.push(piece),
            }
        }
        Some(pieces)
    }
}
