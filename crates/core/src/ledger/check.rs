//! The invariants of the ledger, one function each. Numbers as in `docs/invariants.md`: they mean
//! the same as for the heap, where the driver tiles segments and joins blocks.

use super::{AsyncPools, State};
use crate::check::{Broken, hold};
use crate::policy;
use crate::size::QUANTUM;
use crate::stats::Gauge;

impl AsyncPools {
    /// Proves every invariant of the ledger.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        self.check_i1_blocks_do_not_overlap()?;
        self.check_i3_filed_once()?;
        self.check_i6_addresses_lead_to_their_block()?;
        self.check_i7_sizes_are_whole_quanta()?;
        self.check_i8_counters_agree()?;
        self.check_i8_accounts_agree()?;
        self.check_i8_reserved_bytes_agree()?;
        self.check_i9_pending_blocks_wait()
    }

    fn entries(&self) -> impl Iterator<Item = (u32, &super::Entry)> {
        self.table.iter().enumerate().filter_map(|(at, e)| Some((at as u32, e.as_ref()?)))
    }

    fn check_i1_blocks_do_not_overlap(&self) -> Result<(), Broken> {
        let mut end = 0;
        for (&address, &index) in &self.by_address {
            hold(1, address >= end, || format!("{address:#x} lies before {end:#x}"))?;
            end = address + self.entry(index).map_or(0, |entry| entry.bytes);
        }
        Ok(())
    }

    fn check_i3_filed_once(&self) -> Result<(), Broken> {
        for (index, entry) in self.entries() {
            let count = |place: &[u32]| place.iter().filter(|&&one| one == index).count();
            let found = (count(&self.ready), count(&self.quarantine));
            // A synchronisation under way has taken them along.
            let is_right = match entry.state {
                State::Ready => found.0 <= 1 && found.1 == 0,
                State::Quarantined => found.0 == 0 && found.1 <= 1,
                State::Live | State::Waiting | State::FreeOutcome => found == (0, 0),
            };
            hold(3, is_right, || format!("{entry:?} is filed {found:?} times"))?;
        }
        Ok(())
    }

    fn check_i6_addresses_lead_to_their_block(&self) -> Result<(), Broken> {
        let mut known = 0;
        for (index, entry) in self.entries() {
            let is_known = self.by_address.get(&entry.address) == Some(&index);
            // A block is known until its free is under way.
            let is_right = is_known || entry.state == State::FreeOutcome;
            hold(6, is_right, || format!("{entry:?} is not found by its address"))?;
            known += usize::from(is_known);
        }
        hold(6, known == self.by_address.len(), || {
            format!("{known} blocks are known, {} addresses lead to one", self.by_address.len())
        })
    }

    fn check_i7_sizes_are_whole_quanta(&self) -> Result<(), Broken> {
        for (_, entry) in self.entries() {
            let is_whole = entry.bytes.is_multiple_of(QUANTUM) && entry.bytes > 0;
            hold(7, is_whole && entry.requested <= entry.bytes, || format!("{entry:?}"))?;
        }
        Ok(())
    }

    fn check_i8_counters_agree(&self) -> Result<(), Broken> {
        let mut sums = [[0u64; 7]; 2];
        let mut quarantined = 0;
        for (_, entry) in self.entries().filter(|(_, entry)| entry.is_counted) {
            let sum = &mut sums[policy::class(entry.bytes) as usize];
            if entry.state == State::Live {
                sum[1] += entry.bytes;
                sum[3] += 1;
            }
            sum[0] += entry.requested;
            sum[2] += entry.bytes;
            sum[4] += 1;
            sum[5] += entry.bytes;
            sum[6] += 1;
            quarantined += if entry.state == State::Quarantined { entry.bytes } else { 0 };
        }
        let stored = |of: &crate::SizeClassStats| {
            [
                of.requested_bytes.current,
                of.allocated_bytes.current,
                of.active_bytes.current,
                of.allocations.current,
                of.active_blocks.current,
                of.reserved_bytes.current,
                of.segments.current,
            ]
        };
        for (sum, class) in sums.iter().zip(&self.stats.classes) {
            hold(8, *sum == stored(class), || {
                format!("walked {sum:?}, stored {:?}", stored(class))
            })?;
        }
        let all = stored(&self.stats.all);
        let fits = (0..7).all(|at| at == 5 || sums[0][at] + sums[1][at] == all[at]);
        hold(8, fits, || format!("classes do not sum to all: {:?}", self.stats))?;
        let is_ordered = all[0] <= all[2] && all[1] <= all[2] && all[2] <= all[5];
        hold(8, is_ordered, || format!("{:?}", self.stats.all))?;
        hold(8, quarantined == self.stats.quarantined_bytes, || {
            format!("{quarantined} bytes are quarantined, not {}", self.stats.quarantined_bytes)
        })
    }

    fn check_i8_accounts_agree(&self) -> Result<(), Broken> {
        let mut sums = vec![0; self.accounts.len()];
        for (_, entry) in self.entries().filter(|(_, entry)| entry.is_counted) {
            let account = &self.accounts[entry.account as usize];
            let is_own = account.pool == entry.pool as usize
                && account.stream == entry.stream.index()
                && account.class == policy::class(entry.bytes);
            hold(8, is_own, || format!("{entry:?} counts for {account:?}"))?;
            sums[entry.account as usize] += entry.bytes;
        }
        for (account, bytes) in self.accounts.iter().zip(sums) {
            let Gauge { current, peak, .. } = account.active_bytes;
            hold(8, bytes == current && current <= peak, || format!("{bytes} in {account:?}"))?;
        }
        Ok(())
    }

    /// What is reserved is what the pools were seen to hold, and what graphs own; and a pool holds
    /// its blocks.
    fn check_i8_reserved_bytes_agree(&self) -> Result<(), Broken> {
        for (at, pool) in self.pools.iter().enumerate() {
            let of_pool = |is_graphs| {
                let entries = self.entries().filter(|(_, entry)| entry.pool as usize == at);
                entries
                    .filter(|(_, e)| e.is_graphs == is_graphs)
                    .fold((0, 0), |sum, (_, e)| (sum.0 + e.bytes, sum.1 + 1))
            };
            let ((bytes, own), (_, graphs)) = (of_pool(false), of_pool(true));
            let agrees = bytes == pool.active_bytes && own + graphs <= pool.entries;
            hold(8, agrees && bytes <= pool.reserved_bytes, || format!("pool {at}: {pool:?}"))?;
        }
        let graphs: u64 = self.entries().filter(|(_, e)| e.is_graphs).map(|(_, e)| e.bytes).sum();
        let held = self.pools.iter().map(|pool| pool.reserved_bytes).sum::<u64>() + graphs;
        let reserved = self.stats.all.reserved_bytes.current;
        hold(8, held == reserved && graphs == self.graph_bytes, || {
            format!("{reserved} bytes reserved, {held} held, {graphs} of them by graphs")
        })
    }

    fn check_i9_pending_blocks_wait(&self) -> Result<(), Broken> {
        let mut waits = vec![0usize; self.table.len()];
        for index in 0..self.streams.len() as u32 {
            let stream = self.streams.at(index);
            for (point, block) in stream.waiting() {
                hold(9, point > stream.passed, || {
                    format!("point {point} of stream {index} should have been served")
                })?;
                waits[block.0 as usize] += 1;
            }
        }
        for (index, entry) in self.entries() {
            let waiting = waits[index as usize];
            let expected = if entry.state == State::Waiting { entry.uses.len() } else { 0 };
            let is_right = waiting == expected && (entry.state == State::Waiting) == (waiting > 0);
            hold(9, is_right, || format!("{entry:?} waits for {waiting} fences"))?;
        }
        Ok(())
    }
}
