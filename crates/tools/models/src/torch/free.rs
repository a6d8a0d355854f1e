//! Frees. A block used on other streams waits: events are recorded at its free, and asked at every
//! later request.
//!
//! Invariant: a block waits in its streams' queues exactly `pending_events` times.

use drystone_driver::{Driver, DriverError};

use super::allocator::Allocator;
use super::block::BlockId;

impl Allocator {
    /// Frees a live block. Other addresses, 0 among them, are ignored.
    pub fn free(&mut self, driver: &dyn Driver, address: u64) -> Result<(), DriverError> {
        let Some(id) = self.live.remove(&address) else { return Ok(()) };
        let block = &mut self.blocks[id];
        block.is_allocated = false;
        self.stats.allocated_bytes -= block.bytes;
        if block.uses.is_empty() {
            self.complete_free(id);
            Ok(())
        } else if self.captures > 0 {
            // An event recorded now would be the graph's.
            self.deferred.push(id);
            Ok(())
        } else {
            self.defer_free(driver, id)
        }
    }

    /// Notes that a live block is also used on another stream. Unknown addresses and streams are
    /// ignored, as is the block's own stream.
    pub fn record_stream(&mut self, address: u64, stream: u16) {
        let Some(id) = self.live.get(&address) else { return };
        let block = &mut self.blocks[*id];
        if block.stream == stream || usize::from(stream) >= self.streams.len() {
            return;
        }
        if let Err(index) = block.uses.binary_search(&stream) {
            block.uses.insert(index, stream);
        }
    }

    /// Records one event on each stream that uses the block.
    fn defer_free(&mut self, driver: &dyn Driver, id: BlockId) -> Result<(), DriverError> {
        for stream in std::mem::take(&mut self.blocks[id].uses) {
            let event = match self.events.take_spare() {
                Some(event) => event,
                None => driver.create_event()?,
            };
            driver.record(event, self.device_stream(stream))?;
            self.blocks[id].pending_events += 1;
            self.events.push(stream, event, id);
        }
        Ok(())
    }

    /// Records the events of what was freed in captures, none of which is under way any more.
    fn catch_up(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        for id in std::mem::take(&mut self.deferred) {
            self.defer_free(driver, id)?;
        }
        Ok(())
    }

    /// Frees the blocks whose events have passed.
    pub(super) fn process_events(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        self.catch_up(driver)?;
        if self.events.is_empty() {
            return Ok(());
        }
        for stream in 0..self.events.streams() {
            while let Some(event) = self.events.front(stream) {
                if !driver.query(event)? {
                    break;
                }
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    /// Waits for every event in flight and frees what waits for them.
    pub(super) fn synchronize_events(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        self.catch_up(driver)?;
        for stream in 0..self.events.streams() {
            while let Some(event) = self.events.front(stream) {
                driver.synchronize_event(event)?;
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    fn event_passed(&mut self, stream: usize) {
        let Some(id) = self.events.pop(stream) else { return };
        self.blocks[id].pending_events -= 1;
        if self.blocks[id].pending_events == 0 {
            self.complete_free(id);
        }
    }
}
