//! Growth: what to ask of the driver when no free block serves.
//!
//! A mapped segment grows where the fewest mappings do, with granules that are free elsewhere
//! before new ones. Reserved bytes plus those under way never pass the limit (one step: B19).

use std::collections::BTreeSet;

use super::Heap;
use super::harvest::Victims;
use super::request::{Answer, Reach};
use super::site::Site;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::granule::GranuleId;
use crate::plan::{Backing, Intent, Plan, Step, Wanted};
use crate::policy::{self, SegmentKind};
use crate::size::{SizeError, round_up};

/// Adds access to a range of new mappings, if there is one.
fn open(steps: &mut Vec<Step>, from: Option<u64>, end: u64) {
    steps.extend(from.map(|address| Step::SetAccess { address, bytes: end - address }));
}

impl Heap {
    pub(super) fn grow(&mut self, wanted: Wanted, reach: Reach) -> Result<Answer, RequestError> {
        match self.list(wanted.list).kind {
            SegmentKind::Plain => self.plan_malloc(wanted, reach).map(Answer::Plan),
            SegmentKind::Mapped => self.plan_backing(wanted, reach).map(Answer::Plan),
        }
    }

    fn plan_malloc(&mut self, wanted: Wanted, reach: Reach) -> Result<Plan, RequestError> {
        if reach == Reach::Wait
            && let Some(plan) = self.plan_order(wanted)
        {
            return Ok(plan);
        }
        let scale = self.list(wanted.list).scale;
        let bytes = policy::plain_segment_bytes(scale, wanted.bytes)
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
        self.reserve_within_limit(bytes)?;
        Ok(Plan { steps: vec![Step::Malloc { bytes }], intent: Intent::Malloc { wanted, bytes } })
    }

    fn plan_backing(&mut self, wanted: Wanted, reach: Reach) -> Result<Plan, RequestError> {
        let victims = self.victims(wanted, reach);
        let Some(site) = self.best_site(wanted, &victims) else {
            let idle_bytes = self.granules.idle().len() as u64 * self.config.granule_bytes;
            let held_bytes = idle_bytes + victims.ordered_bytes();
            let backed_bytes = round_up(wanted.bytes, self.config.granule_bytes);
            let missing_bytes = backed_bytes.unwrap_or(u64::MAX).saturating_sub(held_bytes);
            let shared = self.plan_sharing(wanted, reach, &victims, missing_bytes);
            // Before addresses are taken: would the memory be allowed at all?
            return shared.map_or_else(
                || self.within_limit(missing_bytes).and_then(|()| self.plan_reservation(wanted)),
                Ok,
            );
        };
        if let Some(plan) = self.plan_eviction_at(&site.in_the_way) {
            return Ok(plan);
        }
        if let Some(plan) = self.plan_within_budget(wanted, reach, site.unmapped()) {
            return Ok(plan);
        }
        let kept: BTreeSet<GranuleId> = site.kept.iter().map(|&(_, granule)| granule).collect();
        let spared = [site.before, site.after];
        let picked = self.pick(site.unmapped(), &victims, spared, &kept);
        let missing_bytes = (site.unmapped() - picked.len()) as u64 * self.config.granule_bytes;
        if let Some(plan) = self.plan_sharing(wanted, reach, &victims, missing_bytes) {
            return Ok(plan);
        }
        self.reserve_within_limit(missing_bytes)?;
        let taken: Vec<GranuleId> = kept.into_iter().chain(picked.iter().copied()).collect();
        let harvested = self.claim_granules(&taken, &victims);
        Ok(self.claim_site(wanted, &site, picked, harvested))
    }

    /// Before memory is created, that of other streams is waited for, if the request may.
    fn plan_sharing(
        &mut self,
        wanted: Wanted,
        reach: Reach,
        victims: &Victims,
        missing_bytes: u64,
    ) -> Option<Plan> {
        if missing_bytes == 0 || reach != Reach::Wait {
            return None;
        }
        let run = self.plan_order(wanted);
        run.or_else(|| self.plan_victim_order(wanted, victims, missing_bytes))
    }

    /// Claims a site, and plans what makes it a block.
    fn claim_site(
        &mut self,
        wanted: Wanted,
        site: &Site,
        picked: Vec<GranuleId>,
        harvested: Vec<BlockIndex>,
    ) -> Plan {
        let hollow = site.hollow;
        for free in [site.before, site.after].into_iter().filter_map(BlockIndex::some) {
            self.remove_free(free);
            self.blocks[free].state = BlockState::Claimed;
        }
        self.unlink_hollow(hollow);
        let bytes = site.granules as u64 * self.config.granule_bytes;
        if self.blocks[hollow].bytes > bytes {
            let rest = self.blocks.cut(hollow, bytes);
            self.link_hollow(rest);
        }
        self.blocks[hollow].state = BlockState::Claimed;
        self.refile(self.blocks[hollow].previous);
        let (steps, backing) = self.backing_steps(site, picked);
        let (free_before, free_after) = (site.before, site.after);
        let backing = Backing { hollow, granules: backing, harvested };
        Plan { steps, intent: Intent::Back { wanted, free_before, backing, free_after } }
    }

    /// Steps that back a site, and the granules that will: those still mapped there stay, picked
    /// ones are mapped, new ones created for the rest; then access, once for each range.
    fn backing_steps(
        &mut self,
        site: &Site,
        picked: Vec<GranuleId>,
    ) -> (Vec<Step>, Vec<GranuleId>) {
        let bytes = self.config.granule_bytes;
        let start = self.blocks[site.hollow].address;
        let mut picked = picked.into_iter();
        let mut kept = site.kept.iter().peekable();
        let mut steps = Vec::with_capacity(2 * site.unmapped() + 1);
        let mut backing = Vec::with_capacity(site.granules);
        let mut open_from = None;
        for at in 0..site.granules {
            let address = start + at as u64 * bytes;
            if let Some(&(_, granule)) = kept.next_if(|&&(place, _)| place == at) {
                open(&mut steps, open_from.take(), address);
                backing.push(granule);
                continue;
            }
            let granule = picked.next().unwrap_or_else(|| {
                let granule = self.granules.name();
                steps.push(Step::Create { granule, bytes });
                granule
            });
            steps.push(Step::Map { address, bytes, granule });
            backing.push(granule);
            open_from = open_from.or(Some(address));
        }
        open(&mut steps, open_from, start + site.granules as u64 * bytes);
        (steps, backing)
    }

    fn plan_reservation(&mut self, wanted: Wanted) -> Result<Plan, RequestError> {
        let granule_bytes = self.config.granule_bytes;
        let device_bytes = if self.addresses_are_scarce { 0 } else { self.config.device_bytes };
        let scale = self.list(wanted.list).scale;
        let bytes = policy::reservation_bytes(scale, wanted.bytes, device_bytes, granule_bytes)
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
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
