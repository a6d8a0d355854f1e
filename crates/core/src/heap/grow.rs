//! Growth: what to ask of the driver when no free block serves.
//!
//! Granules that are free come first, as a loan; only what is missing is created, at home.
//! Reserved bytes plus those under way never pass the limit (one step: B19).

use super::Heap;
use super::handle::Supply;
use super::harvest::Victims;
use super::request::{Outcome, Reuse};
use super::site::Growth;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::plan::{Intent, Plan, Step, Wanted};
use crate::policy::{self, SegmentKind};
use crate::pool::Pool;
use crate::size::{SizeError, round_up};

impl Heap {
    pub(super) fn grow(&mut self, wanted: Wanted, reuse: Reuse) -> Result<Outcome, RequestError> {
        match self.list(wanted.list).kind {
            SegmentKind::Plain => self.plan_malloc(wanted, reuse).map(Outcome::Plan),
            SegmentKind::Mapped => self.back(wanted, reuse),
        }
    }

    fn plan_malloc(&mut self, wanted: Wanted, reuse: Reuse) -> Result<Plan, RequestError> {
        if reuse == Reuse::MayWait
            && let Some(plan) = self.plan_order(wanted)
        {
            return Ok(plan);
        }
        let class = self.list(wanted.list).class;
        let bytes = policy::plain_segment_bytes(class, wanted.bytes)
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
        self.reserve_within_limit(bytes)?;
        self.pool_of(wanted.list).planned_segments += 1;
        Ok(Plan { steps: vec![Step::Malloc { bytes }], intent: Intent::Malloc { wanted, bytes } })
    }

    /// Backs a request: with granules that are free, as far as there are enough of them, else with
    /// new ones.
    fn back(&mut self, wanted: Wanted, reuse: Reuse) -> Result<Outcome, RequestError> {
        let granule_bytes = self.config.granule_bytes;
        let too_large = SizeError::TooLarge { bytes: wanted.requested };
        let lent_bytes = round_up(wanted.bytes, granule_bytes).ok_or(too_large)?;
        let victims = self.victims(wanted, reuse);
        let free_bytes = victims.ordered_bytes();
        if lent_bytes <= free_bytes {
            if let Some(answer) = self.lend(wanted, reuse, &victims) {
                return Ok(answer);
            }
            // Where generous reservations are refused, memory is created rather than a small range
            // reserved for one loan.
            if !self.addresses_are_scarce {
                return self.plan_reservation(wanted, true).map(Outcome::Plan);
            }
        }
        let missing_bytes = lent_bytes.saturating_sub(free_bytes);
        if let Some(plan) = self.plan_sharing(wanted, reuse, &victims, missing_bytes) {
            return Ok(Outcome::Plan(plan));
        }
        // What is created for a private pool, or beside memory in use, would not be lent.
        let may_lend = free_bytes > 0
            && reuse != Reuse::OwnStream
            && self.is_open_pool(self.list(wanted.list).pool);
        let to_lend_bytes = if may_lend { missing_bytes } else { 0 };
        let most = self.handle_granules(self.list(wanted.list).class);
        match self.create(wanted, to_lend_bytes, most) {
            Err(RequestError::Limit { .. }) if most > 1 => self.create(wanted, to_lend_bytes, 1),
            answer => answer,
        }
    }

    /// Creates, in handles of at most so many granules, what a loan is short of, if that is less
    /// than growth in place takes: which saves the mappings. No loan if it is short of 0 bytes.
    fn create(
        &mut self,
        wanted: Wanted,
        to_lend_bytes: u64,
        most: u16,
    ) -> Result<Outcome, RequestError> {
        let in_place = self.best_growth(wanted, most);
        let in_place_granules = in_place.map(|growth| growth.granules);
        let to_lend = self.whole_growth(to_lend_bytes, most);
        let is_loan =
            to_lend > 0 && Some(to_lend) < in_place_granules.or(self.granules_for(wanted));
        let granules = if is_loan { Some(to_lend) } else { in_place_granules };
        let growth =
            if is_loan { self.room_for(to_lend_bytes, most, wanted.list) } else { in_place };
        let Some(growth) = growth else {
            let granules = granules.or(self.granules_for(wanted)).unwrap_or(0);
            self.within_limit(self.missing_bytes(&self.supply(granules, 1)))?;
            return self.plan_reservation(wanted, false).map(Outcome::Plan);
        };
        let supply = self.supply(growth.granules, most);
        self.within_limit(self.missing_bytes(&supply))?;
        Ok(Outcome::Plan(self.plan_growth((!is_loan).then_some(wanted), growth, supply)))
    }

    /// Before memory is created, that of other streams is waited for, if the request may.
    fn plan_sharing(
        &mut self,
        wanted: Wanted,
        reuse: Reuse,
        victims: &Victims,
        missing_bytes: u64,
    ) -> Option<Plan> {
        if missing_bytes == 0 || reuse != Reuse::MayWait {
            return None;
        }
        let run = self.plan_order(wanted);
        run.or_else(|| self.plan_victim_order(wanted, victims, missing_bytes))
    }

    /// Plans to back a site with granules that back nothing, then with new ones; or, if that has to
    /// be done first, to unmap what it leads to.
    fn plan_growth(&mut self, wanted: Option<Wanted>, growth: Growth, supply: Supply) -> Plan {
        let hollow = growth.site.hollow;
        let stale = self.mapped_slots(hollow);
        if !stale.is_empty() {
            self.unlink_hollow(hollow);
            return self.plan_to_clear(hollow, &stale);
        }
        self.claim_site(growth);
        let granule_bytes = self.config.granule_bytes;
        let start = self.blocks[hollow].address;
        let mut address = start;
        let mut steps = Vec::with_capacity(2 * growth.granules + 1);
        let has_large = supply.most > 1 && supply.missing > 1;
        let new = self.name_handles(&supply);
        self.granules.take_idle(&supply.idle);
        let (idle, mut handles) = (supply.idle.len(), supply.idle);
        handles.extend(new);
        for (at, &granule) in handles.iter().enumerate() {
            let bytes = self.granules.handle(granule).len() as u64 * granule_bytes;
            if at >= idle {
                steps.push(Step::Create { granule, bytes });
                self.planned_bytes += bytes;
            }
            steps.push(Step::Map { address, bytes, granule });
            address += bytes;
        }
        let bytes = self.blocks[hollow].bytes;
        steps.push(Step::SetAccess { address: start, bytes });
        Plan { steps, intent: Intent::Grow { wanted, site: growth.site, handles, has_large } }
    }

    fn plan_reservation(&mut self, wanted: Wanted, is_loan: bool) -> Result<Plan, RequestError> {
        let granule_bytes = self.config.granule_bytes;
        let device_bytes = if self.addresses_are_scarce { 0 } else { self.config.device_bytes };
        let class = self.list(wanted.list).class;
        let room = if is_loan { self.room_for_last_handle() } else { 0 };
        let bytes = wanted.bytes.checked_add(room);
        let bytes = bytes
            .and_then(|b| policy::reservation_bytes(class, b, device_bytes, granule_bytes))
            .ok_or(SizeError::TooLarge { bytes: wanted.requested })?;
        self.pool_of(wanted.list).planned_segments += 1;
        Ok(Plan {
            steps: vec![Step::Reserve { bytes, alignment: granule_bytes }],
            intent: Intent::Reserve { list: wanted.list, bytes, is_loan },
        })
    }

    /// The pool that a free list belongs to.
    pub(super) fn pool_of(&mut self, list: u32) -> &mut Pool {
        self.pools.at_mut(self.lists[list as usize].pool)
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

    /// A new segment with one unfiled block over all of it.
    pub(super) fn add_segment(
        &mut self,
        address: u64,
        bytes: u64,
        list: u32,
        is_loan: bool,
    ) -> BlockIndex {
        let kind = self.list(list).kind;
        let segment =
            self.segments.insert(crate::segment::Segment::new(kind, address, bytes, list, is_loan));
        let index = self.blocks.insert(crate::block::Block {
            address,
            bytes,
            requested: 0,
            free_after: 0,
            segment,
            list,
            previous: BlockIndex::NONE,
            next: BlockIndex::NONE,
            filed_previous: BlockIndex::NONE,
            filed_next: BlockIndex::NONE,
            uses: crate::block::NO_USES,
            bin: 0,
            state: BlockState::Claimed,
            is_loan,
        });
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = index;
        }
        let class = self.list(list).class as usize;
        self.stats.all.segments.add(1);
        self.stats.classes[class].segments.add(1);
        index
    }
}
