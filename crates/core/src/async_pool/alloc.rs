//! Allocations: checked against the limit, made by the driver, and counted.
//!
//! How much the driver's pool grows for a request is its own affair, so the limit is checked
//! twice: before, as far as growth can be foreseen, and after, when the block goes back at once.

use super::free::{DeferredFree, FreeOrder};
use super::{AsyncPools, Block, State};
use crate::error::RequestError;
use crate::id::{PoolId, StreamId};
use crate::pool_stream_stats::PoolStreamStats;
use crate::size::block_bytes;
use crate::space::Granted;
use crate::space::block::{BlockIndex, NO_USES};
use crate::stats::Gauge;

/// A request that the driver is to serve; handed back with what it gave, or cancelled.
#[derive(Debug)]
#[must_use = "a pending allocation keeps its pool from ending"]
pub struct PendingAlloc(Block);

impl PendingAlloc {
    /// How much to ask the driver for.
    pub const fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

/// What the driver gave.
#[derive(Clone, Copy, Debug)]
pub struct DriverAlloc {
    /// Where the block starts.
    pub address: u64,
    /// It became part of a graph, which owns the memory.
    pub is_graphs: bool,
    /// What the memory pool holds now, if the driver said so.
    pub reserved_bytes: Option<u64>,
}

impl AsyncPools {
    /// The size of the block for a request that can be served, whatever the limit says.
    ///
    /// # Errors
    /// A size no block can have; an unknown pool or stream.
    pub fn check_request(
        &self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<u64, RequestError> {
        let bytes = block_bytes(requested)?;
        self.pools.live(pool)?;
        self.streams.live(stream)?;
        Ok(bytes)
    }

    /// Checks a request that the driver is to serve: also, whether growth would pass the limit.
    pub(crate) fn request(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        is_captured: bool,
    ) -> Result<PendingAlloc, RequestError> {
        let bytes = self.check_request(pool, stream, requested)?;
        let (reserved_bytes, limit_bytes) =
            (self.stats.all.reserved_bytes.current, self.limit_bytes);
        let of = self.pools.at_mut(pool.index);
        // What the pool holds unused may serve, but nothing that a graph will own.
        let is_unused = !is_captured && bytes <= of.reserved_bytes - of.active_bytes;
        if !is_unused && reserved_bytes.saturating_add(bytes) > limit_bytes {
            return Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes });
        }
        of.blocks += 1;
        Ok(PendingAlloc(Block {
            address: 0,
            bytes,
            requested,
            pool: pool.index,
            stream,
            uses: NO_USES,
            state: State::Freeing,
            is_graphs: is_captured,
            is_counted: false,
        }))
    }

    /// The driver gave nothing for a pending allocation.
    pub(crate) fn cancel(&mut self, pending: PendingAlloc) {
        let of = self.pools.at_mut(pending.0.pool);
        assert!(of.blocks > 0, "an allocation is cancelled that was not pending");
        of.blocks -= 1;
    }

    /// Counts what the driver gave for a pending allocation. Where the pool has grown past the
    /// limit for it, the block is not handed out: it goes back.
    pub(crate) fn admit(
        &mut self,
        pending: PendingAlloc,
        given: DriverAlloc,
    ) -> Result<Granted, DeferredFree> {
        let DriverAlloc { address, is_graphs, reserved_bytes } = given;
        assert!(address > 0, "the driver gave no address");
        let PendingAlloc(mut block) = pending;
        (block.address, block.is_graphs) = (address, is_graphs);
        *self.held_mut(&block) += block.bytes;
        let of = self.pools.at(block.pool);
        self.observe(block.pool.index(), reserved_bytes.unwrap_or(of.reserved_bytes));
        if !is_graphs && self.stats.all.reserved_bytes.current > self.ceiling_bytes {
            let (index, route) = (self.insert(block), FreeOrder::Own(block.stream));
            return Err(DeferredFree { index, address, route });
        }
        (block.state, block.is_counted) = (State::Live, true);
        let index = self.insert(block);
        self.by_address.insert(address, index.0);
        self.stats.allocate(block.class() as usize, block.requested, block.bytes);
        let of = self.pool_stream(&block);
        of.active_bytes.add(block.bytes);
        of.allocated_bytes += block.bytes;
        Ok(Granted { address, bytes: block.bytes })
    }

    fn insert(&mut self, block: Block) -> BlockIndex {
        if let Some(index) = self.spare.pop() {
            let former = std::mem::replace(&mut self.blocks[index.slot()], block);
            assert!(former.state == State::Gone, "a block takes the place of another");
            return index;
        }
        assert!(self.blocks.len() < u32::MAX as usize, "more blocks than indices");
        self.blocks.push(block);
        BlockIndex(self.blocks.len() as u32 - 1)
    }

    /// Where the bytes of a block count as held: in its memory pool, or with the graphs.
    pub(super) fn held_mut(&mut self, block: &Block) -> &mut u64 {
        let pool = &mut self.pools.at_mut(block.pool).active_bytes;
        if block.is_graphs { &mut self.graph_bytes } else { pool }
    }

    /// The statistics of a block's pool, class and stream.
    pub(super) fn pool_stream(&mut self, block: &Block) -> &mut PoolStreamStats {
        let known = self.pool_streams.iter().position(|one| block.counts_for(one));
        let at = known.unwrap_or_else(|| {
            let (pool, class, stream) = (block.pool, block.class(), block.stream.index);
            let new = PoolStreamStats::new(pool, class, stream, Gauge::default());
            self.pool_streams.push(new);
            self.pool_streams.len() - 1
        });
        &mut self.pool_streams[at]
    }
}
