//! [`Allocation`]: a block that goes back to its pool when dropped. Neither `Clone` nor `Copy`:
//! there is one owner of a block, and one free.

use std::fmt;
use std::sync::Arc;

use drystone_core::{RecordStreamError, StreamId};

use crate::engine::Engine;
use crate::tag::Tag;

/// A live block of device memory. Dropping it frees the block in the order of its stream.
#[must_use = "dropping an allocation frees it"]
pub struct Allocation {
    engine: Arc<Engine>,
    address: u64,
    bytes: u64,
    stream: StreamId,
}

impl Allocation {
    pub(crate) fn new(engine: Arc<Engine>, address: u64, bytes: u64, stream: StreamId) -> Self {
        Self { engine, address, bytes, stream }
    }

    /// Where the block starts on the device; a multiple of 512. Zero for an empty allocation.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The block's size in bytes: what was asked for, rounded up. Zero for an empty allocation.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stream in whose order the block is used and freed.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Notes that the block is also used on another stream: after the drop it is not used again
    /// before that stream has passed the point it has reached by then.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let copies = device.create_stream();
    /// let other = allocator.add_stream(copies)?;
    /// let block = allocator.allocate(stream, 1 << 20)?;
    /// block.record_stream(other)?;
    /// device.launch(copies, 5_000)?; // a copy of 5 us that reads the block
    /// let address = block.address();
    /// drop(block); // pending: the copy still runs
    /// assert_ne!(allocator.allocate(stream, 1 << 20)?.address(), address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The stream is not one of the allocator's.
    pub fn record_stream(&self, stream: StreamId) -> Result<(), RecordStreamError> {
        if self.address == 0 {
            return Ok(());
        }
        self.engine.record_stream(self.address, stream)
    }

    /// Counts under a tag from now on, and under no other, until it is freed.
    pub fn tagged(self, tag: &Tag) -> Self {
        // An empty one has no block, and one that is freed already nothing to count.
        let _ = self.engine.tag_block(self.address, Some(tag));
        self
    }

    /// Gives up ownership: the block stays live, and counts under its tag, until
    /// [`Allocator::free`](crate::Allocator::free) is called with the address.
    #[must_use = "the address is the only way to free the block"]
    pub fn into_address(self) -> u64 {
        let address = self.address;
        let mut this = self;
        this.address = 0;
        address
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address != 0 {
            // The address is that of a live block, which nobody else could free but by `unsafe`
            // bookkeeping of their own (`Allocator::free` with this address): then it is free
            // already, and there is nothing left to do.
            let _ = self.engine.free(self.address);
        }
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, stream, .. } = self;
        let mut debug = f.debug_struct("Allocation");
        debug.field("address", address).field("bytes", bytes).field("stream", stream);
        debug.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use super::Allocation;

    struct Asked<T>(PhantomData<T>);

    trait OfAnything {
        const IS_CLONED: bool = false;
    }
    impl<T> OfAnything for Asked<T> {}

    /// Goes before the trait's where it is there; every type that is `Copy` is `Clone`.
    impl<T: Clone> Asked<T> {
        const IS_CLONED: bool = true;
    }

    #[test]
    fn b45_an_allocation_is_neither_cloned_nor_copied() {
        const { assert!(!Asked::<Allocation>::IS_CLONED && Asked::<u64>::IS_CLONED) };
    }
}
