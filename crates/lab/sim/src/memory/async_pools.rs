//! [`AsyncPools`]: the device's memory pools, and those destroyed while something was allocated.
//!
//! Invariant: a live address belongs to exactly one pool, which is kept until the address is freed
//! and its memory given back. Beside them the memory of graphs: what is allocated in a capture
//! belongs to the graph until its life ends, and serves again only in that capture and stream.

use super::async_pool::AsyncPool;
use super::piece::Piece;
use crate::handle_table::HandleTable;
use drystone_driver::{ErrorCode, MemoryPool, MemoryPoolConfig};
use std::collections::BTreeMap;

/// Handles of memory pools start here.
const FIRST_POOL: u64 = 0x5_0000;

#[derive(Debug)]
pub(crate) struct AsyncPools {
    table: HandleTable<AsyncPool>,
    /// Destroyed, but not yet empty.
    orphans: Vec<AsyncPool>,
    /// By the number of the capture that made the graph.
    graphs: BTreeMap<u64, Graph>,
}

#[derive(Debug)]
struct Graph {
    pool: AsyncPool,
    /// What it left allocated may be freed by anyone.
    has_run: bool,
}

/// To whom a live address belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Pool,
    Graph { has_run: bool },
}

impl AsyncPools {
    pub(crate) const fn new() -> Self {
        Self { table: HandleTable::new(FIRST_POOL), orphans: Vec::new(), graphs: BTreeMap::new() }
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

    /// The pool of a live address, the bytes there, and whose they are.
    pub(crate) fn owner_of(
        &mut self,
        address: u64,
    ) -> Result<(&mut AsyncPool, u64, Owner), ErrorCode> {
        let pools = self.table.iter_mut().chain(&mut self.orphans).map(|pool| (pool, Owner::Pool));
        let graphs = self.graphs.values_mut();
        let graphs = graphs.map(|one| (&mut one.pool, Owner::Graph { has_run: one.has_run }));
        let mut all = pools.chain(graphs);
        let found = all.find_map(|(pool, owner)| {
            pool.live_bytes_at(address).map(|bytes| (pool, bytes, owner))
        });
        found.ok_or(ErrorCode::InvalidValue)
    }

    pub(crate) fn graph_mut(&mut self, capture: u64) -> &mut AsyncPool {
        // Captured work does not run, so no free is reached, and nothing is ordered by time.
        let config = MemoryPoolConfig::default()
            .with_reuse_after_events(false)
            .with_opportunistic_reuse(false)
            .with_added_dependencies(false);
        let graph = || Graph { pool: AsyncPool::new(config), has_run: false };
        &mut self.graphs.entry(capture).or_insert_with(graph).pool
    }

    pub(crate) fn note_run(&mut self, capture: u64) {
        if let Some(graph) = self.graphs.get_mut(&capture) {
            graph.has_run = true;
        }
    }

    pub(crate) fn take_graph(&mut self, capture: u64) -> Option<AsyncPool> {
        self.graphs.remove(&capture).map(|graph| graph.pool)
    }

    /// The captures whose graphs hold memory.
    pub(crate) fn graphs(&self) -> Vec<u64> {
        self.graphs.keys().copied().collect()
    }

    pub(crate) fn graph_bytes(&self) -> u64 {
        self.graphs.values().map(|graph| graph.pool.usage().reserved_bytes).sum()
    }

    /// The live allocation that holds `at`.
    pub(crate) fn extent_at(&self, at: u64) -> Option<Piece> {
        let graphs = self.graphs.values().map(|graph| &graph.pool);
        self.table.iter().chain(&self.orphans).chain(graphs).find_map(|pool| pool.extent_at(at))
    }

    pub(crate) fn handles(&self) -> Vec<MemoryPool> {
        self.table.values().map(MemoryPool).collect()
    }

    /// Live allocations of all pools, those of graphs not counted: they are the program's.
    pub(crate) fn live(&self) -> usize {
        self.table.iter().chain(&self.orphans).map(AsyncPool::len).sum()
    }

    /// Pools that were not destroyed.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Every pool, once the host has waited for something, and how much each keeps.
    pub(crate) fn trim_each(&mut self, now_ns: u64, mut trim: impl FnMut(&mut AsyncPool, u64)) {
        self.table.iter_mut().chain(&mut self.orphans).for_each(|pool| pool.see(now_ns));
        for pool in self.table.iter_mut() {
            let keep_bytes = pool.config().release_threshold_bytes;
            trim(pool, keep_bytes);
        }
        self.orphans.iter_mut().for_each(|pool| trim(pool, 0));
        self.orphans.retain(|pool| pool.usage().reserved_bytes > 0);
    }
}
