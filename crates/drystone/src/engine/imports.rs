//! Memory of other processes: what there is of it, and how it comes and goes.
//!
//! Invariant: what the driver gave is given back in the order of handle, mapping, addresses, and
//! nothing twice.

use drystone_driver::{Descriptor, Driver, DriverError, Handle};
use parking_lot::Mutex;

/// Memory of other processes.
#[derive(Default)]
pub(super) struct Imports {
    /// Address and size. They are few: a map would be more code than it saves time.
    pub(super) open: Mutex<Vec<(u64, u64)>>,
    /// Closed, but perhaps still in use by the device, or not given back for a failure.
    pub(super) closed: Mutex<Vec<Mapping>>,
}

/// What an import has of the driver's.
pub(super) struct Mapping {
    address: u64,
    bytes: u64,
    /// How much of it leads to memory, from its start.
    mapped_bytes: u64,
    /// One that is not released yet.
    handle: Option<Handle>,
}

impl Mapping {
    /// Addresses that lead nowhere yet.
    pub(super) const fn reserved(address: u64, bytes: u64) -> Self {
        Self { address, bytes, mapped_bytes: 0, handle: None }
    }

    /// Addresses that lead to memory throughout.
    pub(super) const fn mapped(address: u64, bytes: u64) -> Self {
        Self { address, bytes, mapped_bytes: bytes, handle: None }
    }

    /// Maps a handle behind those before. The mapping keeps the memory.
    pub(super) fn add(
        &mut self,
        driver: &dyn Driver,
        descriptor: &Descriptor,
        bytes: u64,
    ) -> Result<(), DriverError> {
        let handle = driver.import(descriptor)?;
        self.handle = Some(handle);
        self.map(driver, handle, bytes)?;
        driver.release(handle)?;
        self.handle = None;
        Ok(())
    }

    /// The same of a handle that stays the caller's.
    pub(super) fn map(
        &mut self,
        driver: &dyn Driver,
        handle: Handle,
        bytes: u64,
    ) -> Result<(), DriverError> {
        driver.map(self.address + self.mapped_bytes, bytes, handle)?;
        self.mapped_bytes += bytes;
        Ok(())
    }

    /// Gives all of it back, which nobody uses. A call that failed is made again the next time.
    pub(super) fn give_back(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        if let Some(handle) = self.handle {
            driver.release(handle)?;
            self.handle = None;
        }
        if self.mapped_bytes > 0 {
            driver.unmap(self.address, self.mapped_bytes)?;
            self.mapped_bytes = 0;
        }
        driver.unreserve(self.address, self.bytes)
    }
}
