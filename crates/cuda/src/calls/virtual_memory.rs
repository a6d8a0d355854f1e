//! Virtual memory: addresses, physical memory, mappings. Asks for `Cuda::has_virtual_memory`.

use super::Cuda;
use crate::failure::Failure;
use crate::properties::{Access, PhysicalMemory};

impl Cuda {
    /// Smallest size and alignment of such memory.
    pub(crate) fn granularity_bytes(&self, memory: PhysicalMemory) -> Result<u64, Failure> {
        /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
        const MINIMUM: i32 = 0;
        let properties = memory.as_cuda();
        let (mut bytes, of) = (0, &raw const properties);
        // SAFETY: reads the properties, writes one number.
        self.check(unsafe {
            (self.table.cuMemGetAllocationGranularity)(&raw mut bytes, of, MINIMUM)
        })?;
        Ok(bytes as u64)
    }

    pub(crate) fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64, Failure> {
        let (mut address, bytes, alignment) = (0, bytes as usize, alignment as usize);
        // SAFETY: writes one address; flags must be 0.
        self.check(unsafe {
            (self.table.cuMemAddressReserve)(&raw mut address, bytes, alignment, 0, 0)
        })?;
        Ok(address)
    }

    pub(crate) fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Failure> {
        // SAFETY: a range that is not a whole reservation, or is mapped, is refused.
        self.check(unsafe { (self.table.cuMemAddressFree)(address, bytes as usize) })
    }

    pub(crate) fn create(&self, bytes: u64, memory: PhysicalMemory) -> Result<u64, Failure> {
        let properties = memory.as_cuda();
        let (mut handle, of) = (0, &raw const properties);
        // SAFETY: reads the properties, writes one handle; flags must be 0.
        self.check(unsafe { (self.table.cuMemCreate)(&raw mut handle, bytes as usize, of, 0) })?;
        Ok(handle)
    }

    pub(crate) fn release(&self, handle: u64) -> Result<(), Failure> {
        // SAFETY: the memory lives on while it is mapped.
        self.check(unsafe { (self.table.cuMemRelease)(handle) })
    }

    pub(crate) fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Failure> {
        // SAFETY: offset and flags must be 0; what is not reserved, or mapped already, is refused.
        self.check(unsafe { (self.table.cuMemMap)(address, bytes as usize, 0, handle, 0) })
    }

    pub(crate) fn set_access(
        &self,
        address: u64,
        bytes: u64,
        access: &[Access],
    ) -> Result<(), Failure> {
        let (rights, count) = (access.as_ptr(), access.len());
        // SAFETY: reads `count` descriptions, which have the driver's layout.
        self.check(unsafe { (self.table.cuMemSetAccess)(address, bytes as usize, rights, count) })
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Result<(), Failure> {
        // SAFETY: the caller says that the last use is complete.
        self.check(unsafe { (self.table.cuMemUnmap)(address, bytes as usize) })
    }
}
