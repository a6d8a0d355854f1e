//! [`AsyncPools`]: the device's memory pools, and those destroyed while something was allocated.
//!
//! Invariant: a live address belongs to exactly one pool, which is kept until the address is freed
//! and its memory given back.

use super::{AsyncPool, Piece};
use crate::handle_table::HandleTable;
use drystone_driver::{ErrorCode, MemoryPool, MemoryPoolConfig};

/// Handles of memory pools start here.
const FIRST_POOL: u64 = 0x5_0000;

#[derive(Debug)]
pub(crate) struct AsyncPools {
    table: HandleTable<AsyncPool>,
    /// Destroyed, but not yet empty.
    orphans: Vec<AsyncPool>,
}

impl AsyncPools {
    pub(crate) const fn new() -> Self {
        Self { table: HandleTable::new(FIRST_POOL), orphans: Vec::new() }
    }

    pub(crate) fn create(&mut self, config: MemoryPoolConfig) -> MemoryPool {
        MemoryPool(self.table.insert(AsyncPool::new(config)))
    }

    pub(crate) fn destroy(&mut self, pool: MemoryPool) -> Result<(), ErrorCode> {
        let gone = self.table.remove(pool.0).ok_or(ErrorCode::InvalidHandle)?;
        self.orphans.push(gone);
        Ok(())
    }

    pub(crate) fn get(&self, pool: MemoryPool) -> Result<&AsyncPool, ErrorCode> {
        self.table.get(pool.0).ok_or(ErrorCode::InvalidHandle)
    }

    pub(crate) fn get_mut(&mut self, pool: MemoryPool) -> Result<&mut AsyncPool, ErrorCode> {
        self.table.get_mut(pool.0).ok_or(ErrorCode::InvalidHandle)
    }

    /// The pool of a live address, and the bytes there.
    pub(crate) fn owner_of(&mut self, address: u64) -> Result<(&mut AsyncPool, u64), ErrorCode> {
        self.iter_mut()
            .find_map(|pool| pool.live_bytes_at(address).map(|bytes| (pool, bytes)))
            .ok_or(ErrorCode::InvalidValue)
    }

    /// The live allocation that holds `at`.
    pub(crate) fn extent_at(&self, at: u64) -> Option<Piece> {
        self.table.iter().chain(&self.orphans).find_map(|pool| pool.extent_at(at))
    }

    /// Live allocations of all pools.
    pub(crate) fn live(&self) -> usize {
        self.table.iter().chain(&self.orphans).map(AsyncPool::len).sum()
    }

    /// Pools that were not destroyed.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Every pool, and for a trim that no one asked for how much each keeps.
    pub(crate) fn trim_each(&mut self, mut trim: impl FnMut(&mut AsyncPool, u64)) {
        for pool in self.table.iter_mut() {
            let keep_bytes = pool.config().release_threshold_bytes;
            trim(pool, keep_bytes);
        }
        self.orphans.iter_mut().for_each(|pool| trim(pool, 0));
        self.orphans.retain(|pool| pool.usage().reserved_bytes > 0);
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut AsyncPool> {
        self.table.iter_mut().chain(&mut self.orphans)
    }
}
