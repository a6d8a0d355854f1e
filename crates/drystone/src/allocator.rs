//! [`Allocator`]: the public type, one for each device.
//!
//! Cloning gives another handle to the same allocator; what the handles share is
//! [`Device`](crate::device::Device), where the lock order is written down. It stands over a heap
//! of this allocator's own or over memory pools of the driver's; which is asked once a call.

use drystone_core::{
    Broken, CrossStream, FreeError, Freed, Granted, PoolId, PoolStreamStats, RecordStreamError,
    RequestError, SegmentView, Stats, StreamError, StreamId,
};
use drystone_driver::{DriverError, Stream};

use crate::allocation::Allocation;
use crate::device::OutOfMemoryCallback;
use crate::error::{AllocateError, PeerError, TrimError};
use crate::grow::Miss;
use crate::room::{Room, in_room};

/// A caching allocator for one device. Cloning gives another handle to the same allocator.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) room: Room,
}

impl Allocator {
    /// Makes a device stream known, and gives its key. The same stream always gives the same key
    /// until it is retired.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        in_room!(self, device => device.add_stream(stream))
    }

    /// Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be
    /// freed later; its free memory serves other streams once its queued work is complete.
    ///
    /// # Errors
    /// The stream was retired before.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        in_room!(self, device => device.retire_stream(stream))
    }

    /// Allocates on a stream from the default pool. Zero bytes give an empty allocation: address
    /// 0, no block.
    ///
    /// # Errors
    /// Out of memory, an unknown stream, a size beyond 2^47 bytes, a failing driver.
    #[inline]
    pub fn allocate(&self, stream: StreamId, bytes: u64) -> Result<Allocation, AllocateError> {
        if bytes == 0 {
            return Ok(Allocation::new(self.clone(), 0, 0, stream));
        }
        let grant = self.allocate_raw(PoolId::DEFAULT, stream, bytes)?;
        Ok(Allocation::new(self.clone(), grant.address, grant.bytes, stream))
    }

    /// Allocates on a stream from a pool, to be freed with [`free`](Self::free).
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
    /// assert_eq!(grant.bytes, 1024);
    /// allocator.free(grant.address)?;
    /// assert!(allocator.free(grant.address).is_err()); // found out, and nothing changed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); zero bytes and an unknown pool are errors here.
    #[inline]
    pub fn allocate_raw(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<Granted, AllocateError> {
        let miss = Miss { pool, stream, bytes };
        match &self.room {
            Room::Heap(device) => {
                if let Some(grant) = device.books.lock().allocate(pool, stream, bytes)? {
                    return Ok(grant);
                }
                device.allocate_slowly(miss)
            }
            Room::AsyncPools(device) => {
                device.books.lock().check_request(pool, stream, bytes)?;
                device.allocate_slowly(miss)
            }
        }
    }

    /// Frees a block by its address, in the order of its stream.
    ///
    /// # Errors
    /// The address is not that of a live block; nothing has changed.
    #[inline]
    pub fn free(&self, address: u64) -> Result<(), FreeError> {
        match &self.room {
            Room::Heap(device) => {
                let freed = device.books.lock().free(address)?;
                if let Freed::Plan(plan) = freed {
                    device.finish(plan);
                }
                Ok(())
            }
            Room::AsyncPools(device) => device.free(address),
        }
    }

    /// Notes that a live block is also used on another stream than its own.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    #[inline]
    pub fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        in_room!(self, device => device.books.lock().record_stream(address, stream))
    }

    /// Adds a private pool: memory of its own, which serves no other pool and is not trimmed.
    pub fn add_pool(&self) -> PoolId {
        in_room!(self, device => device.books.lock().add_pool())
    }

    /// Gives another device access to all memory of this allocator, whether it is mapped now or
    /// later.
    ///
    /// # Errors
    /// The two are not connected, or a range could not be opened.
    pub fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), PeerError> {
        in_room!(self, device => device.enable_peer_access(peer_ordinal))
    }

    /// Releases a private pool: it serves no further request, and a trim gives its memory back as
    /// far as it is free. Other pools borrow it once the allocator has waited for the device.
    ///
    /// # Errors
    /// The pool is unknown, released before, or the default pool.
    pub fn release_pool(&self, pool: PoolId) -> Result<(), RequestError> {
        in_room!(self, device => device.books.lock().release_pool(pool))
    }

    /// Gives all unused memory of the default pool and of released pools back to the device, and
    /// returns how many bytes. Waits until the device is idle.
    ///
    /// # Errors
    /// A driver call failed, and what was given back before stays so; or a stream is being
    /// captured, and nothing was done.
    pub fn trim(&self) -> Result<u64, TrimError> {
        in_room!(self, device => device.trim())
    }

    /// Like [`trim`](Self::trim) for memory whose last use is known to be complete: never waits,
    /// and leaves pools alone that were released since the last wait for the device.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_passed(&self) -> Result<u64, TrimError> {
        in_room!(self, device => device.trim_passed())
    }

    /// Sets the limit of reserved bytes. What is reserved above it stays until trimmed.
    pub fn set_limit(&self, limit_bytes: u64) {
        in_room!(self, device => device.books.lock().set_limit(limit_bytes));
    }

    /// Adds a callback for when memory runs out, called after everything else was tried.
    pub fn on_out_of_memory(&self, callback: OutOfMemoryCallback) {
        in_room!(self, device => device.callbacks.lock().push(callback));
    }

    /// Statistics at this moment.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let kept = allocator.allocate(stream, 700)?;
    /// drop(allocator.allocate(stream, 40 << 20)?);
    /// let all = allocator.stats().all;
    /// assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (700, 1024));
    /// assert_eq!(all.requested_bytes.peak, 700 + (40 << 20));
    /// assert!(all.reserved_bytes.current >= 40 << 20); // held for the next request
    /// allocator.trim()?;
    /// assert_eq!(allocator.stats().all.reserved_bytes.current, 2 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.refresh();
        in_room!(self, device => *device.books.lock().stats())
    }

    /// Bytes of live blocks and physical bytes held, at this moment: what of [`stats`](Self::stats)
    /// can be asked after every call.
    pub fn allocated_and_reserved_bytes(&self) -> (u64, u64) {
        self.refresh();
        in_room!(self, device => {
            let books = device.books.lock();
            let all = &books.stats().all;
            (all.allocated_bytes.current, all.reserved_bytes.current)
        })
    }

    /// What the driver's memory pools hold, the driver may change on its own.
    #[inline]
    fn refresh(&self) {
        if let Room::AsyncPools(device) = &self.room {
            device.refresh();
        }
    }

    /// Sets every peak of the statistics and of the accounts to its current value.
    pub fn reset_peaks(&self) {
        self.refresh();
        in_room!(self, device => device.books.lock().reset_peaks());
    }

    /// What each pool, class and stream has, and the most it had in use: those that have
    /// anything, or had since the peaks were reset. With backend `async` free memory is in no
    /// account: the driver gives it to any stream.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let kept = allocator.allocate(stream, 3 << 20)?;
    /// drop(allocator.allocate(stream, 40 << 20)?);
    /// let account = allocator.pool_stream_stats()[0];
    /// assert_eq!((account.pool, account.stream), (PoolId::DEFAULT.index(), stream.index()));
    /// assert_eq!(account.active_bytes.current, 3 << 20);
    /// assert_eq!(account.active_bytes.peak, 43 << 20);
    /// # drop(kept);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        in_room!(self, device => device.books.lock().pool_stream_stats())
    }

    /// What is held: segments in address order, tiled by their blocks. With backend `async` each
    /// block is a segment of its own: what the driver holds beside them, it does not show.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 3 << 20)?;
    /// let segments = allocator.snapshot();
    /// let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
    /// let found = blocks.find(|b| b.state == drystone::BlockState::Live);
    /// assert_eq!(found.map(|b| (b.address, b.requested_bytes)), Some((block.address(), 3 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Vec<SegmentView> {
        in_room!(self, device => device.books.lock().snapshot())
    }

    /// Proves every invariant of the heap. Slow: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        in_room!(self, device => device.books.lock().check())
    }

    /// When free blocks serve other streams.
    pub fn cross_stream(&self) -> CrossStream {
        match &self.room {
            Room::Heap(device) => device.books.lock().config().cross_stream,
            Room::AsyncPools(device) => {
                let config = device.pool_config();
                match (config.reuse_adds_dependencies, config.reuse_is_opportunistic) {
                    (true, _) => CrossStream::Wait,
                    (false, true) => CrossStream::Passed,
                    (false, false) => CrossStream::Never,
                }
            }
        }
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
