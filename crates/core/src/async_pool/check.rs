//! The invariants of the driver's pools, one function each. Numbers as in
//! `docs/inside/invariants.md`: they mean the same as for the heap, where the driver tiles segments
//! and joins blocks.

use super::{AsyncPools, Block, State};
use crate::broken::{Broken, hold};
use crate::check as shared;
use crate::counters::Counters;
use crate::size::QUANTUM;
use crate::space::block::BlockIndex;
use crate::state_machine::StateMachine;

impl AsyncPools {
    /// Proves every invariant. The error is the first one that does not hold.
    pub(super) fn check_all(&self) -> Result<(), Broken> {
        self.check_i1_blocks_do_not_overlap()?;
        self.check_i3_filed_once()?;
        self.check_i6_addresses_lead_to_their_block()?;
        self.check_i7_sizes_are_whole_quanta()?;
        self.check_i8_counters_agree()?;
        self.check_i8_pool_streams_agree()?;
        self.check_i8_pools_hold_their_blocks()?;
        let blocks =
            self.iter().map(|(index, block)| (index, block.state == State::Waiting, block.uses));
        shared::check_i9_waiting(&self.streams, blocks)
    }

    fn iter(&self) -> impl Iterator<Item = (BlockIndex, &Block)> {
        let all = (0..).map(BlockIndex).zip(&self.blocks);
        all.filter(|(_, block)| block.state != State::Gone)
    }

    fn counted(&self) -> impl Iterator<Item = &Block> {
        self.iter().map(|(_, block)| block).filter(|block| block.is_counted)
    }

    fn check_i1_blocks_do_not_overlap(&self) -> Result<(), Broken> {
        let mut end = 0;
        for (&address, &index) in &self.by_address {
            hold(1, address >= end, || format!("{address:#x} lies before {end:#x}"))?;
            end = address + self.blocks[BlockIndex(index).slot()].bytes;
        }
        Ok(())
    }

    fn check_i3_filed_once(&self) -> Result<(), Broken> {
        for (index, block) in self.iter() {
            let found = self.deferred.iter().filter(|&&one| one == index).count();
            let most = match block.state {
                // A synchronisation under way has taken them along.
                State::Ready | State::Complete | State::Quarantined => 1,
                State::Live | State::Freeing | State::Waiting | State::Gone => 0,
            };
            hold(3, found <= most, || format!("{block:?} is deferred {found} times"))?;
        }
        let (known, gone) = (self.iter().count() + self.spare.len(), self.blocks.len());
        hold(3, known == gone, || format!("{known} blocks or spare places of {gone}"))
    }

    fn check_i6_addresses_lead_to_their_block(&self) -> Result<(), Broken> {
        let mut known = 0;
        for (index, block) in self.iter() {
            let is_known = self.by_address.get(&block.address) == Some(&index.0);
            // A block is known until it goes back.
            let is_right = is_known || block.state == State::Freeing;
            hold(6, is_right, || format!("{block:?} is not found by its address"))?;
            known += usize::from(is_known);
        }
        hold(6, known == self.by_address.len(), || {
            format!("{known} blocks are known, {} addresses lead to one", self.by_address.len())
        })
    }

    fn check_i7_sizes_are_whole_quanta(&self) -> Result<(), Broken> {
        for (_, block) in self.iter() {
            let is_whole = block.bytes.is_multiple_of(QUANTUM) && block.bytes > 0;
            hold(7, is_whole && block.requested <= block.bytes, || format!("{block:?}"))?;
        }
        Ok(())
    }

    fn check_i8_counters_agree(&self) -> Result<(), Broken> {
        let mut walked = Counters::default();
        for block in self.counted() {
            let class = block.class() as usize;
            walked.count(class, block.requested, block.bytes, block.view().state);
            walked.all.segments.add(1);
            walked.classes[class].segments.add(1);
            walked.classes[class].reserved_bytes.add(block.bytes);
        }
        walked.all.reserved_bytes = self.stats.all.reserved_bytes;
        shared::check_i8_counters(self.stats(), walked.read())
    }

    fn check_i8_pool_streams_agree(&self) -> Result<(), Broken> {
        let mut found = 0;
        for stats in &self.pool_streams {
            let (mut active, mut allocated) = (0, 0);
            for block in self.counted().filter(|block| block.counts_for(stats)) {
                active += block.bytes;
                allocated += if block.state == State::Live { block.bytes } else { 0 };
                found += 1;
            }
            let is_right = stats.allocated_bytes == allocated;
            hold(8, is_right, || format!("{allocated} bytes are live, not as in {stats:?}"))?;
            shared::check_i8_gauge(stats.active_bytes, active, stats)?;
        }
        let counted = self.counted().count();
        hold(8, counted == found, || format!("{found} blocks of {counted} have a pool and stream"))
    }

    /// What is reserved is what the pools were seen to hold, and what graphs own; and a pool holds
    /// its blocks.
    fn check_i8_pools_hold_their_blocks(&self) -> Result<(), Broken> {
        let (mut held, mut graphs) = (0, 0);
        for (id, _, pool) in self.pools.iter() {
            let (mut bytes, mut count) = (0, 0);
            for (_, block) in self.iter().filter(|(_, block)| block.pool == id.index) {
                *(if block.is_graphs { &mut graphs } else { &mut bytes }) += block.bytes;
                count += 1;
            }
            let agrees = bytes == pool.active_bytes && count <= pool.blocks;
            hold(8, agrees && bytes <= pool.reserved_bytes, || format!("{id:?}: {pool:?}"))?;
            held += pool.reserved_bytes;
        }
        let reserved = self.stats.all.reserved_bytes.current;
        hold(8, held + graphs == reserved && graphs == self.graph_bytes, || {
            format!("{reserved} bytes reserved, {held} held, and {graphs} by graphs")
        })
    }
}
