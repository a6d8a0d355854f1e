//! [`MemoryProvider`]: who a pool's plain memory comes from where that is not the driver.
//!
//! Invariant: a segment goes back to the provider that gave it, once, also after its pool was
//! released.

use std::sync::Arc;

use drystone_core::PoolId;
use drystone_driver::{Call, DriverError, ErrorCode};

use crate::catch_panic::catch_panic;

/// Gives plain memory of the device to a pool, in the driver's place. Called with a lock of the
/// allocator's held, so that what would need that lock, growth say or a trim, is refused from
/// within; by one thread at a time. One that panics has given nothing, or taken back what it was to
/// take back.
pub trait MemoryProvider: Send + Sync {
    /// The address of so many bytes, a multiple of 512; `None` if there are none.
    fn allocate(&self, bytes: u64) -> Option<u64>;

    /// Takes back what it gave. The last use is complete.
    fn free(&self, address: u64, bytes: u64);
}

/// The providers of an allocator's pools, and of its segments.
#[derive(Default)]
pub(crate) struct MemoryProviders {
    pools: Vec<(PoolId, Arc<dyn MemoryProvider>)>,
    /// Address, bytes, and who gave them.
    segments: Vec<(u64, u64, Arc<dyn MemoryProvider>)>,
}

impl MemoryProviders {
    /// The provider of a new pool, which may have the place of a former one.
    pub(crate) fn add(&mut self, pool: PoolId, provider: Arc<dyn MemoryProvider>) {
        self.pools.retain(|(former, _)| former.index() != pool.index());
        self.pools.push((pool, provider));
    }

    pub(crate) fn of(&self, pool: PoolId) -> Option<Arc<dyn MemoryProvider>> {
        let mut pools = self.pools.iter();
        pools.find(|(of, _)| *of == pool).map(|(_, provider)| Arc::clone(provider))
    }

    /// Notes a segment that was given.
    pub(crate) fn note(&mut self, address: u64, bytes: u64, provider: Arc<dyn MemoryProvider>) {
        self.segments.push((address, bytes, provider));
    }

    /// Who gave a segment that is to go back, and its bytes.
    pub(crate) fn leave(&mut self, address: u64) -> Option<(u64, Arc<dyn MemoryProvider>)> {
        let at = self.segments.iter().position(|segment| segment.0 == address)?;
        let (_, bytes, provider) = self.segments.swap_remove(at);
        Some((bytes, provider))
    }
}

/// Memory from a provider.
pub(crate) fn provided(provider: &dyn MemoryProvider, bytes: u64) -> Result<u64, DriverError> {
    match catch_panic(|| provider.allocate(bytes)).flatten() {
        Some(address) if address.is_multiple_of(512) && address > 0 => Ok(address),
        Some(address) => {
            taken_back(provider, address, bytes);
            Err(DriverError::new(Call::Malloc, ErrorCode::InvalidValue))
        }
        None => Err(DriverError::new(Call::Malloc, ErrorCode::OutOfMemory)),
    }
}

/// Memory goes back to its provider.
pub(crate) fn taken_back(provider: &dyn MemoryProvider, address: u64, bytes: u64) {
    let _ = catch_panic(|| provider.free(address, bytes));
}
