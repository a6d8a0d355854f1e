//! The accounts of the ledger. What the driver's memory pools hold unused is no stream's, so free
//! memory is in none of them.

use super::{AsyncPools, State};
use crate::account::PoolStreamStats;
use crate::id::{PoolId, StreamId};
use crate::policy::SizeClass;
use crate::stats::Gauge;

impl AsyncPools {
    /// The position of an account, which is made if there is none yet. They are few.
    pub(super) fn account_of(&mut self, pool: u32, class: SizeClass, stream: StreamId) -> u32 {
        let new = PoolStreamStats::new(pool, class, stream.index, Gauge::default());
        let key = |one: &PoolStreamStats| (one.pool, one.class, one.stream);
        let known = self.accounts.iter().position(|one| key(one) == key(&new));
        known.unwrap_or_else(|| {
            self.accounts.push(new);
            self.accounts.len() - 1
        }) as u32
    }

    /// A stream that succeeds another has its blocks, but not its peaks.
    pub(super) fn succeed_stream(&mut self, stream: StreamId) {
        let inherited = self.accounts.iter_mut().filter(|one| one.stream == stream.index());
        inherited.for_each(|one| one.active_bytes.reset_peak());
    }

    /// A pool that takes the place of another, which has no block any more.
    pub(super) fn succeed_pool(&mut self, pool: PoolId) {
        let inherited = self.accounts.iter_mut().filter(|one| one.pool == pool.index());
        inherited.for_each(|one| one.active_bytes = Gauge::default());
    }

    /// The accounts that have anything, or had since the peaks were reset. Walks all blocks.
    pub fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        let mut accounts = self.accounts.clone();
        for entry in self.table.iter().flatten().filter(|entry| entry.state == State::Live) {
            accounts[entry.account as usize].allocated_bytes += entry.bytes;
        }
        accounts.retain(PoolStreamStats::is_used);
        accounts
    }

    /// Sets every peak to its current value: those of the statistics, and of the accounts.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
        self.accounts.iter_mut().for_each(|one| one.active_bytes.reset_peak());
    }
}
