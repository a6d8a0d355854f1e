//! Memory that moves behind addresses that stay.

use std::time::Duration;

use drystone_core::Captured;
use drystone_driver::Stream;

use super::Allocator;
#[cfg(doc)]
use crate::address_calls;
use crate::engine::compact::Compacted;
use crate::error::TrimError;
use crate::out_of_memory::Stays;
use crate::streams::OtherStreams;

impl Allocator {
    /// Says that every stream on which work may use this memory, in this process and on whichever
    /// device, is one that was added and is retired before it is destroyed, or is told of by
    /// `others` whenever that is asked, with this device's ordinal; that other threads make calls
    /// of the driver that take its addresses (copies, memsets, questions) by
    /// [`address_calls::run`] alone; and that nobody outside has the memory, but by `export` or
    /// where it is pinned.
    ///
    /// From then on live memory may get other physical memory behind its addresses: where a request
    /// would be refused though what is unused is enough for it, and by [`trim`](Self::trim). All
    /// streams stand still for a moment then. Without this only [`compact`](Self::compact) moves
    /// memory.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// allocator.know_all_streams(|_, run| run(Vec::new())); // and no other uses it
    /// # let _ = stream;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn know_all_streams(&self, others: OtherStreams) {
        self.engine.know_all_streams(others);
    }

    /// Runs something with the streams that were added, of which none is retired meanwhile; not
    /// where one may be over that nobody has retired. For other devices'
    /// [`know_all_streams`](Self::know_all_streams).
    pub fn with_streams(&self, run: &mut dyn FnMut(Vec<Stream>)) {
        self.engine.executor.streams.with_own(run);
    }

    /// Why live memory does not move by itself at this moment; `None` if it does.
    pub fn stays(&self) -> Option<Stays> {
        self.engine.stays(Captured::None)
    }

    /// Moves live memory together, so that whole handles are left over, for about so long at most;
    /// waits for the device first. What was emptied serves the next requests, or goes back with the
    /// next [`trim`](Self::trim).
    ///
    /// The caller answers for it that no stream uses the memory meanwhile but those that were added
    /// and may be asked at any time.
    ///
    /// # Errors
    /// The driver failed, or a capture is under way.
    pub fn compact(&self, budget: Duration) -> Result<Compacted, TrimError> {
        self.engine.compact(budget)
    }
}
