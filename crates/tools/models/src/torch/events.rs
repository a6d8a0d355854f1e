//! Blocks used on other streams: events recorded at their free, asked at every later request.
//!
//! Invariants: a block waits in its streams' queues exactly `pending_events` times; each queue is
//! emptied from the front only, so an event that has not passed holds back all behind it.

use std::collections::VecDeque;

use drystone_driver::{Driver, DriverError, Event};

use super::allocator::Allocator;
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
    fn push(&mut self, stream: u16, event: Event, block: BlockId) {
        let stream = usize::from(stream);
        if self.queues.len() <= stream {
            self.queues.resize_with(stream + 1, VecDeque::new);
        }
        self.queues[stream].push_back((event, block));
        self.in_flight += 1;
    }

    fn pop(&mut self, stream: usize) -> Option<BlockId> {
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

impl Allocator {
    /// Records one event on each stream that uses the block.
    pub(super) fn defer_free(
        &mut self,
        driver: &dyn Driver,
        id: BlockId,
    ) -> Result<(), DriverError> {
        for stream in std::mem::take(&mut self.blocks[id].uses) {
            let event = match self.events.spare.pop() {
                Some(event) => event,
                None => driver.create_event()?,
            };
            driver.record(event, self.device_stream(stream))?;
            self.blocks[id].pending_events += 1;
            self.events.push(stream, event, id);
        }
        Ok(())
    }

    /// Frees the blocks whose events have passed.
    pub(super) fn process_events(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        if self.events.in_flight == 0 {
            return Ok(());
        }
        for stream in 0..self.events.queues.len() {
            while let Some((event, _)) = self.events.queues[stream].front() {
                if !driver.query(*event)? {
                    break;
                }
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    /// Waits for every event in flight and frees what waits for them.
    pub(super) fn synchronize_events(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        for stream in 0..self.events.queues.len() {
            while let Some((event, _)) = self.events.queues[stream].front() {
                driver.synchronize_event(*event)?;
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    /// The oldest event of a stream has passed.
    fn event_passed(&mut self, stream: usize) {
        let Some(id) = self.events.pop(stream) else { return };
        self.blocks[id].pending_events -= 1;
        if self.blocks[id].pending_events == 0 {
            self.complete_free(id);
        }
    }
}
