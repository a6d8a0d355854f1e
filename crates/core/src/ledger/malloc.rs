//! The way of a malloc: checked against the limit, made by the driver, entered in the books.
//!
//! How much the driver's pool grows for a request is its own affair, so the limit is checked
//! twice: before, as far as growth can be foreseen, and after, when the block goes back at once.

use super::free::{DeferredFree, FreeOrder};
use super::{AsyncPools, Entry, State};
use crate::error::RequestError;
use crate::heap::Granted;
use crate::id::{PoolId, StreamId};
use crate::policy;
use crate::size::block_bytes;

/// A request that the driver is to serve; handed back with what it gave, or cancelled.
#[derive(Debug)]
#[must_use = "an order keeps its pool from ending"]
pub struct PendingAlloc {
    pool: u32,
    stream: StreamId,
    requested: u64,
    bytes: u64,
}

impl PendingAlloc {
    /// How much to ask the driver for.
    pub const fn bytes(&self) -> u64 {
        self.bytes
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
    /// Whether a request is one that could be served, whatever the limit says.
    ///
    /// # Errors
    /// A size no block can have; an unknown pool or stream.
    pub fn check_request(
        &self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<(), RequestError> {
        block_bytes(requested)?;
        self.live_pool(pool)?;
        self.streams.live(stream)?;
        Ok(())
    }

    /// Checks a request, and turns it into an order to the driver.
    ///
    /// # Errors
    /// A size no block can have; an unknown pool or stream; growth that would pass the limit.
    pub fn request(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        is_captured: bool,
    ) -> Result<PendingAlloc, RequestError> {
        let bytes = block_bytes(requested)?;
        self.check_request(pool, stream, requested)?;
        let home = self.pools[pool.index()];
        // What the pool holds unused may serve, but nothing that a graph will own.
        let is_idle = !is_captured && bytes <= home.reserved_bytes - home.active_bytes;
        let (reserved_bytes, limit_bytes) =
            (self.stats.all.reserved_bytes.current, self.limit_bytes);
        if !is_idle && reserved_bytes.saturating_add(bytes) > limit_bytes {
            return Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes });
        }
        self.pools[pool.index()].entries += 1;
        Ok(PendingAlloc { pool: pool.index, stream, requested, bytes })
    }

    /// The driver gave nothing for an order.
    pub fn cancel(&mut self, order: PendingAlloc) {
        self.pools[order.pool as usize].entries -= 1;
    }

    /// Enters what the driver gave for an order. Where the pool has grown past the limit for it,
    /// the block is not handed out: it leaves.
    ///
    /// # Errors
    /// The block that is to be given back.
    pub fn admit(
        &mut self,
        order: PendingAlloc,
        given: DriverAlloc,
    ) -> Result<Granted, DeferredFree> {
        let PendingAlloc { pool, stream, requested, bytes } = order;
        let DriverAlloc { address, is_graphs, reserved_bytes } = given;
        let home = &mut self.pools[pool as usize];
        if is_graphs {
            self.graph_bytes += bytes;
        } else {
            home.active_bytes += bytes;
        }
        let reserved_bytes = reserved_bytes.unwrap_or(home.reserved_bytes);
        self.observe(pool as usize, reserved_bytes);
        let now = self.stats.all.reserved_bytes.current;
        let is_admitted = is_graphs || now <= self.ceiling_bytes;
        let class = policy::class(bytes);
        let account = self.account_of(pool, class, stream);
        let entry = Entry {
            address,
            bytes,
            requested,
            pool,
            stream,
            account,
            uses: Vec::new(),
            state: if is_admitted { State::Live } else { State::FreeOutcome },
            is_graphs,
            is_complete: false,
            is_counted: is_admitted,
        };
        let index = self.spare.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() as u32 - 1
        });
        self.table[index as usize] = Some(entry);
        if !is_admitted {
            return Err(DeferredFree { index, address, route: FreeOrder::Own(stream) });
        }
        self.by_address.insert(address, index);
        self.accounts[account as usize].active_bytes.add(bytes);
        let class = class as usize;
        self.stats.allocate(class, requested, bytes);
        self.stats.all.segments.add(1);
        self.stats.classes[class].segments.add(1);
        self.stats.classes[class].reserved_bytes.add(bytes);
        Ok(Granted { address, bytes })
    }
}
