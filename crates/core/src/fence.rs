//! Fences and the streams that reuse them.
//!
//! A fence is "stream S has reached point N". Points count the fences issued on a stream, so a
//! fence covers everything queued before it was issued, and passing one passes all before it.
//! Keeps I9: a pending block waits for at least one fence that has not passed. Each stream has its
//! own queue of waiting blocks, so a slow stream never holds up another's.

use std::collections::VecDeque;

use crate::error::StreamError;
use crate::id::{StreamId, StreamIx, next_generation};
use crate::space::block::BlockIndex;
use crate::uses::UseTable;

/// "The stream has reached this point."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The stream.
    pub stream: StreamId,
    /// The point: the number of the fence among those issued on the stream, from 1.
    pub point: u64,
}

/// How far each stream had come at some moment, by its position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points(Vec<u64>);

/// One stream as the heap sees it.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    pub(crate) generation: u64,
    pub(crate) is_retired: bool,
    /// Nobody says when it ends, so that a fence may be recorded only by a call that brings it.
    pub(crate) is_passing: bool,
    /// Fences issued so far.
    pub(crate) issued: u64,
    /// The last point known to be recorded on the device.
    pub(crate) recorded: u64,
    /// The last point known to be complete.
    pub(crate) passed: u64,
    /// How many frees there were in all when a fence was last recorded for an event of the program.
    pub(crate) frees_at_event: u64,
    /// Points of other streams that this stream was made to wait for.
    seen: Vec<Fence>,
    /// Pending blocks by the point they wait for, in order.
    waiting: VecDeque<(u64, BlockIndex)>,
}

impl StreamState {
    /// The last point of another stream that this one was made to wait for; 0 if none.
    fn seen_of(&self, stream: StreamId) -> u64 {
        let seen = self.seen.iter().find(|seen| seen.stream == stream);
        seen.map_or(0, |seen| seen.point)
    }

    /// Remembers that the stream was made to wait for the fence. Of streams that succeeded one
    /// another only the last counts: the work of those before it is complete.
    pub(crate) fn note_seen(&mut self, fence: Fence) {
        match self.seen.iter_mut().find(|seen| seen.stream.index == fence.stream.index) {
            Some(seen) => *seen = std::cmp::max_by_key(*seen, fence, |f| (f.stream, f.point)),
            None => self.seen.push(fence),
        }
    }

    /// The first point that covers a block freed now: the next fence to be issued. After
    /// retirement nothing new is queued, so the last fence covers it already.
    #[inline]
    pub(crate) const fn free_after(&self) -> u64 {
        if self.is_retired { self.issued } else { self.issued + 1 }
    }

    /// Issues the next fence's point.
    pub(crate) const fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// The point of a fence that covers all that is queued: after retirement, of the last one.
    pub(crate) const fn issue_last(&mut self) -> u64 {
        if self.is_retired { self.issued } else { self.issue() }
    }

    /// Queues a block until the point is passed.
    pub(crate) fn enqueue(&mut self, point: u64, block: BlockIndex) {
        let at = self.waiting.partition_point(|&(queued, _)| queued <= point);
        self.waiting.insert(at, (point, block));
    }

    /// The next block whose point has passed.
    pub(crate) fn dequeue(&mut self) -> Option<BlockIndex> {
        if self.waiting.front()?.0 > self.passed {
            return None;
        }
        self.waiting.pop_front().map(|(_, block)| block)
    }

    /// The point that the `n`th of the blocks waits for, from 1.
    pub(crate) fn nth_waiting(&self, n: usize) -> Option<u64> {
        self.waiting.get(n - 1).map(|&(point, _)| point)
    }

    /// Blocks that wait, with their points.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u64, BlockIndex)> + '_ {
        self.waiting.iter().copied()
    }
}

/// All streams of a heap.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: Vec<StreamState>,
    /// Who uses a block beside its own stream.
    pub(crate) uses: UseTable,
}

impl Streams {
    /// Adds a stream. A retired stream whose work is complete is succeeded: the new stream takes
    /// its place and its free blocks, which need no fence any more.
    pub(crate) fn add(&mut self) -> StreamId {
        let ended = self
            .table
            .iter()
            .position(|s| s.is_retired && s.passed == s.issued && s.waiting.is_empty());
        if let Some(index) = ended {
            let stream = &mut self.table[index];
            stream.generation = next_generation();
            stream.is_retired = false;
            stream.is_passing = false;
            stream.seen.clear();
            return StreamId { index: StreamIx(index as u32), generation: stream.generation };
        }
        assert!(self.table.len() < u32::MAX as usize, "more streams than indices");
        let generation = next_generation();
        self.table.push(StreamState { generation, ..StreamState::default() });
        StreamId { index: StreamIx((self.table.len() - 1) as u32), generation }
    }

    /// The stream with this id, if it was not retired.
    #[inline]
    pub(crate) fn live(&self, id: StreamId) -> Result<&StreamState, StreamError> {
        match self.table.get(id.index()) {
            Some(s) if s.generation == id.generation && !s.is_retired => Ok(s),
            _ => Err(StreamError::Unknown { stream: id }),
        }
    }

    pub(crate) fn live_mut(&mut self, id: StreamId) -> Result<&mut StreamState, StreamError> {
        self.live(id)?;
        Ok(&mut self.table[id.index()])
    }

    /// The stream a fence belongs to, retired or not; `None` once it was succeeded.
    pub(crate) fn of_fence(&mut self, fence: Fence) -> Option<&mut StreamState> {
        let stream = self.table.get_mut(fence.stream.index())?;
        (stream.generation == fence.stream.generation).then_some(stream)
    }

    /// Whether all work of a stream is complete, and none can follow.
    pub(crate) fn is_over(&self, stream: StreamId) -> bool {
        let state = self.at(stream.index);
        let is_succeeded = state.generation != stream.generation;
        is_succeeded || (state.is_retired && state.passed == state.issued)
    }

    /// The fence that a use on a stream is over with, and whether it is to be recorded first;
    /// `None` if the use is over.
    pub(crate) fn fence_of_use(&mut self, stream: StreamId) -> Option<(Fence, bool)> {
        if self.is_over(stream) {
            return None;
        }
        let state = self.at_mut(stream.index);
        Some((Fence { stream, point: state.issue_last() }, !state.is_retired))
    }

    #[inline]
    pub(crate) fn at(&self, index: StreamIx) -> &StreamState {
        &self.table[index.index()]
    }

    pub(crate) fn at_mut(&mut self, index: StreamIx) -> &mut StreamState {
        &mut self.table[index.index()]
    }

    /// The id of the stream at a position, retired or not.
    pub(crate) fn id_at(&self, index: StreamIx) -> StreamId {
        StreamId { index, generation: self.at(index).generation }
    }

    /// Their positions.
    pub(crate) fn indices(&self) -> impl Iterator<Item = StreamIx> + use<> {
        (0..self.table.len() as u32).map(StreamIx)
    }

    /// Whether the host knows that a stream has passed a point.
    #[inline]
    pub(crate) fn has_passed(&self, stream: StreamIx, point: u64) -> bool {
        point <= self.at(stream).passed
    }

    /// How far each stream has come. What is freed from now on is free after a later point.
    pub(crate) fn points(&mut self) -> Points {
        // Fences that are never recorded: those after them cover them.
        Points(self.table.iter_mut().map(StreamState::issue_last).collect())
    }

    /// Whether what is free after a point of a stream was so at some moment.
    pub(crate) fn is_before(stream: StreamIx, point: u64, moment: &Points) -> bool {
        moment.0.get(stream.index()).is_some_and(|&then| point <= then)
    }

    /// What it takes for memory that is free after a point of one stream to be used on another.
    pub(crate) fn order(&self, owner: StreamIx, point: u64, user: StreamIx) -> StreamOrder {
        self.order_between(owner, user).of(point)
    }

    /// What one stream knows of another.
    pub(crate) fn order_between(&self, owner: StreamIx, user: StreamIx) -> OrderBetween {
        let state = self.at(owner);
        OrderBetween {
            passed: state.passed,
            seen: self.at(user).seen_of(self.id_at(owner)),
            recorded: state.recorded,
            is_mute: state.is_retired || state.is_passing,
            is_foreign: owner != user,
        }
    }

    /// A fence was recorded on the device.
    pub(crate) fn note_recorded(&mut self, fence: Fence) {
        if let Some(stream) = self.of_fence(fence) {
            assert!(fence.point <= stream.issued, "a fence is recorded that was never issued");
            stream.recorded = stream.recorded.max(fence.point);
        }
    }

    /// A stream waits for others now: what they freed before is usable on it.
    pub(crate) fn note_waited(&mut self, user: StreamId, fences: &[Fence]) {
        for &fence in fences {
            self.note_recorded(fence);
            if let Ok(stream) = self.live_mut(user) {
                stream.note_seen(fence);
            }
        }
    }
}

/// What one stream knows of another, to be asked of many points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderBetween {
    /// The last point known to be complete.
    pub(crate) passed: u64,
    /// The last point that it was made to wait for; 0 if none.
    seen: u64,
    /// The last point known to be recorded.
    recorded: u64,
    /// The other is gone, or may be.
    is_mute: bool,
    /// They are two.
    pub(crate) is_foreign: bool,
}

impl OrderBetween {
    /// What it takes for memory that is free after a point.
    #[inline]
    pub(crate) fn of(self, point: u64) -> StreamOrder {
        if point <= self.passed.max(self.seen) {
            StreamOrder::Ordered
        } else if point <= self.recorded {
            StreamOrder::Recorded
        } else if self.is_mute {
            StreamOrder::Never
        } else {
            StreamOrder::Unrecorded
        }
    }
}

/// How a block free on one stream can be ordered before its use on another, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamOrder {
    /// Its last use is complete, or the other stream waits for it already.
    Ordered,
    /// A fence that covers it is recorded: to be waited for.
    Recorded,
    /// A fence must be recorded first, at the end of its stream's queue.
    Unrecorded,
    /// Its stream is gone, or may be, and so is the chance to record.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(streams: &mut Streams, id: StreamId) {
        let stream = streams.live_mut(id).unwrap();
        stream.passed = stream.issue();
        stream.is_retired = true;
    }

    #[test]
    fn b29_blocks_leave_in_the_order_of_their_points() {
        let mut stream = StreamState::default();
        for (point, block) in [(3, 30), (1, 10), (2, 20), (1, 11)] {
            stream.enqueue(point, BlockIndex(block));
        }
        assert_eq!(stream.dequeue(), None);
        stream.passed = 2;
        let left: Vec<u32> = std::iter::from_fn(|| stream.dequeue()).map(|b| b.0).collect();
        assert_eq!(left, [10, 11, 20]);
        assert_eq!(stream.waiting().collect::<Vec<_>>(), [(3, BlockIndex(30))]);
    }

    #[test]
    fn a_free_block_waits_for_the_next_fence_or_the_last() {
        let mut stream = StreamState::default();
        assert_eq!(stream.free_after(), 1);
        assert_eq!((stream.issue(), stream.free_after()), (1, 2));
        stream.is_retired = true;
        assert_eq!(stream.free_after(), 1);
    }

    #[test]
    fn b47_a_stream_is_succeeded_only_when_nothing_waits_for_it() {
        let mut streams = Streams::default();
        let first = streams.add();
        let second = streams.add();
        ended(&mut streams, first);
        streams.at_mut(first.index).enqueue(1, BlockIndex(0));
        let third = streams.add();
        assert_eq!(third.index(), 2);
        assert_eq!(streams.at_mut(first.index).dequeue(), Some(BlockIndex(0)));
        let successor = streams.add();
        assert!(successor.index == first.index && successor.generation > first.generation);
        assert!(streams.live(first).is_err() && streams.live(successor).is_ok());
        assert!(streams.live(second).is_ok());
        assert!(streams.of_fence(Fence { stream: first, point: 1 }).is_none());
        assert!(streams.of_fence(Fence { stream: successor, point: 1 }).is_some());
        assert_eq!((streams.id_at(first.index), streams.table.len()), (successor, 3));
    }

    #[test]
    fn waits_are_remembered_once_for_each_position() {
        let mut streams = Streams::default();
        let old = streams.add();
        ended(&mut streams, old);
        let new = streams.add();
        let mut user = StreamState::default();
        let fence = |stream, point| Fence { stream, point };
        user.note_seen(fence(old, 5));
        user.note_seen(fence(old, 3));
        assert_eq!((user.seen_of(old), user.seen_of(new)), (5, 0));
        user.note_seen(fence(new, 2));
        user.note_seen(fence(old, 9));
        assert_eq!((user.seen_of(new), user.seen_of(old)), (2, 0));
        assert_eq!(user.seen.len(), 1);
    }
}
