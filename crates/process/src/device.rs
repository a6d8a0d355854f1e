//! [`Device`]: one device in use, from its first allocation to the end of the process.

use std::sync::Arc;

use drystone::driver::{Driver, Stream};
use drystone::{Allocator, Options, PoolId, StreamId};

use crate::counted::Counted;
use crate::neighbours::{Exchanges, Table};
use crate::pools::Pools;
use crate::pressure;
use crate::status::Failure;

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
    /// Other processes on it, if they are asked, and who looks after idle memory.
    pub(crate) neighbours: Option<&'static Table>,
    /// The private ones.
    pub pools: Pools,
    /// The legacy default stream, under either of its two handles.
    pub(crate) default_stream: StreamId,
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
        let neighbours = Table::join(&driver.info(), options);
        neighbours.into_iter().for_each(|table| table.begin(&allocator));
        if allocator.host_floor_bytes() > 0 {
            pressure::serve(allocator.clone(), allocator.host_floor_bytes());
        }
        let pools = Pools::default();
        Ok(Self { ordinal, driver, counted, allocator, neighbours, pools, default_stream })
    }

    /// What went from and to other processes so far.
    pub fn exchanges(&self) -> Exchanges {
        self.neighbours.map_or_else(Exchanges::default, Table::exchanges)
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
        if Stream(stream).is_default() && pool == PoolId::DEFAULT {
            let granted = self.allocator.allocate_raw(pool, self.default_stream, bytes);
            return granted.map(|block| block.address).map_err(Failure::from);
        }
        self.allocate_on(pool, stream, bytes)
    }

    fn allocate_on(&self, pool: PoolId, stream: u64, bytes: u64) -> Result<u64, Failure> {
        let id = self.stream(stream)?;
        self.allocator.note_capture(Some(pool), id)?;
        Ok(self.allocator.allocate_raw(pool, id, bytes)?.address)
    }
}
