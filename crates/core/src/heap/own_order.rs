//! The order that a program makes itself: a stream of it records an event, and another waits for
//! that, or the host waits for the device. Memory that is ordered so serves the other stream.
//!
//! Invariant: only fences of ours count. With an event of the program a fence is recorded, and with
//! its wait that fence is waited for, which stalls nobody who waits anyway. The program's events
//! themselves prove nothing: other code may have recorded one again, and what another thread freed
//! meanwhile is not covered.

use super::Heap;
use crate::counters::Count;
use crate::fence::{Fence, StreamOrder};
use crate::id::{StreamId, StreamIx};
use crate::plan::{Intent, Plan, Step};
use crate::space::free_list::FreeList;

impl Heap {
    /// The program has recorded an event on a stream: a fence that stands for it, and how that is
    /// recorded, unless nothing was freed since the last. `None` if the stream has no free memory.
    pub fn plan_event(&mut self, stream: StreamId) -> Option<(Fence, Option<Plan>)> {
        let has_free = |list: &FreeList| list.stream == stream.index && list.free_bytes > 0;
        if !self.space.lists().iter().any(has_free) {
            return None;
        }
        let (given, _) = self.stats.turnover();
        let frees = given - self.stats.all.allocations.current();
        let state = self.streams.live_mut(stream).ok()?;
        if state.frees_at_event == frees && state.recorded > 0 {
            return Some((Fence { stream, point: state.recorded }, None));
        }
        state.frees_at_event = frees;
        let plan = self.streams.plan_mark(stream).ok()?;
        let point = self.streams.at(stream.index).issued;
        Some((Fence { stream, point }, Some(plan)))
    }

    /// The program has made a stream wait for an event: plans to make it wait for the fence that
    /// stands for it. `None` if it does so already, or the fence has passed.
    pub fn plan_event_wait(&mut self, user: StreamId, event: Fence) -> Option<Plan> {
        self.streams.live(user).ok()?;
        let is_current = self.streams.of_fence(event).is_some();
        let order = self.streams.order(event.stream.index, event.point, user.index);
        if !is_current || event.stream.index == user.index || order == StreamOrder::Ordered {
            return None;
        }
        let steps = vec![Step::Wait { stream: user, fence: event }];
        Some(Plan { steps, intent: Intent::Order { user, fences: vec![event] } })
    }

    /// Plans fences before the host waits for the device: once it has, they are seen to have
    /// passed. One for each stream that has free memory, and may be asked without its own call.
    pub fn plan_marks(&mut self) -> Vec<Plan> {
        let has_free = |list: &&FreeList| list.free_bytes > 0;
        let lists = self.space.lists().iter().filter(has_free);
        let mut streams: Vec<StreamIx> = lists.map(|list| list.stream).collect();
        streams.sort_by_cached_key(|stream| u64::from(stream.0));
        streams.dedup();
        streams.retain(|&stream| !self.streams.at(stream).is_passing);
        let ids: Vec<StreamId> = streams.into_iter().map(|ix| self.streams.id_at(ix)).collect();
        ids.into_iter().flat_map(|stream| self.streams.plan_mark(stream)).collect()
    }
}
