//! [`Device`]: one device in use, from its first allocation to the end of the process.

use std::sync::Arc;

use drystone::driver::{Driver, Stream};
use drystone::{AllocateError, Allocator, Options, PoolId, RequestError, StreamId};
use parking_lot::Mutex;

use crate::counted::Counted;
use crate::pools::Pools;
use crate::status::Failure;

/// Whether a handle is the legacy default stream's: null, or `cudaStreamLegacy`.
#[inline]
pub(crate) const fn is_default(handle: u64) -> bool {
    handle <= 1
}

/// One device in use. Never dropped: frees come until the very end.
pub struct Device {
    /// Its ordinal.
    pub ordinal: u32,
    /// What it is called through.
    pub driver: Arc<dyn Driver>,
    /// The same, as the allocator calls it.
    counted: Arc<Counted>,
    /// Where its memory comes from.
    pub allocator: Allocator,
    /// The private ones.
    pub pools: Pools,
    /// The legacy default stream, under either of its two handles.
    pub(crate) default_stream: StreamId,
    /// The handle of each stream, by its id's position, and the id if it stays until it is retired.
    pub(crate) handles: Mutex<Vec<(u64, Option<StreamId>)>>,
}

impl Device {
    pub(crate) fn new(
        ordinal: u32,
        driver: Arc<dyn Driver>,
        options: &Options,
    ) -> Result<Self, Failure> {
        let counted = Arc::new(Counted::new(Arc::clone(&driver)));
        let allocator = Allocator::new(Arc::clone(&counted) as Arc<dyn Driver>, options)?;
        let default_stream = allocator.add_stream(Stream::DEFAULT)?;
        Ok(Self {
            ordinal,
            driver,
            counted,
            allocator,
            pools: Pools::default(),
            default_stream,
            handles: Mutex::default(),
        })
    }

    /// How often the driver was called through the allocator.
    pub fn driver_calls(&self) -> u64 {
        self.counted.calls()
    }

    /// Allocates from the default pool, or from the private one that takes this stream's requests
    /// at the moment. `bytes` is not 0.
    ///
    /// # Errors
    /// There is no memory, or the driver does not know the stream.
    #[inline]
    pub fn allocate(&self, stream: u64, bytes: u64) -> Result<u64, Failure> {
        self.allocate_from(self.pools.for_stream(stream), stream, bytes)
    }

    /// Allocates from a pool. `bytes` is not 0.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and there is no such pool.
    #[inline]
    pub fn allocate_from(&self, pool: PoolId, stream: u64, bytes: u64) -> Result<u64, Failure> {
        // Never captured, and never retired.
        if is_default(stream) && pool == PoolId::DEFAULT {
            let granted = self.allocator.allocate_raw(pool, self.default_stream, bytes);
            return granted.map(|block| block.address).map_err(Failure::from);
        }
        self.allocate_on(pool, stream, bytes)
    }

    fn allocate_on(&self, pool: PoolId, stream: u64, bytes: u64) -> Result<u64, Failure> {
        let id = self.stream(stream)?;
        self.allocator.note_capture(Some(pool), id)?;
        match self.allocator.allocate_raw(pool, id, bytes) {
            Ok(granted) => Ok(granted.address),
            // The stream was retired by another thread: it is a new one from now on.
            Err(AllocateError::Request(RequestError::Stream(_))) => {
                let id = self.add_stream(stream)?;
                Ok(self.allocator.allocate_raw(pool, id, bytes)?.address)
            }
            Err(error) => Err(error.into()),
        }
    }
}
