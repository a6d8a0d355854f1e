//! A try of a heap: a request, and a plan after another until it is served.
//!
//! Invariant: each answer to a failed plan is given once in a try, or leaves less to be planned, so
//! that every try ends.

use super::{Failure, Miss, Next, Refusal, Stage};
use crate::error::RequestError;
use crate::headroom::Look;
use crate::heap::{Heap, Outcome};
use crate::plan::{self, Committed, Intent, Plan, Reuse, Step};
use crate::policy;
use crate::state_machine::StateMachine as _;

/// What a failed plan was short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The order of another stream, which is gone or captured.
    Order,
    /// Addresses, of which the heap asks for fewer next time.
    Addresses,
    /// The driver refuses access with memory to spare where its table of mappings is full. Growth
    /// in large handles is asked for in single granules next time.
    Mappings { has_large: bool },
    /// Memory in large handles; next time the heap asks for one granule at a time, and no more
    /// than needed.
    LargeHandles,
    /// Memory in single granules. Next time the heap goes by what it was given.
    Granules,
    /// Anything else.
    Other,
}

impl Lack {
    fn of(plan: &Plan, failed_at: usize) -> Self {
        match (&plan.intent, plan.steps.get(failed_at)) {
            (Intent::Order { .. }, _) => Lack::Order,
            (Intent::Reserve { .. }, _) => Lack::Addresses,
            (intent, Some(Step::SetAccess { .. })) => {
                Lack::Mappings { has_large: matches!(intent, Intent::Grow { has_large: true, .. }) }
            }
            (Intent::Grow { has_large: true, .. }, Some(Step::Create { .. })) => Lack::LargeHandles,
            (Intent::Grow { .. }, Some(Step::Create { .. })) => Lack::Granules,
            _ => Lack::Other,
        }
    }
}

impl Heap {
    /// What to do next for a miss. A plan is handed back by [`carried_out`](Self::carried_out).
    pub fn next<E>(&mut self, miss: &mut Miss<E>) -> Next<Plan, E> {
        loop {
            if let Stage::LacksMappings { has_large, .. } = miss.stage {
                if !miss.has_evicted
                    && let Some(plan) = self.plan_eviction()
                {
                    miss.evict();
                    return Next::CarryOut(plan);
                }
                if has_large {
                    miss.stage = Stage::Trying;
                }
            }
            if let Some(free_bytes) = miss.seen_free_bytes.take() {
                // Room is kept for what is in the host's memory.
                let free_bytes = free_bytes.saturating_sub(self.vm.figures().on_host_bytes);
                self.headroom.note_look(&mut self.stats, free_bytes);
            }
            let is_host = self.config().is_integrated;
            if is_host && matches!(miss.stage, Stage::Trying) && !miss.has_looked {
                return Next::LookAtDevice;
            }
            let is_looking = matches!(miss.stage, Stage::Trying) && miss.looks > 0;
            if is_looking && !self.have_passed(&miss.recorded) {
                // Those of idle streams pass within microseconds.
                miss.looks -= 1;
                return Next::CollectFences;
            }
            let most_bytes = self.headroom.most_for_one_bytes(&self.stats, miss.look);
            let own_bytes = own_bytes_beside_others(self, miss);
            if let Some(next) = miss.go_on(&mut self.stats, most_bytes, own_bytes) {
                return next;
            }
            match self.request_by(miss.pool, miss.stream, miss.bytes, miss.reuse, miss.look) {
                Ok(Outcome::Granted(granted)) => return Next::Granted(granted),
                Ok(Outcome::Plan(plan))
                    if miss.may_make_room() && takes_room_for_moves(self, &plan) =>
                {
                    let lacks_memory = self.headroom.lacks_memory;
                    self.abandon(plan, 0);
                    // It was not begun.
                    self.headroom.lacks_memory = lacks_memory;
                    miss.has_made_room = true;
                    return Next::Compact;
                }
                Ok(Outcome::Plan(plan)) => {
                    if matches!(plan.intent, Intent::Order { .. }) {
                        // Once in a try: whether it succeeds or the other stream is gone or
                        // captured, what is not ordered then is left alone.
                        miss.reuse = Reuse::Ordered;
                    }
                    return Next::CarryOut(plan);
                }
                Err(RequestError::Device { .. }) if miss.look == Look::Due => {
                    return Next::LookAtDevice;
                }
                Err(error) => miss.stage = Stage::Refused(error.into()),
            }
        }
    }

    /// Takes back a plan for a miss: done, with the address that a `Reserve` or `Malloc` step gave,
    /// or failed, and undone as far as that went.
    pub fn carried_out<E>(
        &mut self,
        miss: &mut Miss<E>,
        plan: Plan,
        done: Result<u64, Failure<E>>,
    ) {
        match done {
            Ok(address) => {
                miss.has_evicted |= matches!(miss.stage, Stage::Evicting(_));
                if matches!(&plan.intent, Intent::Order { fences, .. } if fences.is_empty()) {
                    miss.recorded = plan::recorded(&plan.steps).collect();
                    miss.looks = policy::looks(miss.bytes, self.config().granule_bytes);
                }
                miss.stage = match self.commit(plan, address) {
                    Committed::Granted(granted) => Stage::Served(granted),
                    Committed::Recorded => Stage::Recorded,
                    Committed::Prepared | Committed::Done => Stage::Trying,
                };
            }
            Err(failure) => {
                let lack = Lack::of(&plan, failure.failed_at);
                // What is undone was given all the same.
                let undone = failure.in_effect.min(failure.failed_at)..failure.failed_at;
                let given_bytes = plan::created(&plan.steps[undone]).sum();
                let room = self.headroom.room;
                self.abandon(plan, failure.in_effect);
                let is_news = match lack {
                    Lack::Granules if failure.is_out_of_memory => {
                        self.headroom.note_refused(&self.stats, given_bytes)
                    }
                    Lack::Addresses => self.headroom.room != room,
                    _ => false,
                };
                miss.fail(lack, is_news, failure);
            }
        }
    }
}

/// How many unused bytes serve a refused request where they are, if others would give what it
/// lacks beside them.
fn own_bytes_beside_others<E>(heap: &Heap, miss: &Miss<E>) -> Option<u64> {
    let refusal = match &miss.stage {
        Stage::Refused(refusal) | Stage::Climbing(_, refusal) => refusal,
        _ => return None,
    };
    let offered_bytes = heap.headroom.offered_bytes();
    let is_fresh = miss.look == Look::Fresh && matches!(refusal, Refusal::Device);
    if !is_fresh || !miss.asks_neighbours || offered_bytes == 0 {
        return None;
    }
    let own_bytes = heap.unused_bytes();
    let at_hand_bytes = own_bytes.saturating_add(heap.headroom.told_left_bytes(&heap.stats));
    let lacking_bytes = miss.bytes.checked_sub(at_hand_bytes)?;
    (1..=offered_bytes).contains(&lacking_bytes).then_some(own_bytes)
}

/// Whether a plan creates memory that moves need as room, or while some is to come back from the
/// host.
fn takes_room_for_moves(heap: &Heap, plan: &Plan) -> bool {
    let creates = matches!(plan.intent, Intent::Grow { created_bytes, .. } if created_bytes > 0);
    let left_bytes = heap.headroom.left_bytes(&heap.stats);
    let is_short = left_bytes < policy::ROOM_FOR_MOVES_BYTES || heap.vm.figures().on_host_bytes > 0;
    creates && heap.config().remaps && is_short
}

impl<E> Miss<E> {
    /// Mappings are about to be unmapped.
    fn evict(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Trying) {
            Stage::LacksMappings { refusal, .. } => Stage::Evicting(refusal),
            stage => stage,
        };
    }

    /// A plan failed, for lack of this. `is_news`: less is left than was known, or asked for from
    /// now on.
    fn fail(&mut self, lack: Lack, is_news: bool, failure: Failure<E>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Trying) {
            // Why there was something to evict, counts.
            Stage::Evicting(refusal) => Stage::Refused(refusal),
            _ => match lack {
                Lack::Order | Lack::LargeHandles => Stage::Trying,
                Lack::Addresses if is_news || !self.was_refused_addresses => {
                    self.was_refused_addresses = true;
                    Stage::Trying
                }
                Lack::Granules if is_news && !self.was_refused_granules => {
                    self.was_refused_granules = true;
                    Stage::Trying
                }
                Lack::Mappings { has_large } => {
                    Stage::LacksMappings { refusal: failure.into_refusal(), has_large }
                }
                _ => Stage::Refused(failure.into_refusal()),
            },
        };
    }
}
