//! Growing expandable segments by mapping their blocks, and shrinking them by unmapping.
//!
//! Invariant: a block of such a segment is mapped as a whole or not at all. Two unmapped neighbours
//! are one block, as are two free ones.

use drystone_driver::{Driver, DriverError};

use super::allocator::{Allocator, Request};
use super::block::{Block, BlockId};
use super::expandable::Expandable;
use super::rounding::handle_bytes;

impl Allocator {
    /// Makes a block of at least the request's size by mapping more of a segment; `None` when the
    /// device is out of memory. The block is in no pool.
    pub(super) fn grow_expandable(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
    ) -> Result<Option<BlockId>, DriverError> {
        let mut candidate = self.growable(driver, request)?;
        if !self.blocks[candidate].is_mapped && !self.map_block(driver, candidate, request.bytes)? {
            return Ok(None);
        }
        // A free block that is too small is followed by an unmapped one: mapping the start of the
        // latter joins the two.
        while self.blocks[candidate].bytes < request.bytes {
            let missing = request.bytes - self.blocks[candidate].bytes;
            let Some(next) = self.blocks[candidate].next else { return Ok(None) };
            if !self.map_block(driver, next, missing)? {
                return Ok(None);
            }
            candidate = next;
        }
        self.pools[request.pool.index()].remove(&self.blocks[candidate]);
        Ok(Some(candidate))
    }

    /// The lowest place on the stream where idle blocks follow one another for the whole request,
    /// beginning with an unmapped block or the free one before it; else a new segment.
    fn growable(&mut self, driver: &dyn Driver, request: &Request) -> Result<BlockId, DriverError> {
        for id in self.pools[request.pool.index()].unmapped_of(request.stream) {
            let before = self.blocks[id].previous.filter(|id| self.blocks[*id].is_idle());
            let first = before.unwrap_or(id);
            if self.has_room(first, request.bytes) {
                return Ok(first);
            }
        }
        self.new_expandable(driver, request)
    }

    /// Whether the idle blocks from `first` on add up to `bytes`.
    fn has_room(&self, first: BlockId, bytes: u64) -> bool {
        let mut sum = 0;
        let mut at = Some(first);
        while let Some(id) = at.filter(|id| self.blocks[*id].is_idle()) {
            sum += self.blocks[id].bytes;
            if sum >= bytes {
                return true;
            }
            at = self.blocks[id].next;
        }
        false
    }

    /// Reserves nine eighths of the device's memory as addresses, all unmapped.
    fn new_expandable(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
    ) -> Result<BlockId, DriverError> {
        let total = driver.info().total_bytes;
        let handle_bytes = handle_bytes(request.pool.is_small(), &self.config);
        let bytes = (total + total / 8).next_multiple_of(handle_bytes);
        let address = driver.reserve(bytes, 0)?;
        let stream = self.device_stream(request.stream);
        let segment = Expandable::new(address, bytes, handle_bytes, stream);
        let expandable = Some(self.expandables.insert(segment));
        let block = Block::new(request.pool, request.stream, address, bytes);
        let id = self.blocks.insert(Block { is_mapped: false, expandable, ..block });
        self.pools[request.pool.index()].insert(id, &mut self.blocks);
        Ok(id)
    }

    /// Maps the first `bytes` of an unmapped block, or all of it where it is smaller, up to whole
    /// handles, and joins it with its free neighbours.
    fn map_block(
        &mut self,
        driver: &dyn Driver,
        id: BlockId,
        bytes: u64,
    ) -> Result<bool, DriverError> {
        let block = &self.blocks[id];
        let (address, block_bytes, pool) = (block.address, block.bytes, block.pool);
        let Some(segment) = block.expandable.and_then(|id| self.expandables.get(id)) else {
            return Ok(false);
        };
        let Some(mapped) = segment.map(driver, address, bytes.min(block_bytes))? else {
            return Ok(false);
        };
        self.pools[pool.index()].remove(&self.blocks[id]);
        if mapped < block_bytes {
            let rest = self.blocks[id].piece(address + mapped, block_bytes - mapped);
            let rest = self.blocks.insert_after(id, rest);
            self.pools[pool.index()].insert(rest, &mut self.blocks);
            self.blocks[id].bytes = mapped;
        }
        self.blocks[id].is_mapped = true;
        self.merge_with_neighbours(id);
        self.pools[pool.index()].insert(id, &mut self.blocks);
        self.stats.reserved_bytes += mapped;
        Ok(true)
    }

    /// Unmaps the handles that lie wholly inside a free block; what is left of it on both sides
    /// stays free. A segment with nothing mapped goes back to the device.
    pub(super) fn unmap_block(
        &mut self,
        driver: &dyn Driver,
        id: BlockId,
    ) -> Result<(), DriverError> {
        let block = &self.blocks[id];
        let (address, bytes, pool) = (block.address, block.bytes, block.pool);
        let Some(expandable) = block.expandable else { return Ok(()) };
        let Some(segment) = self.expandables.get(expandable) else { return Ok(()) };
        let (from, unmapped) = segment.handles_inside(address, bytes);
        if unmapped == 0 {
            return Ok(());
        }
        segment.unmap(driver, from, unmapped)?;
        self.pools[pool.index()].remove(&self.blocks[id]);
        let (before, end) = (from - address, from + unmapped);
        let after = address + bytes - end;
        if before > 0 {
            let piece = self.blocks[id].piece(address, before);
            let piece = self.blocks.insert_before(id, piece);
            self.pools[pool.index()].insert(piece, &mut self.blocks);
        }
        if after > 0 {
            let piece = self.blocks[id].piece(end, after);
            let piece = self.blocks.insert_after(id, piece);
            self.pools[pool.index()].insert(piece, &mut self.blocks);
        }
        let block = &mut self.blocks[id];
        (block.address, block.bytes, block.is_mapped) = (from, unmapped, false);
        self.merge_with_neighbours(id);
        self.stats.reserved_bytes -= unmapped;
        if self.blocks[id].is_split() {
            self.pools[pool.index()].insert(id, &mut self.blocks);
            return Ok(());
        }
        self.blocks.remove(id);
        match self.expandables.remove(expandable) {
            Some(segment) => segment.unreserve(driver),
            None => Ok(()),
        }
    }
}
