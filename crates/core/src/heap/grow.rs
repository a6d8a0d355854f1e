//! Growth: what to ask of the driver when no free block serves.
//!
//! With room to spare memory is created at home, as far as remaps are not affordable; without it
//! granules that are free come first, as a remap, and only what is missing is created. Reserved
//! bytes plus those under way never pass the limit (one step: B19).

use super::gather::Gather;
use super::trim::{Trim, Whose};
use super::{Heap, Outcome};
use crate::error::RequestError;
use crate::fence::StreamOrder;
use crate::headroom::{self, Look, Room};
use crate::id::{ListIx, PoolId, PoolIx};
use crate::plan::{Intent, Plan, Request, Reuse, Step};
use crate::policy::{self, CrossStream, SegmentKind, SizeClass};
use crate::reservation::Reserved;
use crate::size::SizeError;
use crate::space::segment::Segment;
use crate::space::unmapped::GrowthPoint;
use crate::stats::Stats;
use crate::vm::donors::Donors;
use crate::vm::physical::NewPhysical;

/// What a remap could make of free memory for a request.
struct Remappable {
    donors: Donors,
    /// What has to be created first, in bytes.
    missing_bytes: u64,
    /// Whether it costs little enough beside growth.
    is_affordable: bool,
}

impl Heap {
    pub(super) fn grow(&mut self, request: Request) -> Result<Outcome, RequestError> {
        let outcome = match self.space.list(request.list).kind {
            SegmentKind::Plain => Outcome::Plan(self.plan_malloc(request)?),
            SegmentKind::Mapped => self.back(request)?,
        };
        self.count_choice(request, &outcome);
        Ok(outcome)
    }

    /// Counts what serves a request, and not what only prepares that.
    pub(super) fn count_choice(&mut self, request: Request, outcome: &Outcome) {
        let is_roomy = self.headroom.is_roomy(&self.stats, request.bytes);
        let Stats { with_room, under_pressure, .. } = &mut self.stats.rare;
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

    fn plan_malloc(&mut self, request: Request) -> Result<Plan, RequestError> {
        if request.reuse == Reuse::MayWait
            && let Some(plan) =
                self.plan_order(request, !self.headroom.is_roomy(&self.stats, request.bytes))
        {
            return Ok(plan);
        }
        let list = self.space.list(request.list);
        let (class, private_bytes) = (list.class, self.private_bytes(list.pool, list.class));
        let of = self.pools.at_mut(list.pool);
        let bytes = policy::plain_segment_bytes(class, request.bytes, of.is_split, private_bytes)
            .ok_or(SizeError::TooLarge { bytes: request.requested })?;
        self.headroom.check(&self.stats, bytes, Look::Past)?;
        self.headroom.plan(bytes);
        of.planned_segments += 1;
        Ok(Plan { steps: vec![Step::Malloc { bytes }], intent: Intent::Malloc { request, bytes } })
    }

    /// What a private pool holds for blocks of a class. That of the default pool serves all.
    fn private_bytes(&self, pool: PoolIx, class: SizeClass) -> Option<u64> {
        let held = || {
            let of = |segment: &Segment| self.space.list(segment.list);
            let segments = self.space.segments.iter().map(|(_, segment)| segment);
            let own =
                segments.filter(|segment| of(segment).pool == pool && of(segment).class == class);
            own.map(|segment| segment.bytes).sum()
        };
        (pool != PoolId::DEFAULT.index).then(held)
    }

    /// Backs a request: with granules that are free, as far as there are enough of them, else with
    /// new ones.
    fn back(&mut self, request: Request) -> Result<Outcome, RequestError> {
        let needed_bytes = request.bytes.next_multiple_of(self.vm.granule_bytes());
        if let Some(plan) = plan_idle_growth(self, request) {
            return Ok(Outcome::Plan(plan));
        }
        let is_roomy = self.headroom.is_roomy(&self.stats, needed_bytes);
        let is_open = self.pools.is_open(self.space.list(request.list));
        let class = self.space.list(request.list).class;
        let most = self.headroom.handle_granules(&self.stats, class, request.bytes, is_roomy);
        let (unit, granules) = (self.vm.granule_bytes(), needed_bytes / self.vm.granule_bytes());
        let private = || policy::private_handle_granules(most, granules, unit);
        let most = if is_open { most } else { private() };
        let Remappable { donors, missing_bytes, is_affordable } =
            self.remappable(request, needed_bytes, is_roomy, most);
        if missing_bytes == 0 && is_affordable {
            if let Some(outcome) = self.remap(request, &donors) {
                return Ok(outcome);
            }
            // Where all but small reservations are refused, memory is created rather than a small
            // range reserved for one remap.
            let lacks_windows = self.search(request).unmapped_window().is_none();
            if lacks_windows && self.headroom.room != Room::Needed {
                return Ok(Outcome::Plan(self.plan_reservation(request, true)?));
            }
        }
        if is_roomy && let Some(run) = self.search(request).roomy_run() {
            return Ok(Outcome::Granted(self.take_run(request, run)));
        }
        if request.reuse == Reuse::MayWait
            && let Some(plan) = self.plan_sharing(request, &donors, missing_bytes, is_roomy)
        {
            return Ok(Outcome::Plan(plan));
        }
        // What is created beside memory in use would not be remapped, but in its own private pool.
        let may_remap = missing_bytes < needed_bytes
            && is_affordable
            && (!is_open || request.reuse != Reuse::OwnStream);
        let to_remap_bytes = if may_remap { missing_bytes } else { 0 };
        let bytes = if is_affordable { missing_bytes } else { needed_bytes };
        let given_up = Gather { bytes, beyond_bytes: 0, whose: Whose::GivenUp };
        if let Some(plan) = given_up.plan(self, request) {
            return Ok(Outcome::Plan(plan));
        }
        let created = self.create(request, to_remap_bytes, most);
        if headroom::is_too_much(&created, request.look) && most > 1 {
            return self.create(request, to_remap_bytes, 1);
        }
        created
    }

    /// What a remap could make of free memory for a request, for which new handles would get so
    /// many granules at most.
    fn remappable(
        &self,
        request: Request,
        needed_bytes: u64,
        is_roomy: bool,
        most: u16,
    ) -> Remappable {
        let search = self.search(request);
        let is_private = !self.pools.is_open(self.space.list(request.list));
        let to_take = |donors: Donors| {
            let (handles, missing_bytes) = self.vm.to_take(&search.fresh(), &donors);
            (donors, handles, missing_bytes)
        };
        let own = is_private.then(|| to_take(search.private_donors()));
        // What a private pool borrows stays in its window, and what is its own goes home. A window
        // with both would serve the same request but once.
        let others = || to_take(search.donors(false));
        let (donors, handles, missing_bytes) = match own {
            None => others(),
            Some(own @ (_, _, 0)) => own,
            Some(own) => match others() {
                others @ (_, _, 0) => others,
                _ if own.2 < needed_bytes => own,
                (donors, handles, _) => (donors, handles, needed_bytes),
            },
        };
        // What a private pool has too much serves nobody else.
        let is_affordable = is_private || !is_roomy || {
            // What growth makes beside is not saved: the next requests would grow by it.
            let unit = self.vm.granule_bytes();
            let in_place = self.space.best_growth(request.list, request.bytes, unit);
            let in_place_bytes = in_place.map_or(needed_bytes, |point| point.bytes);
            let saved = in_place_bytes.saturating_sub(missing_bytes) / self.vm.granule_bytes();
            let created = missing_bytes.div_ceil(u64::from(most) * self.vm.granule_bytes());
            policy::is_worth_mapping(handles + created, saved.div_ceil(u64::from(most)), saved)
                || search.idle_window(&donors, 1).is_some()
        };
        Remappable { donors, missing_bytes, is_affordable }
    }

    /// Creates, in handles of at most so many granules, what a remap is short of, if that is less
    /// than growth in place takes: which saves the mappings. No remap if it is short of 0 bytes.
    fn create(
        &mut self,
        request: Request,
        to_remap_bytes: u64,
        most: u16,
    ) -> Result<Outcome, RequestError> {
        let needed_bytes = request.bytes.next_multiple_of(self.vm.granule_bytes());
        let handle_bytes = u64::from(most) * self.vm.granule_bytes();
        let held_bytes = self.stats.all.reserved_bytes.current;
        // What a private pool has too much serves nobody else.
        let is_open = self.pools.is_open(self.space.list(request.list));
        let unit = match is_open {
            true => policy::growth_unit(handle_bytes, held_bytes),
            false => self.vm.granule_bytes(),
        };
        let in_place = self.space.best_growth(request.list, request.bytes, unit);
        let in_place_bytes = in_place.map_or(needed_bytes, |point| point.bytes);
        let is_remap = to_remap_bytes > 0 && to_remap_bytes < in_place_bytes;
        let (bytes, point) = if is_remap {
            // It fills just what handles leave: a larger piece might not fit.
            let unit = self.vm.granule_bytes();
            (to_remap_bytes, self.space.room_for(request.list, to_remap_bytes, unit))
        } else {
            (in_place_bytes, in_place)
        };
        let Some(point) = point else {
            let created_bytes = self.vm.new_physical(bytes, 0, 1).created_bytes;
            self.headroom.check(&self.stats, created_bytes, request.look)?;
            return Ok(Outcome::Plan(self.plan_reservation(request, false)?));
        };
        // The next block begins where this one ends, and would hold up a whole handle.
        let end = self.space.start_of(point) + request.bytes;
        let is_shared = !is_open && !is_remap && !end.is_multiple_of(self.vm.granule_bytes());
        let new = self.vm.new_physical(point.bytes, 0, most).with_last_alone(is_shared);
        self.headroom.check(&self.stats, new.created_bytes, request.look)?;
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
        if missing_bytes == 0 && !is_roomy {
            return None;
        }
        let run = self.plan_order(request, !is_roomy);
        run.or_else(|| {
            let waits = donors.to_wait_for(missing_bytes);
            let search = self.search(request);
            let (user, may_wait) = (search.user, !is_roomy && search.may_wait());
            self.streams.plan_wait(&self.space, user, &waits, may_wait)
        })
    }

    /// Plans for the request's stream to wait for those that have a run for it, if it may.
    fn plan_order(&mut self, request: Request, may_wait: bool) -> Option<Plan> {
        if self.config().cross_stream == CrossStream::Never {
            return None;
        }
        let search = self.search(request);
        let run = search.run(StreamOrder::Unrecorded)?;
        let blocks = search.unordered(run);
        let (user, may_wait) = (search.user, may_wait && search.may_wait());
        self.streams.plan_wait(&self.space, user, &blocks, may_wait)
    }

    /// Plans to back a growth point with granules that back nothing, then with new ones; or, if
    /// that has to be done first, to unmap what it leads to.
    pub(super) fn plan_growth(
        &mut self,
        request: Option<Request>,
        point: GrowthPoint,
        new: NewPhysical,
    ) -> Plan {
        let stale = self.vm.under(&self.space.blocks[point.unmapped]).mapped_ranges();
        if !stale.is_empty() {
            self.space.unlink_unmapped(point.unmapped);
            return Trim::unmapping(self, [(point.unmapped, stale)]);
        }
        self.space.claim_growth(point);
        let (created_bytes, has_large) = (new.created_bytes, new.creates_large_handles());
        self.headroom.plan(created_bytes);
        let steps = self.vm.plan_growth(&self.space.blocks[point.unmapped], new);
        Plan { steps, intent: Intent::Grow { request, point, created_bytes, has_large } }
    }

    fn plan_reservation(
        &mut self,
        request: Request,
        is_window: bool,
    ) -> Result<Plan, RequestError> {
        let class = self.space.list(request.list).class;
        let reserved = reserved_addresses(self, request.list, is_window);
        let room = if is_window { policy::LAST_HANDLE_BEYOND_BYTES } else { 0 };
        let bytes = request.bytes.checked_add(room);
        let bytes = bytes
            .and_then(|bytes| self.headroom.reservation_bytes(class, bytes, reserved))
            .ok_or(SizeError::TooLarge { bytes: request.requested })?;
        Ok(self.plan_addresses(request.list, bytes, is_window))
    }

    /// Plans to reserve so many bytes of addresses for a list.
    pub(super) fn plan_addresses(&mut self, list: ListIx, bytes: u64, is_window: bool) -> Plan {
        self.pools.at_mut(self.space.list(list).pool).planned_segments += 1;
        let steps = vec![Step::Reserve { bytes, alignment: self.vm.granule_bytes() }];
        Plan { steps, intent: Intent::Reserve { list, bytes, is_window } }
    }
}

/// Plans to back a request in place with handles that back nothing, if they suffice, or to
/// reserve addresses for that. Of a large one the rest is free beside it, where others may have
/// that.
fn plan_idle_growth(heap: &mut Heap, request: Request) -> Option<Plan> {
    if heap.vm.figures().idle_bytes == 0 {
        return None;
    }
    let unit = heap.vm.granule_bytes();
    let point = heap.space.best_growth(request.list, request.bytes, unit);
    let list = heap.space.list(request.list);
    let may_share = list.class == SizeClass::Large && heap.pools.is_open(list);
    let room_bytes =
        point.map_or(u64::MAX, |point| heap.space.blocks[point.unmapped].bytes - point.bytes);
    let beyond_bytes = if may_share { room_bytes } else { 0 };
    let bytes = point.map_or(request.bytes.next_multiple_of(unit), |point| point.bytes);
    let new = heap.vm.new_physical(bytes, beyond_bytes, 1);
    if new.created_bytes > 0 {
        return None;
    }
    match point {
        Some(point) => {
            let point = GrowthPoint { bytes: new.bytes, ..point };
            Some(heap.plan_growth(Some(request), point, new))
        }
        // Where addresses are refused, what is free serves first.
        None if heap.headroom.room == Room::Needed => None,
        None => heap.plan_reservation(request, false).ok(),
    }
}

/// The addresses that are reserved, and those of a list for homes or for windows.
fn reserved_addresses(heap: &Heap, list: ListIx, is_window: bool) -> Reserved {
    let mut reserved = Reserved::default();
    for (_, segment) in heap.space.segments.iter() {
        let of = heap.space.list(segment.list);
        if of.kind == SegmentKind::Plain || heap.pools.is_growing(of) {
            continue;
        }
        reserved.all_bytes += segment.bytes;
        if segment.list == list && segment.is_window == is_window {
            reserved.own_bytes += segment.bytes;
        }
    }
    reserved
}
