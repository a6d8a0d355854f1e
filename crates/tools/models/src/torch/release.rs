//! Giving cached memory back to the device: one whole segment, enough oversize ones, everything.
//!
//! Invariant: only free blocks that are their whole segment go back, and whole handles inside free
//! blocks of expandable segments.
//!
//! Garbage collection, which frees old blocks before new memory is asked for, runs only with a
//! memory fraction below 1 and a threshold. A block's age is the number of searches its pool has
//! seen since the block became free.

use super::allocator::{Allocator, Request};
use super::block::BlockId;
use super::pool_id::PoolId;
use drystone_driver::{Driver, DriverError};

impl Allocator {
    /// Gives cached memory back to the device. While something is captured nothing is done: there
    /// PyTorch ends with an error.
    pub fn empty_cache(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        if self.captures > 0 {
            return Ok(());
        }
        self.release_all(driver)
    }

    /// Gives a segment back that is one free block.
    pub(super) fn release_segment(
        &mut self,
        driver: &dyn Driver,
        id: BlockId,
    ) -> Result<(), DriverError> {
        let block = &self.blocks[id];
        driver.free(block.address)?;
        self.pools[block.pool.index()].remove(block);
        self.stats.reserved_bytes -= block.bytes;
        self.blocks.remove(id);
        Ok(())
    }

    /// Gives oversize blocks of the request's stream back: the smallest that alone is as large as
    /// the request, else the largest ones until their sum is. Whether that much went back.
    pub(super) fn release_oversize(
        &mut self,
        driver: &dyn Driver,
        request: &Request,
    ) -> Result<bool, DriverError> {
        let limit = self.config.max_split_bytes;
        if limit == u64::MAX {
            return Ok(false);
        }
        let wanted = request.bytes.max(limit);
        let pool = request.pool.index();
        let large_enough = self.pools[pool].at_least(request.stream, wanted).next();
        if let Some(id) = large_enough.filter(|id| self.blocks[*id].expandable.is_none()) {
            self.release_segment(driver, id)?;
            return Ok(true);
        }
        let mut released = 0;
        // Expandable blocks are passed over, so the search goes on below the last one seen.
        let mut below = (request.stream, wanted, 0);
        while released < wanted {
            let mut smaller = self.pools[pool].free.range((request.stream, limit, 0)..below);
            let Some((key, id)) = smaller.next_back() else { return Ok(false) };
            let (key, id) = (*key, *id);
            below = key;
            if self.blocks[id].expandable.is_none() {
                released += self.blocks[id].bytes;
                self.release_segment(driver, id)?;
            }
        }
        Ok(true)
    }

    /// Waits for all events, then gives back whatever the default pools have cached. Pools of
    /// graphs and of the program keep what they have as long as they exist.
    pub(super) fn release_all(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        self.synchronize_events(driver)?;
        for is_small in [false, true] {
            let pool = PoolId::new(0, is_small).index();
            let mut to_unmap = Vec::new();
            let mut whole = Vec::new();
            for id in self.pools[pool].free.values().copied() {
                if self.blocks[id].expandable.is_some() {
                    to_unmap.push(id);
                } else if !self.blocks[id].is_split() {
                    whole.push(id);
                }
            }
            for id in whole {
                self.release_segment(driver, id)?;
            }
            for id in to_unmap {
                self.unmap_block(driver, id)?;
            }
        }
        Ok(())
    }
}

impl Allocator {
    /// What may be held before collection starts, in bytes; `None` when collection is off.
    pub(super) fn gc_limit_bytes(&self) -> Option<u64> {
        let allowed = self.allowed_bytes?;
        let threshold = self.config.gc_threshold;
        (threshold > 0.0).then_some((threshold * allowed as f64) as u64)
    }

    /// Frees whole segments of the default large pool that are at least of average age, again and
    /// again with the average of those left, until enough is freed or no more can be.
    pub(super) fn collect_garbage(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        let Some(limit) = self.gc_limit_bytes() else { return Ok(()) };
        let Some(target) = self.stats.reserved_bytes.checked_sub(limit).filter(|over| *over > 0)
        else {
            return Ok(());
        };
        let pool = &self.pools[PoolId::new(0, false).index()];
        let searches = pool.searches;
        let whole = |id: &BlockId| !self.blocks[*id].is_split();
        let mut candidates: Vec<(BlockId, u64)> = pool
            .free
            .values()
            .copied()
            .filter(whole)
            .map(|id| (id, searches - self.blocks[id].age_base))
            .collect();
        let mut total_age: u64 = candidates.iter().map(|(_, age)| age).sum();
        let mut freed_bytes = 0;
        while freed_bytes < target && !candidates.is_empty() {
            let average = total_age as f64 / candidates.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|(_, age)| *age as f64 >= average);
            if old.is_empty() {
                break; // ages beyond the precision of the average
            }
            for (id, age) in old {
                total_age -= age;
                freed_bytes += self.blocks[id].bytes;
                self.release_segment(driver, id)?;
            }
            candidates = young;
        }
        Ok(())
    }
}
