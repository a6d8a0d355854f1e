//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back, and none that is pinned:
//! unmapping does not wait for kernels. Private pools keep theirs while they live (I12), and until
//! the device was idle after that: graphs hold their addresses, and may still run.

use std::ops::Range;

use super::Heap;
use crate::block::{BlockIndex, BlockState};
use crate::fence::Fence;
use crate::granule::GranuleId;
use crate::id::PoolId;
use crate::plan::{Gift, Intent, Plan, Step};
use crate::policy::SegmentKind;

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// Addresses follow in a plan of their own once nothing is mapped behind them, so: trim until
    /// there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        self.send_all_home();
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        self.clear_aliases(&mut gifts, &mut steps);
        if gifts.is_empty() {
            self.claim_all_gifts(&mut gifts, &mut steps);
        }
        (!gifts.is_empty()).then_some(Plan { steps, intent: Intent::Trim { gifts } })
    }

    fn claim_all_gifts(&mut self, gifts: &mut Vec<Gift>, steps: &mut Vec<Step>) {
        let segments: Vec<u32> = self.segments.in_address_order().map(|(index, _)| index).collect();
        for segment in segments {
            if self.is_trimmable(segment) {
                self.claim_gifts(segment, gifts, steps);
            }
        }
        // Last, since giving these back has failed before: nothing waits behind them.
        for granule in self.granules.idle().to_vec() {
            if self.granules.mappings(granule).is_empty() {
                self.granules.take_idle(&[granule]);
                steps.push(Step::Release { granule });
                gifts.push(Gift::Idle { granule });
            }
        }
    }

    /// Plans to wait until the device is idle. Afterwards every block freed before is usable
    /// everywhere, pending ones are free, and a trim gives all of it back.
    pub fn plan_synchronize(&mut self) -> Plan {
        let fences = self.streams.fences_when_idle();
        let quarantined = std::mem::take(&mut self.quarantine);
        let intent =
            Intent::Synchronize { fences, quarantined, pools: self.pools.open_when_idle() };
        Plan { steps: vec![Step::SynchronizeDevice], intent }
    }

    pub(super) fn finish_synchronize(
        &mut self,
        fences: &[Fence],
        quarantined: Vec<BlockIndex>,
        pools: &[PoolId],
    ) {
        for &pool in pools {
            self.pools.open(pool);
        }
        for &fence in fences {
            self.fence_passed(fence);
        }
        for index in quarantined {
            self.stats.quarantined_bytes -= self.blocks[index].bytes;
            self.settle(index);
        }
        if !pools.is_empty() {
            // What they had borrowed.
            self.send_all_home();
        }
    }

    /// Memory of open pools.
    pub(super) fn is_trimmable(&self, segment: u32) -> bool {
        let Some(segment) = self.segments.get(segment) else {
            return false;
        };
        self.is_open_pool(self.list(segment.list).pool)
    }

    /// Whether unused memory of a pool may go elsewhere: that of the default pool, and of those
    /// that were released before the device was idle.
    pub(crate) fn is_open_pool(&self, pool: u32) -> bool {
        pool == PoolId::DEFAULT.index || self.pools.at(pool).is_open
    }

    fn claim_gifts(&mut self, segment: u32, gifts: &mut Vec<Gift>, steps: &mut Vec<Step>) {
        let Some(of) = self.segments.get(segment) else {
            return;
        };
        let (kind, is_loan, first) = (of.kind, of.is_loan, of.first);
        let (address, bytes) = (of.address, of.bytes);
        let whole = self.blocks[first].bytes == bytes;
        let is_hollow = self.blocks[first].state == BlockState::Hollow;
        if kind == SegmentKind::Mapped && whole && is_hollow {
            if self.leads_nowhere(first) {
                self.unlink_hollow(first);
                self.blocks[first].state = BlockState::Claimed;
                self.segments.withdraw(segment);
                steps.push(Step::Unreserve { address, bytes });
                gifts.push(Gift::Addresses { segment });
            }
            return;
        }
        if is_loan {
            // Its granules are released at their homes.
            return;
        }
        let mut next = first;
        while let Some(index) = next.some() {
            let end = self.idle_run_end(index);
            if end > self.blocks[index].address {
                let (start, end) = match kind {
                    SegmentKind::Mapped => self.releasable_range(index, end),
                    SegmentKind::Plain => (self.blocks[index].address, end),
                };
                let is_whole =
                    start == address && end == address + bytes && !self.pins.touch(start..end);
                if start < end && (kind == SegmentKind::Mapped || is_whole) {
                    let claimed = self.claim_range(index, start, end);
                    // All its uses are complete; points of different streams would not compare.
                    self.blocks[claimed].free_after = 0;
                    let gift = match kind {
                        SegmentKind::Mapped => self.gift_of(claimed, steps),
                        SegmentKind::Plain => {
                            self.segments.withdraw(segment);
                            steps.push(Step::Free { address, bytes });
                            Gift::Plain { segment }
                        }
                    };
                    gifts.push(gift);
                    next = self.blocks[claimed].next;
                    continue;
                }
            }
            next = self.blocks[index].next;
        }
    }

    /// Where the run of free blocks with complete last uses that starts at this block ends; the
    /// block's own address if it is none.
    pub(super) fn idle_run_end(&self, index: BlockIndex) -> u64 {
        let mut end = self.blocks[index].address;
        let mut next = index;
        while let Some(index) = next.some() {
            let block = &self.blocks[index];
            if block.state != BlockState::Free
                || block.free_after > self.streams.at(self.list(block.list).stream).passed
            {
                break;
            }
            end = block.end();
            next = block.next;
        }
        end
    }

    /// The first handles in the run of free blocks from `index` to `end` that can all be
    /// released; an empty range if there are none.
    fn releasable_range(&self, index: BlockIndex, end: u64) -> (u64, u64) {
        let granule_bytes = self.config.granule_bytes;
        let block = &self.blocks[index];
        let Range { start, end } = self.whole_handles(block.segment, block.address..end);
        let Some(segment) = self.segments.get(block.segment).filter(|_| start < end) else {
            return (end, end);
        };
        let is_releasable = |&address: &u64| {
            let slot = (address - segment.address) / granule_bytes;
            !self.pins.touch(address..address + granule_bytes)
                && segment
                    .granule(slot as usize)
                    .is_some_and(|id| self.granules.mappings(id).is_empty())
        };
        let mut addresses = (start..end).step_by(granule_bytes as usize);
        let start = addresses.find(is_releasable).unwrap_or(end);
        let end = addresses.find(|address| !is_releasable(address)).unwrap_or(end);
        (start, end)
    }

    /// Claims the addresses from `start` to `end`, which free blocks from `index` on cover, as one
    /// block. What free blocks have beyond both ends stays free in the lists they stand in.
    pub(super) fn claim_range(&mut self, index: BlockIndex, start: u64, end: u64) -> BlockIndex {
        let mut first = index;
        while self.blocks[first].end() <= start {
            first = self.blocks[first].next;
        }
        self.remove_free(first);
        if self.blocks[first].address < start {
            let claimed = self.blocks.cut(first, start - self.blocks[first].address);
            self.insert_free(first);
            first = claimed;
        }
        self.cut_free_rest(first, end);
        while self.blocks[first].end() < end {
            let next = self.blocks[first].next;
            self.remove_free(next);
            self.cut_free_rest(next, end);
            self.blocks.absorb_next(first);
        }
        self.blocks[first].state = BlockState::Claimed;
        first
    }

    /// Files what a free, unfiled block has beyond `end` as a block of its own.
    fn cut_free_rest(&mut self, index: BlockIndex, end: u64) {
        let block = self.blocks[index];
        if block.end() > end {
            let rest = self.blocks.cut(index, end - block.address);
            self.insert_free(rest);
        }
    }

    /// The backing of a claimed block as a gift.
    fn gift_of(&mut self, index: BlockIndex, steps: &mut Vec<Step>) -> Gift {
        let block = self.blocks[index];
        let granules = self.places_of(index).map(|(_, granule)| granule);
        let handles: Vec<GranuleId> =
            granules.filter(|&granule| self.granules.before(granule) == 0).collect();
        steps.push(Step::Unmap { address: block.address, bytes: block.bytes });
        for &granule in &handles {
            steps.push(Step::Release { granule });
            self.granules.plan(granule);
        }
        Gift::Backing { block: index, handles }
    }

    /// Takes back a trim of which the first `done` steps were done.
    pub(super) fn finish_trim(&mut self, gifts: Vec<Gift>, done: usize) {
        let mut left = done;
        let mut take = move || {
            let is_done = left > 0;
            left = left.saturating_sub(1);
            is_done
        };
        for gift in gifts {
            match gift {
                Gift::Idle { granule } => self.finish_release(granule, take()),
                Gift::Aliases { block, ranges } => {
                    for range in ranges {
                        if take() {
                            self.finish_unmapping(block, range);
                        }
                    }
                    self.finish_clearing(block);
                }
                Gift::Backing { block, handles } => {
                    let is_unmapped = take();
                    let released: Vec<bool> = handles.iter().map(|_| take()).collect();
                    if is_unmapped {
                        self.finish_unmap(block, &handles, &released);
                    } else {
                        self.keep_backing(block);
                    }
                }
                Gift::Plain { segment } => self.finish_free_plain(segment, take()),
                Gift::Addresses { segment } => self.finish_unreserve(segment, take()),
            }
        }
    }

    fn finish_release(&mut self, handle: GranuleId, is_done: bool) {
        if is_done {
            let granules = self.granules.handle(handle).len() as u64;
            self.granules.set_vacant(handle);
            self.memory_is_scarce = false;
            self.stats.all.reserved_bytes.take(granules * self.config.granule_bytes);
        } else {
            self.granules.set_idle(handle);
        }
    }

    /// A claimed block could not be unmapped: it is what it was before.
    fn keep_backing(&mut self, index: BlockIndex) {
        let places: Vec<_> = self.places_of(index).collect();
        for (place, granule) in places {
            self.granules.set_backing(granule, place);
        }
        self.file(index);
    }

    fn finish_unmap(&mut self, index: BlockIndex, handles: &[GranuleId], released: &[bool]) {
        let block = self.blocks[index];
        let granule_bytes = self.config.granule_bytes;
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let first = (block.address - segment.address) / granule_bytes;
            for slot in 0..block.bytes / granule_bytes {
                segment.unmap((first + slot) as usize);
            }
            let class = self.lists[segment.list as usize].class as usize;
            self.stats.classes[class].reserved_bytes.take(block.bytes);
        }
        for (&handle, &is_released) in handles.iter().zip(released) {
            self.finish_release(handle, is_released);
        }
        self.hollow_out(index);
    }

    fn finish_free_plain(&mut self, index: u32, is_done: bool) {
        let Some(segment) = self.segments.get(index) else {
            return;
        };
        let (first, bytes, list) = (segment.first, segment.bytes, segment.list);
        if !is_done {
            self.segments.restore(index);
            self.file(first);
            return;
        }
        let class = self.list(list).class as usize;
        self.stats.all.reserved_bytes.take(bytes);
        self.stats.classes[class].reserved_bytes.take(bytes);
        self.memory_is_scarce = false;
        self.remove_segment(index);
    }

    fn finish_unreserve(&mut self, index: u32, is_done: bool) {
        let Some(first) = self.segments.get(index).map(|segment| segment.first) else {
            return;
        };
        if is_done {
            self.remove_segment(index);
            self.addresses_are_scarce = false;
        } else {
            self.segments.restore(index);
            self.hollow_out(first);
        }
    }

    /// Forgets a withdrawn segment and the one block that covers it.
    fn remove_segment(&mut self, index: u32) {
        let Some(segment) = self.segments.get(index) else {
            return;
        };
        let class = self.list(segment.list).class as usize;
        self.blocks.remove(segment.first);
        self.stats.all.segments.take(1);
        self.stats.classes[class].segments.take(1);
        self.segments.remove(index);
    }
}
