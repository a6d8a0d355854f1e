//! Plain device memory.

use drystone_driver::MemoryInfo;

use super::Cuda;
use crate::failure::Failure;

impl Cuda {
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo, Failure> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        self.check(unsafe { (self.table.cuMemGetInfo_v2)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo::new(free as u64, total as u64))
    }

    pub(crate) fn malloc(&self, bytes: u64) -> Result<u64, Failure> {
        let mut address = 0;
        // SAFETY: writes one address.
        self.check(unsafe { (self.table.cuMemAlloc_v2)(&raw mut address, bytes as usize) })?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), Failure> {
        // SAFETY: the caller says that nothing uses the memory; another address is refused.
        self.check(unsafe { (self.table.cuMemFree_v2)(address) })
    }
}
