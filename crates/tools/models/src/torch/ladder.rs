//! The request ladder: what is cached, new memory, and new memory after giving cached memory back.
//!
//! Invariant: a block that was found is in no pool until it is handed out.

use drystone_driver::{CaptureMode, Driver, DriverError};

use super::allocator::{Allocator, Request};
use super::block::{Block, BlockId};
use super::pool_id::PoolId;
use super::rounding::{
    LIMIT_BYTES, MIN_BLOCK_BYTES, SMALL_REQUEST_BYTES, is_small, round_request, segment_bytes,
};
use super::stats::{OutOfMemory, RequestError};

impl Allocator {
    /// Allocates at least `bytes` on a stream from a pool and returns the address; 0 for 0 bytes.
    pub fn allocate(
        &mut self,
        driver: &dyn Driver,
        bytes: u64,
        stream: u16,
        pool: u8,
    ) -> Result<u64, RequestError> {
        if usize::from(stream) >= self.streams.len() {
            return Err(RequestError::UnknownStream { stream, streams: self.streams.len() });
        }
        if usize::from(pool) * 2 >= self.pools.len() {
            return Err(RequestError::UnknownPool { pool, pools: self.pools.len() / 2 });
        }
        if bytes == 0 {
            return Ok(0);
        }
        if bytes >= LIMIT_BYTES {
            return Err(RequestError::Absurd { bytes });
        }
        // In a capture events must not be looked at.
        if !self.is_restrained(pool) {
            self.process_events(driver)?;
        }
        let rounded = round_request(bytes, &self.config);
        let pool = PoolId::new(pool, is_small(rounded));
        let request = Request { bytes: rounded, stream, pool };
        match self.find(driver, &request)? {
            Some(found) => Ok(self.hand_out(found, &request, bytes)),
            None => {
                self.stats.ooms += 1;
                let memory = driver.memory_info()?;
                Err(OutOfMemory {
                    requested_bytes: bytes,
                    total_bytes: memory.total_bytes,
                    free_bytes: memory.free_bytes,
                    allowed_bytes: self.allowed_bytes,
                    allocated_bytes: self.stats.allocated_bytes,
                    reserved_bytes: self.stats.reserved_bytes,
                }
                .into())
            }
        }
    }

    /// The ladder: what is cached, new memory, and new memory after giving cached memory back. The
    /// block found is in no pool.
    fn find(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
    ) -> Result<Option<BlockId>, DriverError> {
        if let Some(id) = self.best_fit(request) {
            return Ok(Some(id));
        }
        self.collect_garbage(driver)?;
        if let Some(id) = self.grow(driver, request)? {
            return Ok(Some(id));
        }
        if self.release_oversize(driver, request)?
            && let Some(id) = self.grow(driver, request)?
        {
            return Ok(Some(id));
        }
        if self.is_restrained(request.pool.number()) {
            return Ok(None);
        }
        self.release_all(driver)?;
        self.stats.num_alloc_retries += 1;
        self.grow(driver, request)
    }

    fn best_fit(&mut self, request: &Request) -> Option<BlockId> {
        let pool = request.pool.index();
        self.pools[pool].searches += u64::from(self.gc_limit_bytes().is_some());
        let best = self.best_cached(request)?;
        let bytes = self.blocks[best].bytes;
        let limit = self.config.max_split_bytes;
        let slack = self.config.max_non_split_rounding_bytes;
        if (request.bytes < limit && bytes >= limit)
            || (request.bytes >= limit && bytes >= request.bytes.saturating_add(slack))
        {
            return None;
        }
        self.pools[pool].remove(&self.blocks[best]);
        Some(best)
    }

    /// The smallest cached block that is large enough. Where segments expand, a block counts with
    /// the unmapped one behind it, so that what can still grow is used last.
    fn best_cached(&self, request: &Request) -> Option<BlockId> {
        let pool = &self.pools[request.pool.index()];
        let mut fitting = pool.at_least(request.stream, request.bytes);
        let mut best = fitting.next()?;
        if self.config.expandable_segments {
            let mut best_reach = self.reach(best);
            for id in fitting {
                let reach = self.reach(id);
                if reach >= best_reach {
                    break;
                }
                (best, best_reach) = (id, reach);
            }
        }
        Some(best)
    }

    /// The bytes of a free block and of the unmapped block right behind it.
    fn reach(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let tail = block.next.map(|next| &self.blocks[next]).filter(|next| !next.is_mapped);
        block.bytes + tail.map_or(0, |next| next.bytes)
    }

    /// Takes new memory from the device; `None` when it, or the memory fraction, refuses.
    fn grow(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
    ) -> Result<Option<BlockId>, DriverError> {
        let bytes = segment_bytes(request.bytes, &self.config);
        let after = self.stats.reserved_bytes.saturating_add(bytes);
        if self.allowed_bytes.is_some_and(|allowed| after > allowed) {
            return Ok(None);
        }
        // PyTorch lifts the capture's restrictions for these calls.
        let is_captured = self.captures > 0;
        let mode = is_captured.then(|| driver.exchange_capture_mode(CaptureMode::Relaxed));
        let grown = match self.config.expandable_segments {
            true => self.grow_expandable(driver, request),
            false => self.grow_plain(driver, request, bytes),
        };
        if let Some(before) = mode.transpose()? {
            driver.exchange_capture_mode(before)?;
        }
        grown
    }

    fn grow_plain(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
        bytes: u64,
    ) -> Result<Option<BlockId>, DriverError> {
        match driver.malloc(bytes) {
            Ok(address) => {
                self.stats.reserved_bytes += bytes;
                let block = Block::new(request.pool, request.stream, address, bytes);
                Ok(Some(self.blocks.insert(block)))
            }
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the low end of a block to the program, the rest back to the pool where it is worth it.
    fn hand_out(&mut self, found: BlockId, request: &Request, requested_bytes: u64) -> u64 {
        let mut id = found;
        if self.should_split(found, request) {
            let whole = &self.blocks[found];
            let piece = whole.piece(whole.address, request.bytes);
            id = self.blocks.insert_before(found, piece);
            let rest = &mut self.blocks[found];
            rest.address += request.bytes;
            rest.bytes -= request.bytes;
            self.pools[request.pool.index()].insert(found, &mut self.blocks);
        }
        let block = &mut self.blocks[id];
        block.is_allocated = true;
        block.requested_bytes = requested_bytes;
        self.stats.allocated_bytes += block.bytes;
        self.stats.active_bytes += block.bytes;
        self.stats.requested_bytes += requested_bytes;
        self.live.insert(block.address, id);
        block.address
    }

    fn should_split(&self, id: BlockId, request: &Request) -> bool {
        let rest = self.blocks[id].bytes - request.bytes;
        if request.pool.is_small() || self.config.expandable_segments {
            rest >= MIN_BLOCK_BYTES
        } else {
            request.bytes < self.config.max_split_bytes && rest > SMALL_REQUEST_BYTES
        }
    }
}
