//! What others know of a block, checked against what the heap knows: for those who hold addresses
//! and not [`Allocation`](crate::Allocation)s.
//!
//! Invariant: a refusal changes nothing.

use std::ops::Range;

use drystone_core::{BlockView, FreeError, Freed, Granted, PoolId, RequestError, StreamId};

use crate::allocator::Allocator;
use crate::room::{Room, in_room};
use crate::source::Books;

impl Allocator {
    /// Frees a block by its address and the size it was allocated with, in the order of its
    /// stream.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let grant = allocator.allocate_raw(PoolId::DEFAULT, stream, 1000)?;
    /// assert!(allocator.free_sized(grant.address, 1024).is_err()); // it was 1000
    /// assert_eq!(allocator.block_at(grant.address)?.requested_bytes, 1000);
    /// allocator.free_sized(grant.address, 1000)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's.
    #[inline]
    pub fn free_sized(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        match &self.room {
            Room::Heap(device) => {
                let freed = device.books.lock().free_sized(address, bytes)?;
                if let Freed::Plan(plan) = freed {
                    device.finish(plan);
                }
                Ok(())
            }
            Room::AsyncPools(device) => device.free_sized(address, bytes),
        }
    }

    /// Allocates free memory of a pool just where the caller says, as a block that was there. It
    /// is not ordered behind what other streams have queued there. `None`, and nothing has
    /// changed, if it is not all free, or the driver chooses where blocks are (backend `async`).
    ///
    /// # Errors
    /// As [`allocate_raw`](Self::allocate_raw), but for a lack of memory.
    pub fn allocate_at(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        place: Range<u64>,
    ) -> Result<Option<Granted>, RequestError> {
        match &self.room {
            Room::Heap(device) => device.books.lock().allocate_at(pool, stream, bytes, place),
            Room::AsyncPools(_) => Ok(None),
        }
    }

    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    pub fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        in_room!(self, device => device.books.lock().block_at(address))
    }

    /// The largest free block of any pool and stream, in bytes. Walks all free blocks. 0 where the
    /// driver keeps them (backend `async`).
    pub fn largest_free_bytes(&self) -> u64 {
        in_room!(self, device => Books::largest_free_bytes(&*device.books.lock()))
    }
}
