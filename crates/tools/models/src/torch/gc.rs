//! Garbage collection of cached blocks: frees the old ones before new memory is asked for.
//!
//! Runs only with a memory fraction below 1 and a threshold. A block's age is the number of
//! searches its pool has seen since the block became free.

use drystone_driver::{Driver, DriverError};

use super::allocator::Allocator;
use super::block::BlockId;
use super::pool_id::PoolId;

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
