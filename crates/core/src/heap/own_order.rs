//! The order that a program makes itself: a stream of it records an event, and another waits for
//! that, or the host does. Memory that is ordered so serves the other stream at no cost.
//!
//! Invariant: what counts as freed before an event was freed before the program recorded it. An
//! allocator that is told afterwards cannot see what other threads did meanwhile: so it looks before
//! and after, and where anything was freed or ordered in between, it knows nothing of the event.

use super::Heap;
use crate::counters::Count;
use crate::fence::Fence;
use crate::id::StreamId;
use crate::plan::Plan;
use crate::space::free_list::FreeList;

/// What was freed and ordered up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderEpoch(u64);

impl Heap {
    /// What was freed and ordered up to now, to be asked before an event is recorded.
    pub fn order_epoch(&self) -> OrderEpoch {
        let given = self.stats.classes.iter().map(|class| class.active_blocks.read().total);
        let frees = given.sum::<u64>() - self.stats.all.allocations.current();
        OrderEpoch(frees + self.streams.waits())
    }

    /// The program has recorded an event on a stream since an epoch: a fence that stands for it, if
    /// that is sure to cover no more than the event. No event of ours is recorded for it.
    pub fn note_event(&mut self, stream: StreamId, since: OrderEpoch) -> Option<Fence> {
        if self.order_epoch() != since {
            return None;
        }
        let point = self.streams.live_mut(stream).ok()?.issue();
        Some(Fence { stream, point })
    }

    /// The program has made a stream wait for an event.
    pub fn note_wait(&mut self, user: StreamId, event: Fence) {
        if event.stream.index != user.index {
            self.streams.note_own_wait(user, event);
        }
    }

    /// Plans fences before the host waits for the device: once it has, they are seen to have passed.
    /// One for each stream that has free memory, and that may be asked without its own call.
    pub fn plan_marks(&mut self) -> Vec<Plan> {
        let has_free = |list: &&FreeList| list.free_bytes > 0;
        let lists = self.space.lists().iter().filter(has_free);
        let mut streams: Vec<_> = lists.map(|list| list.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let ids = streams.into_iter().filter(|&stream| !self.streams.at(stream).is_passing);
        let ids: Vec<StreamId> = ids.map(|stream| self.streams.id_at(stream)).collect();
        ids.into_iter().filter_map(|stream| self.streams.plan_mark(stream)).collect()
    }
}
