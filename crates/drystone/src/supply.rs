//! MemoryProviders: who a pool's plain memory comes from where that is not the driver.
//!
//! Invariant: a segment goes back to the supplier that gave it, once, also after its pool was
//! released.

use std::sync::Arc;

use drystone_core::{PoolId, SegmentKind};
use drystone_driver::{Call, DriverError, ErrorCode};

use crate::allocator::Allocator;
use crate::error::BuildError;
use crate::options::Backend;
use crate::room::Room;

/// Gives plain memory of the device to a pool, in the driver's place. Called with a lock of the
/// allocator's held, so that it must not call the allocator; by one thread at a time.
pub trait MemoryProvider: Send + Sync {
    /// The address of so many bytes, a multiple of 512; `None` if there are none.
    fn supply(&self, bytes: u64) -> Option<u64>;

    /// Takes back what it supplied. The last use is complete.
    fn take_back(&self, address: u64, bytes: u64);
}

/// The suppliers of an allocator's pools, and of its segments.
#[derive(Default)]
pub(crate) struct MemoryProviders {
    pools: Vec<(PoolId, Arc<dyn MemoryProvider>)>,
    /// Address, bytes, and who gave them.
    segments: Vec<(u64, u64, Arc<dyn MemoryProvider>)>,
}

impl MemoryProviders {
    /// The supplier of a new pool, which may have the place of a former one.
    pub(crate) fn add(&mut self, pool: PoolId, supplier: Arc<dyn MemoryProvider>) {
        self.pools.retain(|(former, _)| former.index() != pool.index());
        self.pools.push((pool, supplier));
    }

    pub(crate) fn of(&self, pool: PoolId) -> Option<Arc<dyn MemoryProvider>> {
        let mut pools = self.pools.iter();
        pools.find(|(of, _)| *of == pool).map(|(_, supplier)| Arc::clone(supplier))
    }

    /// Notes a segment that was supplied.
    pub(crate) fn note(&mut self, address: u64, bytes: u64, supplier: Arc<dyn MemoryProvider>) {
        self.segments.push((address, bytes, supplier));
    }

    /// Who supplied a segment that is to go back, and its bytes.
    pub(crate) fn leave(&mut self, address: u64) -> Option<(u64, Arc<dyn MemoryProvider>)> {
        let at = self.segments.iter().position(|segment| segment.0 == address)?;
        let (_, bytes, supplier) = self.segments.swap_remove(at);
        Some((bytes, supplier))
    }
}

/// Memory from a supplier.
pub(crate) fn supplied(supplier: &dyn MemoryProvider, bytes: u64) -> Result<u64, DriverError> {
    match supplier.supply(bytes) {
        Some(address) if address.is_multiple_of(512) && address > 0 => Ok(address),
        Some(address) => {
            supplier.take_back(address, bytes);
            Err(DriverError::new(Call::Malloc, ErrorCode::InvalidValue))
        }
        None => Err(DriverError::new(Call::Malloc, ErrorCode::OutOfMemory)),
    }
}

impl Allocator {
    /// Adds a private pool whose memory a supplier gives, as plain segments.
    ///
    /// # Errors
    /// The driver's own memory pools (backend `async`) have no room for such a pool.
    pub fn add_pool_over(&self, supplier: Arc<dyn MemoryProvider>) -> Result<PoolId, BuildError> {
        let Room::Heap(device) = &self.room else {
            let (pool, allocator) = (Backend::Malloc, self.backend());
            return Err(BuildError::OtherBackend { pool, allocator });
        };
        let pool = device.books.lock().add_pool_of(SegmentKind::Plain);
        device.suppliers.lock().add(pool, supplier);
        Ok(pool)
    }
}
