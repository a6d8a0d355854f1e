//! Growth: what to ask of the driver when no free block serves.
//!
//! A mapped segment grows where the fewest new granules do: behind a free block that is nearly
//! large enough. Reserved bytes plus those under way never pass the limit (one step: B19).

use super::Heap;
use super::request::Answer;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::plan::{Intent, Plan, Step, Wanted};
use crate::policy::{self, SegmentKind};
use crate::size::{SizeError, round_up};

/// A place to grow: `backed_bytes` at the front of a hollow block, with the free blocks around it.
#[derive(Clone, Copy)]
struct Site {
    hollow: BlockIndex,
    backed_bytes: u64,
    uses_before: bool,
    uses_after: bool,
}

impl Heap {
    pub(super) fn grow(&mut self, wanted: Wanted) -> Result<Answer, RequestError> {
        match self.list(wanted.list).kind {
            SegmentKind::Plain => self.plan_malloc(wanted).map(Answer::Plan),
            SegmentKind::Mapped => self.plan_backing(wanted).map(Answer::Plan),
        }
    }

    fn plan_malloc(&mut self, wanted: Wanted) -> Result<Plan, RequestError> {
        let scale = self.list(wanted.list).scale;
        let bytes = policy::plain_segment_bytes(scale, wanted.bytes)
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
        self.reserve_within_limit(bytes)?;
        Ok(Plan { steps: vec![Step::Malloc { bytes }], intent: Intent::Malloc { wanted, bytes } })
    }

    fn plan_backing(&mut self, wanted: Wanted) -> Result<Plan, RequestError> {
        let Some(site) = self.best_site(wanted) else {
            return self.plan_reservation(wanted);
        };
        let granule_bytes = self.config.granule_bytes;
        let granules = (site.backed_bytes / granule_bytes) as usize;
        let created = granules.saturating_sub(self.granules.idle_count());
        self.reserve_within_limit(created as u64 * granule_bytes)?;

        let (before, after) = (self.blocks[site.hollow].previous, self.blocks[site.hollow].next);
        let free_before = self.claim_free(before, site.uses_before);
        let free_after = self.claim_free(after, site.uses_after);
        self.unlink_hollow(site.hollow);
        if self.blocks[site.hollow].bytes > site.backed_bytes {
            let rest = self.blocks.cut(site.hollow, site.backed_bytes);
            self.link_hollow(rest);
        }
        self.blocks[site.hollow].state = BlockState::Claimed;
        self.refile(before);
        let steps = self.backing_steps(self.blocks[site.hollow].address, granules);
        Ok(Plan {
            steps,
            intent: Intent::Back { wanted, free_before, hollow: site.hollow, free_after },
        })
    }

    /// Where to grow for a request: the fewest bytes to back, then the lowest address.
    fn best_site(&self, wanted: Wanted) -> Option<Site> {
        let mut best: Option<(u64, u64, Site)> = None;
        let mut next = self.list(wanted.list).hollow;
        while let Some(index) = next.some() {
            let hollow = &self.blocks[index];
            next = hollow.home_next;
            if let Some(site) = self.site_at(index, wanted) {
                let rank = (site.backed_bytes, hollow.address);
                if best.is_none_or(|best| rank < (best.0, best.1)) {
                    best = Some((rank.0, rank.1, site));
                }
            }
        }
        best.map(|(_, _, site)| site)
    }

    fn site_at(&self, index: BlockIndex, wanted: Wanted) -> Option<Site> {
        let hollow = &self.blocks[index];
        let before = self.free_bytes(hollow.previous, wanted.list);
        let after = self.free_bytes(hollow.next, wanted.list);
        let missing = wanted.bytes.saturating_sub(before).max(1);
        let backed_bytes = round_up(missing, self.config.granule_bytes)?;
        if backed_bytes <= hollow.bytes {
            let uses_before = before > 0;
            return Some(Site { hollow: index, backed_bytes, uses_before, uses_after: false });
        }
        (before + hollow.bytes + after >= wanted.bytes).then_some(Site {
            hollow: index,
            backed_bytes: hollow.bytes,
            uses_before: before > 0,
            uses_after: true,
        })
    }

    /// Size of a block if it is free in this list, else 0.
    fn free_bytes(&self, index: BlockIndex, list: u32) -> u64 {
        match index.some().map(|index| &self.blocks[index]) {
            Some(block) if block.state == BlockState::Free && block.list == list => block.bytes,
            _ => 0,
        }
    }

    fn claim_free(&mut self, index: BlockIndex, is_used: bool) -> BlockIndex {
        if !is_used {
            return BlockIndex::NONE;
        }
        self.remove_free(index);
        self.blocks[index].state = BlockState::Claimed;
        index
    }

    /// Steps that back a range: idle granules first, new ones for the rest, then one access call.
    fn backing_steps(&mut self, address: u64, granules: usize) -> Vec<Step> {
        let bytes = self.config.granule_bytes;
        let mut steps = Vec::with_capacity(2 * granules + 1);
        for slot in 0..granules {
            let granule = self.granules.take_idle().unwrap_or_else(|| {
                let granule = self.granules.name();
                steps.push(Step::Create { granule, bytes });
                granule
            });
            steps.push(Step::Map { address: address + slot as u64 * bytes, bytes, granule });
        }
        steps.push(Step::SetAccess { address, bytes: granules as u64 * bytes });
        steps
    }

    fn plan_reservation(&mut self, wanted: Wanted) -> Result<Plan, RequestError> {
        let granule_bytes = self.config.granule_bytes;
        let device_bytes = if self.addresses_are_scarce { 0 } else { self.config.device_bytes };
        let scale = self.list(wanted.list).scale;
        let bytes = policy::reservation_bytes(scale, wanted.bytes, device_bytes, granule_bytes)
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
        // Before addresses are taken: would the memory be allowed at all?
        let backed_bytes = round_up(wanted.bytes, granule_bytes).unwrap_or(u64::MAX);
        let idle_bytes = self.granules.idle_count() as u64 * granule_bytes;
        self.within_limit(backed_bytes.saturating_sub(idle_bytes))?;
        Ok(Plan {
            steps: vec![Step::Reserve { bytes, alignment: granule_bytes }],
            intent: Intent::Reserve { list: wanted.list, bytes },
        })
    }

    /// Checks growth against the limit, and counts it as under way.
    fn reserve_within_limit(&mut self, bytes: u64) -> Result<(), RequestError> {
        self.within_limit(bytes)?;
        self.planned_bytes += bytes;
        Ok(())
    }

    fn within_limit(&self, bytes: u64) -> Result<(), RequestError> {
        let reserved_bytes = self.stats.all.reserved_bytes.current + self.planned_bytes;
        let limit_bytes = self.config.limit_bytes;
        if bytes > 0 && reserved_bytes.saturating_add(bytes) > limit_bytes {
            return Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes });
        }
        Ok(())
    }

    // Hollow blocks: chained through their home links, in the list their segment was made for.

    /// Makes a homeless block hollow, joined with the hollow blocks around it.
    pub(super) fn hollow_out(&mut self, index: BlockIndex) {
        let mut index = index;
        let Some(segment) = self.segments.get(self.blocks[index].segment) else {
            return;
        };
        let list = segment.list;
        if self.is_hollow(self.blocks[index].next) {
            self.unlink_hollow(self.blocks[index].next);
            self.blocks.absorb_next(index);
        }
        let previous = self.blocks[index].previous;
        if self.is_hollow(previous) {
            self.unlink_hollow(previous);
            self.blocks.absorb_next(previous);
            index = previous;
        }
        self.blocks[index].list = list;
        self.link_hollow(index);
        self.refile(self.blocks[index].previous);
    }

    /// Adds a block to the chain of hollow blocks of its list.
    fn link_hollow(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list as usize;
        let head = self.lists[list].hollow;
        let block = &mut self.blocks[index];
        block.state = BlockState::Hollow;
        block.home_previous = BlockIndex::NONE;
        block.home_next = head;
        if let Some(head) = head.some() {
            self.blocks[head].home_previous = index;
        }
        self.lists[list].hollow = index;
    }

    pub(super) fn unlink_hollow(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        if let Some(next) = block.home_next.some() {
            self.blocks[next].home_previous = block.home_previous;
        }
        match block.home_previous.some() {
            Some(previous) => self.blocks[previous].home_next = block.home_next,
            None => self.lists[block.list as usize].hollow = block.home_next,
        }
    }

    /// Files a free block anew after the block behind it became hollow or ceased to be.
    pub(super) fn refile(&mut self, index: BlockIndex) {
        if let Some(index) = index.some()
            && self.blocks[index].state == BlockState::Free
        {
            self.remove_free(index);
            self.insert_free(index);
        }
    }

    /// A new segment with one homeless block over all of it.
    pub(super) fn add_segment(&mut self, address: u64, bytes: u64, list: u32) -> BlockIndex {
        let kind = self.list(list).kind;
        let segment =
            self.segments.insert(crate::segment::Segment::new(kind, address, bytes, list));
        let index = self.blocks.insert(crate::block::Block {
            address,
            bytes,
            requested: 0,
            free_after: 0,
            segment,
            list,
            previous: BlockIndex::NONE,
            next: BlockIndex::NONE,
            home_previous: BlockIndex::NONE,
            home_next: BlockIndex::NONE,
            uses: crate::block::NO_USES,
            bin: 0,
            state: BlockState::Claimed,
        });
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = index;
        }
        let scale = self.list(list).scale as usize;
        self.stats.all.segments.add(1);
        self.stats.scales[scale].segments.add(1);
        index
    }
}
