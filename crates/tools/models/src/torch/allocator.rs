//! [`Allocator`]: the request ladder, frees, and the rules of splitting and merging.
//!
//! Invariants: `live` holds exactly the blocks in the program's hands, by address; a free block has
//! no free neighbour that is mapped alike; `stats` are the sums over all blocks.

use std::collections::HashMap;

use drystone_driver::{Driver, DriverError, Stream};

use super::block::{Block, BlockId, Blocks};
use super::block_pool::{BlockPool, PoolId};
use super::events::Events;
use super::expandable::Expandables;
use super::rounding::{
    LIMIT_BYTES, MIN_BLOCK_BYTES, SMALL_REQUEST_BYTES, is_small, round_request, segment_bytes,
};
use super::{Config, OutOfMemory, RequestError, Stats};

/// A request on its way down the ladder.
pub(super) struct Request {
    /// After rounding.
    pub(super) bytes: u64,
    pub(super) stream: u16,
    pub(super) pool: PoolId,
}

/// PyTorch's caching allocator of one device, native or with expandable segments.
///
/// Streams and pools are the dense numbers of a trace. All methods take the driver they act on; it
/// must be the same one every time.
#[derive(Debug)]
pub struct Allocator {
    pub(super) config: Config,
    /// What the process may hold, in bytes; `None` without a memory fraction.
    pub(super) allowed_bytes: Option<u64>,
    /// The device's streams, by dense number.
    streams: Vec<Stream>,
    pub(super) blocks: Blocks,
    /// By [`PoolId`].
    pub(super) pools: Vec<BlockPool>,
    pub(super) live: HashMap<u64, BlockId>,
    pub(super) events: Events,
    pub(super) expandables: Expandables,
    pub(super) stats: Stats,
}

impl Allocator {
    /// An allocator with nothing cached. `streams` are the device's streams by dense number, the
    /// default stream first; `pools` counts the pools, the default pool among them; `total_bytes`
    /// is the device's memory.
    pub fn new(config: Config, streams: Vec<Stream>, pools: u8, total_bytes: u64) -> Self {
        let fraction = config.memory_fraction;
        let mut block_pools = Vec::new();
        block_pools.resize_with(usize::from(pools.max(1)) * 2, BlockPool::default);
        Self {
            allowed_bytes: (fraction < 1.0).then_some((fraction * total_bytes as f64) as u64),
            config,
            streams,
            blocks: Blocks::default(),
            pools: block_pools,
            live: HashMap::new(),
            events: Events::default(),
            expandables: Expandables::default(),
            stats: Stats::default(),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The figures at this moment.
    pub fn stats(&self) -> Stats {
        self.stats
    }

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
        // A private pool is in use only within a capture or a `use_mem_pool` context, and there
        // events are not looked at.
        if pool == 0 {
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
        if request.pool.number() != 0 {
            return Ok(None);
        }
        self.release_all(driver)?;
        self.stats.num_alloc_retries += 1;
        self.grow(driver, request)
    }

    /// Takes the best cached block out of its pool.
    fn best_fit(&mut self, request: &Request) -> Option<BlockId> {
        let pool = request.pool.index();
        self.pools[pool].searches += u64::from(self.gc_limit_bytes().is_some());
        let best = self.candidate(request)?;
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
    fn candidate(&self, request: &Request) -> Option<BlockId> {
        let pool = &self.pools[request.pool.index()];
        let mut candidates = pool.at_least(request.stream, request.bytes);
        let mut best = candidates.next()?;
        if self.config.expandable_segments {
            let mut best_reach = self.reach(best);
            for id in candidates {
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
        if self.config.expandable_segments {
            return self.grow_expandable(driver, request);
        }
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

    /// Frees a live block. Other addresses, 0 among them, are ignored.
    pub fn free(&mut self, driver: &dyn Driver, address: u64) -> Result<(), DriverError> {
        let Some(id) = self.live.remove(&address) else { return Ok(()) };
        let block = &mut self.blocks[id];
        block.is_allocated = false;
        self.stats.allocated_bytes -= block.bytes;
        if block.uses.is_empty() {
            self.complete_free(id);
            Ok(())
        } else {
            self.defer_free(driver, id)
        }
    }

    /// Puts a block that nobody uses any more back into its pool.
    pub(super) fn complete_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.stats.active_bytes -= block.bytes;
        self.stats.requested_bytes -= std::mem::take(&mut block.requested_bytes);
        let pool = block.pool.index();
        self.merge_with_neighbours(id);
        self.pools[pool].insert(id, &mut self.blocks);
    }

    /// Joins a block that is in no pool with both neighbours, where they are idle and mapped alike.
    pub(super) fn merge_with_neighbours(&mut self, id: BlockId) {
        for neighbour in [self.blocks[id].previous, self.blocks[id].next].into_iter().flatten() {
            let other = &self.blocks[neighbour];
            if other.is_idle() && other.is_mapped == self.blocks[id].is_mapped {
                self.pools[other.pool.index()].remove(other);
                self.blocks.absorb(id, neighbour);
            }
        }
    }

    /// Notes that a live block is also used on another stream. Unknown addresses and streams are
    /// ignored, as is the block's own stream.
    pub fn record_stream(&mut self, address: u64, stream: u16) {
        let Some(id) = self.live.get(&address) else { return };
        let block = &mut self.blocks[*id];
        if block.stream == stream || usize::from(stream) >= self.streams.len() {
            return;
        }
        if let Err(index) = block.uses.binary_search(&stream) {
            block.uses.insert(index, stream);
        }
    }

    /// Gives cached memory back to the device.
    pub fn empty_cache(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        self.release_all(driver)
    }

    /// The device's handle of a dense stream number that was checked before.
    pub(super) fn device_stream(&self, stream: u16) -> Stream {
        self.streams.get(usize::from(stream)).copied().unwrap_or(Stream::DEFAULT)
    }
}
