//! Growth: what to ask of the driver when no free block serves.
//!
//! With room to spare memory is created at home, as far as remaps are not affordable; without it
//! granules that are free come first, as a remap, and only what is missing is created. Reserved
//! bytes plus those under way never pass the limit (one step: B19).

use super::search::Stale;
use super::trim::Trim;
use super::{Heap, Look, Outcome, Reuse, Unserved};
use crate::error::RequestError;
use crate::id::ListIx;
use crate::plan::{Intent, Plan, Request, Step};
use crate::policy::{self, SegmentKind};
use crate::pool::Pool;
use crate::size::{SizeError, round_up};
use crate::space::unmapped::GrowthPoint;
use crate::stats::Stats;
use crate::vm::donors::Donors;
use crate::vm::physical::NewPhysical;

impl Heap {
    pub(super) fn grow(
        &mut self,
        request: Request,
        reuse: Reuse,
        look: Look,
    ) -> Result<Outcome, Unserved> {
        let outcome = match self.space.list(request.list).kind {
            SegmentKind::Plain => Outcome::Plan(self.plan_malloc(request, reuse)?),
            SegmentKind::Mapped => self.back(request, reuse, look)?,
        };
        self.count_choice(request, &outcome);
        Ok(outcome)
    }

    /// Counts what serves a request, and not what only prepares that.
    fn count_choice(&mut self, request: Request, outcome: &Outcome) {
        let is_roomy = self.is_roomy(request.bytes);
        let Stats { with_room, under_pressure, .. } = &mut self.stats;
        let choices = if is_roomy { with_room } else { under_pressure };
        match outcome {
            Outcome::Granted(_) => choices.remaps += 1,
            Outcome::Plan(plan) => match &plan.intent {
                Intent::Remap { .. } => choices.remaps += 1,
                Intent::Grow { .. } | Intent::Malloc { .. } => choices.growths += 1,
                Intent::Order { fences, .. } if !fences.is_empty() => choices.waits += 1,
                _ => {}
            },
        }
    }

    fn plan_malloc(&mut self, request: Request, reuse: Reuse) -> Result<Plan, RequestError> {
        if reuse == Reuse::MayWait
            && let Some(plan) = self.plan_order(request, !self.is_roomy(request.bytes))
        {
            return Ok(plan);
        }
        let class = self.space.list(request.list).class;
        let bytes = policy::plain_segment_bytes(class, request.bytes)
            .ok_or(SizeError::TooLarge { bytes: request.requested })?;
        self.check_limit(bytes)?;
        self.planned_bytes += bytes;
        self.pool_of(request.list).planned_segments += 1;
        Ok(Plan { steps: vec![Step::Malloc { bytes }], intent: Intent::Malloc { request, bytes } })
    }

    /// Backs a request: with granules that are free, as far as there are enough of them, else with
    /// new ones.
    fn back(&mut self, request: Request, reuse: Reuse, look: Look) -> Result<Outcome, Unserved> {
        let needed_bytes = self.needed_bytes(request)?;
        let is_roomy = self.is_roomy(needed_bytes);
        let donors = self.search(request).donors(reuse, false);
        let free_bytes = donors.ordered_bytes();
        let is_affordable = !is_roomy || self.can_afford(request, &donors, needed_bytes);
        if needed_bytes <= free_bytes && is_affordable {
            if let Some(outcome) = self.remap(request, reuse, &donors) {
                return Ok(outcome);
            }
            // Where generous reservations are refused, memory is created rather than a small range
            // reserved for one remap.
            let search = self.search(request);
            if !self.scarcity.of_addresses() && search.lacks_windows(request.bytes) {
                return Ok(Outcome::Plan(self.plan_reservation(request, true)?));
            }
        }
        let missing_bytes = needed_bytes.saturating_sub(free_bytes);
        if reuse == Reuse::MayWait
            && let Some(plan) = self.plan_sharing(request, &donors, missing_bytes, is_roomy)
        {
            return Ok(Outcome::Plan(plan));
        }
        // What is created for a private pool, or beside memory in use, would not be remapped.
        let may_remap = free_bytes > 0
            && is_affordable
            && reuse != Reuse::OwnStream
            && self.is_open(request.list);
        let to_remap_bytes = if may_remap { missing_bytes } else { 0 };
        let most = self.handle_granules(request, is_roomy);
        match self.create(request, look, to_remap_bytes, most) {
            Err(Unserved::Refused(RequestError::Limit { .. } | RequestError::Device { .. }))
                if most > 1 =>
            {
                self.create(request, look, to_remap_bytes, 1)
            }
            outcome => outcome,
        }
    }

    /// The bytes of whole granules that a request takes.
    fn needed_bytes(&self, request: Request) -> Result<u64, RequestError> {
        let bytes = round_up(request.bytes, self.config.granule_bytes);
        bytes.ok_or(SizeError::TooLarge { bytes: request.requested }.into())
    }

    /// What is reserved, with what is under way.
    fn growing_bytes(&self) -> u64 {
        self.stats.all.reserved_bytes.current + self.planned_bytes
    }

    /// What the device and the limit have left.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.headroom.left_bytes(self.growing_bytes(), self.config.limit_bytes)
    }

    /// What this heap may hold at most, as far as others leave it that much.
    fn own_bytes(&self) -> u64 {
        self.headroom.left_bytes(0, self.config.limit_bytes)
    }

    /// Whether there is room to spare for so many bytes.
    fn is_roomy(&self, bytes: u64) -> bool {
        policy::is_roomy(self.config.prefer, bytes, self.left_bytes(), self.own_bytes())
    }

    /// Whether a request may be served by a remap with room to spare.
    fn can_afford(&self, request: Request, donors: &Donors, needed_bytes: u64) -> bool {
        let granules = needed_bytes / self.config.granule_bytes;
        self.affordable_remaps >= granules
            || self.search(request).idle_window(granules as usize, donors, Stale::Now, 1).is_some()
    }

    /// How many granules new handles for a request get at most.
    fn handle_granules(&self, request: Request, is_roomy: bool) -> u16 {
        let class = self.space.list(request.list).class;
        let granule_bytes = self.config.granule_bytes;
        if is_roomy && !self.scarcity.of_memory() {
            let (left_bytes, own_bytes) = (self.left_bytes(), self.own_bytes());
            let asked_bytes = request.bytes;
            return policy::roomy_handle_granules(
                class,
                asked_bytes,
                left_bytes,
                own_bytes,
                granule_bytes,
            );
        }
        policy::handle_granules(
            class,
            self.scarcity.of_memory(),
            self.vm.granule_count(),
            self.config.held_per_handle,
            granule_bytes,
        )
    }

    /// Creates, in handles of at most so many granules, what a remap is short of, if that is less
    /// than growth in place takes: which saves the mappings. No remap if it is short of 0 bytes.
    fn create(
        &mut self,
        request: Request,
        look: Look,
        to_remap_bytes: u64,
        most: u16,
    ) -> Result<Outcome, Unserved> {
        let needed_bytes = self.needed_bytes(request)?;
        let handle_bytes = u64::from(most) * self.config.granule_bytes;
        let unit = policy::growth_unit(request.bytes, handle_bytes);
        let in_place = self.space.best_growth(request.list, request.bytes, unit);
        let in_place_bytes = in_place.map_or(needed_bytes, |point| point.bytes);
        let remap_bytes = to_remap_bytes.next_multiple_of(unit);
        let is_remap = remap_bytes > 0 && remap_bytes < in_place_bytes;
        let (bytes, point) = if is_remap {
            (remap_bytes, self.space.room_for(request.list, to_remap_bytes, unit))
        } else {
            (in_place_bytes, in_place)
        };
        let Some(point) = point else {
            self.check_growth(self.vm.created_bytes(&self.vm.new_physical(bytes, 1)), look)?;
            return Ok(Outcome::Plan(self.plan_reservation(request, false)?));
        };
        let new = self.vm.new_physical(point.bytes, most);
        self.check_growth(self.vm.created_bytes(&new), look)?;
        Ok(Outcome::Plan(self.plan_growth((!is_remap).then_some(request), point, new)))
    }

    /// Before memory is created, that of other streams is waited for; with room to spare it is only
    /// seen whether they are done with it.
    fn plan_sharing(
        &mut self,
        request: Request,
        donors: &Donors,
        missing_bytes: u64,
        is_roomy: bool,
    ) -> Option<Plan> {
        if is_roomy {
            return self.plan_order(request, false);
        }
        if missing_bytes == 0 {
            return None;
        }
        let run = self.plan_order(request, true);
        run.or_else(|| {
            let waits = donors.to_wait_for(missing_bytes);
            let points = self.search(request).points_of(waits.into_iter());
            self.plan_wait(request, points, true)
        })
    }

    /// Plans to back a growth point with granules that back nothing, then with new ones; or, if
    /// that has to be done first, to unmap what it leads to.
    fn plan_growth(
        &mut self,
        request: Option<Request>,
        point: GrowthPoint,
        new: NewPhysical,
    ) -> Plan {
        let whole = self.space.blocks[point.unmapped];
        let stale = self.vm.mapped_ranges(whole.segment, &whole.range());
        if !stale.is_empty() {
            self.space.unlink_unmapped(point.unmapped);
            return Trim::unmapping(self, [(point.unmapped, stale)]);
        }
        self.space.claim_growth(point);
        self.planned_bytes += self.vm.created_bytes(&new);
        let has_large = new.creates_large_handles();
        let (steps, handles) = self.vm.plan_new(&self.space.blocks[point.unmapped].range(), new);
        Plan { steps, intent: Intent::Grow { request, point, handles, has_large } }
    }

    fn plan_reservation(
        &mut self,
        request: Request,
        is_window: bool,
    ) -> Result<Plan, RequestError> {
        let granule_bytes = self.config.granule_bytes;
        let device_bytes = if self.scarcity.of_addresses() { 0 } else { self.config.device_bytes };
        let class = self.space.list(request.list).class;
        let room = if is_window { self.vm.room_for_last_handle_bytes() } else { 0 };
        let bytes = request.bytes.checked_add(room);
        let bytes = bytes
            .and_then(|b| policy::reservation_bytes(class, b, device_bytes, granule_bytes))
            .ok_or(SizeError::TooLarge { bytes: request.requested })?;
        self.pool_of(request.list).planned_segments += 1;
        Ok(Plan {
            steps: vec![Step::Reserve { bytes, alignment: granule_bytes }],
            intent: Intent::Reserve { list: request.list, bytes, is_window },
        })
    }

    /// The pool that a free list belongs to.
    pub(super) fn pool_of(&mut self, list: ListIx) -> &mut Pool {
        self.pools.at_mut(self.space.list(list).pool)
    }

    /// Whether growth by so many bytes keeps within the limit, with what is under way.
    fn check_limit(&self, bytes: u64) -> Result<(), RequestError> {
        let (reserved_bytes, limit_bytes) = (self.growing_bytes(), self.config.limit_bytes);
        if bytes > 0 && reserved_bytes.saturating_add(bytes) > limit_bytes {
            return Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Whether growth by so many bytes keeps within the limit, and within what the device has left
    /// as far as that was seen for this request.
    fn check_growth(&self, bytes: u64, look: Look) -> Result<(), Unserved> {
        self.check_limit(bytes)?;
        let due_bytes = self.growing_bytes().saturating_add(bytes);
        if bytes == 0 || look == Look::Past || !self.headroom.is_look_due(due_bytes) {
            return Ok(());
        }
        let left_bytes = self.left_bytes();
        match look {
            Look::Fresh if bytes > left_bytes => {
                Err(RequestError::Device { bytes, left_bytes }.into())
            }
            Look::Fresh | Look::Past => Ok(()),
            Look::Due => Err(Unserved::LookFirst),
        }
    }
}
