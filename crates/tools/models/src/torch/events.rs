//! Events in flight, and the blocks that wait for them.
//!
//! Invariant: each queue is emptied from the front only, so an event that has not passed holds back
//! all behind it.

use std::collections::VecDeque;

use drystone_driver::Event;

use super::block::BlockId;

/// Events in flight and events to use again.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// By dense stream number.
    queues: Vec<VecDeque<(Event, BlockId)>>,
    spare: Vec<Event>,
    in_flight: usize,
}

impl Events {
    pub(super) fn take_spare(&mut self) -> Option<Event> {
        self.spare.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// How many streams had events in flight, by dense number.
    pub(super) fn streams(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn front(&self, stream: usize) -> Option<Event> {
        self.queues.get(stream)?.front().map(|(event, _)| *event)
    }

    /// A block waits for an event on a stream.
    pub(super) fn push(&mut self, stream: u16, event: Event, block: BlockId) {
        let stream = usize::from(stream);
        if self.queues.len() <= stream {
            self.queues.resize_with(stream + 1, VecDeque::new);
        }
        self.queues[stream].push_back((event, block));
        self.in_flight += 1;
    }

    /// The oldest event of a stream has passed; returns the block that waited for it.
    pub(super) fn pop(&mut self, stream: usize) -> Option<BlockId> {
        let (event, block) = self.queues.get_mut(stream)?.pop_front()?;
        self.spare.push(event);
        self.in_flight -= 1;
        Some(block)
    }

    /// Every block that waits, once per event.
    pub(super) fn waiting(&self) -> impl Iterator<Item = BlockId> {
        self.queues.iter().flatten().map(|(_, block)| *block)
    }
}
