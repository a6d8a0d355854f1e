//! Plain device memory.

use cudarc::driver::sys;
use drystone_driver::MemoryInfo;

use super::{Cuda, check};
use crate::failure::Failure;

impl Cuda {
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo, Failure> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        check(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo::new(free as u64, total as u64))
    }

    pub(crate) fn malloc(&self, bytes: u64) -> Result<u64, Failure> {
        let mut address = 0;
        // SAFETY: writes one address.
        check(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes as usize) })?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), Failure> {
        // SAFETY: the caller says that nothing uses the memory; another address is refused.
        check(unsafe { sys::cuMemFree_v2(address) })
    }
}
