//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back: unmapping does not wait for
//! kernels. Private pools keep theirs while they live (I12), since graphs hold their addresses.

use super::Heap;
use crate::block::{BlockIndex, BlockState};
use crate::fence::Fence;
use crate::granule::GranuleId;
use crate::id::PoolId;
use crate::plan::{Gift, Intent, Plan, Step};
use crate::policy::SegmentKind;
use crate::size::{round_down, round_up};

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// Addresses follow in a plan of their own once nothing is mapped behind them, so: trim until
    /// there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        let mut gifts = Vec::new();
        let mut steps = Vec::new();
        let segments: Vec<u32> = self.segments.in_address_order().map(|(index, _)| index).collect();
        for segment in segments {
            if self.is_trimmable(segment) {
                self.claim_gifts(segment, &mut gifts, &mut steps);
            }
        }
        // Last, since giving these back has failed before: nothing waits behind them.
        while let Some(granule) = self.granules.take_idle() {
            steps.push(Step::Release { granule });
            gifts.push(Gift::Idle { granule });
        }
        for stranded in std::mem::take(&mut self.stranded) {
            self.blocks[stranded].state = BlockState::Claimed;
            gifts.push(self.gift_of(stranded, true, &mut steps));
        }
        (!gifts.is_empty()).then_some(Plan { steps, intent: Intent::Trim { gifts } })
    }

    /// Plans to wait until the device is idle. Afterwards every block freed before is usable
    /// everywhere, pending ones are free, and a trim gives all of it back.
    pub fn plan_synchronize(&mut self) -> Plan {
        let mut fences = Vec::with_capacity(self.streams.len());
        for index in 0..self.streams.len() as u32 {
            let stream = self.streams.at_mut(index);
            let point = if stream.is_retired { stream.issued } else { stream.issue() };
            fences.push(Fence { stream: self.streams.id_at(index), point });
        }
        let quarantined = std::mem::take(&mut self.quarantine);
        let intent = Intent::Synchronize { fences, quarantined };
        Plan { steps: vec![Step::SynchronizeDevice], intent }
    }

    pub(super) fn finish_synchronize(&mut self, fences: &[Fence], quarantined: Vec<BlockIndex>) {
        for &fence in fences {
            self.fence_passed(fence);
        }
        for index in quarantined {
            self.stats.quarantined_bytes -= self.blocks[index].bytes;
            self.settle(index);
        }
    }

    /// Memory of the default pool, and of pools that were released.
    fn is_trimmable(&self, segment: u32) -> bool {
        let Some(segment) = self.segments.get(segment) else {
            return false;
        };
        let pool = self.list(segment.list).pool;
        pool == PoolId::DEFAULT.index || self.pools.at(pool).is_released
    }

    fn claim_gifts(&mut self, segment: u32, gifts: &mut Vec<Gift>, steps: &mut Vec<Step>) {
        let Some(of) = self.segments.get(segment) else {
            return;
        };
        let (kind, first, address, bytes) = (of.kind, of.first, of.address, of.bytes);
        let whole = self.blocks[first].bytes == bytes;
        if kind == SegmentKind::Mapped && whole && self.is_hollow(first) {
            self.unlink_hollow(first);
            self.blocks[first].state = BlockState::Claimed;
            self.segments.withdraw(segment);
            steps.push(Step::Unreserve { address, bytes });
            gifts.push(Gift::Addresses { segment });
            return;
        }
        let mut next = first;
        while let Some(index) = next.some() {
            let end = self.idle_run_end(index);
            if end > self.blocks[index].address {
                let (start, end) = match kind {
                    SegmentKind::Mapped => {
                        let granule_bytes = self.config.granule_bytes;
                        let start = round_up(self.blocks[index].address, granule_bytes);
                        (start.unwrap_or(u64::MAX), round_down(end, granule_bytes))
                    }
                    SegmentKind::Plain => (self.blocks[index].address, end),
                };
                let is_whole = start == address && end == address + bytes;
                if start < end && (kind == SegmentKind::Mapped || is_whole) {
                    let claimed = self.claim_range(index, start, end);
                    gifts.push(match kind {
                        SegmentKind::Mapped => self.gift_of(claimed, false, steps),
                        SegmentKind::Plain => {
                            self.segments.withdraw(segment);
                            steps.push(Step::Free { address });
                            Gift::Plain { segment }
                        }
                    });
                    next = self.blocks[claimed].next;
                    continue;
                }
            }
            next = self.blocks[index].next;
        }
    }

    /// Where the run of free blocks with complete last uses that starts at this block ends; the
    /// block's own address if it is none.
    fn idle_run_end(&self, index: BlockIndex) -> u64 {
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

    /// Claims the addresses from `start` to `end`, which free blocks from `index` on cover, as one
    /// block. What free blocks have beyond both ends stays free in the lists they stand in.
    fn claim_range(&mut self, index: BlockIndex, start: u64, end: u64) -> BlockIndex {
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
        let claimed = &mut self.blocks[first];
        claimed.state = BlockState::Claimed;
        // All its uses are complete; points of different streams would not compare.
        claimed.free_after = 0;
        first
    }

    /// Files what a free, homeless block has beyond `end` as a block of its own.
    fn cut_free_rest(&mut self, index: BlockIndex, end: u64) {
        let block = self.blocks[index];
        if block.end() > end {
            let rest = self.blocks.cut(index, end - block.address);
            self.insert_free(rest);
        }
    }

    /// The backing of a claimed block as a gift.
    fn gift_of(&mut self, index: BlockIndex, was_stranded: bool, steps: &mut Vec<Step>) -> Gift {
        let block = self.blocks[index];
        let granule_bytes = self.config.granule_bytes;
        steps.push(Step::Unmap { address: block.address, bytes: block.bytes });
        let mut granules = Vec::new();
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let first = (block.address - segment.address) / granule_bytes;
            for slot in first..first + block.bytes / granule_bytes {
                if let Some(granule) = segment.granule(slot as usize) {
                    granules.push(granule);
                    steps.push(Step::Release { granule });
                }
            }
        }
        granules.iter().for_each(|&granule| self.granules.plan(granule));
        Gift::Backing { block: index, granules, was_stranded }
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
                Gift::Backing { block, granules, was_stranded } => {
                    let is_unmapped = take();
                    let released: Vec<bool> = granules.iter().map(|_| take()).collect();
                    if is_unmapped {
                        self.finish_unmap(block, &granules, &released);
                    } else {
                        self.keep_backing(block, &granules, was_stranded);
                    }
                }
                Gift::Plain { segment } => self.finish_free_plain(segment, take()),
                Gift::Addresses { segment } => self.finish_unreserve(segment, take()),
            }
        }
    }

    fn finish_release(&mut self, granule: GranuleId, is_done: bool) {
        if is_done {
            self.granules.set_vacant(granule);
            self.stats.all.reserved_bytes.take(self.config.granule_bytes);
        } else {
            self.granules.set_idle(granule);
        }
    }

    /// A claimed block could not be unmapped: it is what it was before.
    fn keep_backing(&mut self, index: BlockIndex, granules: &[GranuleId], was_stranded: bool) {
        granules.iter().for_each(|&granule| self.granules.set_mapped(granule));
        if was_stranded {
            self.blocks[index].state = BlockState::Stranded;
            self.stranded.push(index);
        } else {
            self.file(index);
        }
    }

    fn finish_unmap(&mut self, index: BlockIndex, granules: &[GranuleId], released: &[bool]) {
        let block = self.blocks[index];
        let granule_bytes = self.config.granule_bytes;
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let first = (block.address - segment.address) / granule_bytes;
            for slot in 0..block.bytes / granule_bytes {
                segment.set_granule((first + slot) as usize, None);
            }
            let scale = self.lists[segment.list as usize].scale as usize;
            self.stats.scales[scale].reserved_bytes.take(block.bytes);
        }
        for (&granule, &is_released) in granules.iter().zip(released) {
            self.finish_release(granule, is_released);
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
        let scale = self.list(list).scale as usize;
        self.stats.all.reserved_bytes.take(bytes);
        self.stats.scales[scale].reserved_bytes.take(bytes);
        self.remove_segment(index);
    }

    fn finish_unreserve(&mut self, index: u32, is_done: bool) {
        let Some(first) = self.segments.get(index).map(|segment| segment.first) else {
            return;
        };
        if is_done {
            self.remove_segment(index);
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
        let scale = self.list(segment.list).scale as usize;
        self.blocks.remove(segment.first);
        self.stats.all.segments.take(1);
        self.stats.scales[scale].segments.take(1);
        self.segments.remove(index);
    }
}
