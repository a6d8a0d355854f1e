//! Memory pools and stream-ordered memory. Asks for `Cuda::has_memory_pools`.
//!
//! Nothing is locked around these calls: CUDA's driver API may be called from any number of threads
//! at once, and its documentation makes no exception for memory pools.

use std::ffi::c_int;

use cudarc::driver::sys::CUmemPool_attribute as Attribute;
use drystone_driver::{MemoryPoolConfig, MemoryPoolUsage, ShareableHandle};

use super::{Cuda, handle, pointer};
use crate::failure::Failure;
use crate::properties::{self, Access};

impl Cuda {
    pub(crate) fn create_memory_pool(
        &self,
        ordinal: i32,
        shareable: ShareableHandle,
    ) -> Result<u64, Failure> {
        let properties = properties::memory_pool(ordinal, shareable);
        let (mut pool, of) = (std::ptr::null_mut(), &raw const properties);
        // SAFETY: reads the properties, writes one handle.
        self.check(unsafe { (self.table.cuMemPoolCreate)(&raw mut pool, of) })?;
        Ok(handle(pool))
    }

    pub(crate) fn configure_memory_pool(
        &self,
        pool: u64,
        config: &MemoryPoolConfig,
    ) -> Result<(), Failure> {
        let flags = [
            (
                Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                config.reuse_follows_events,
            ),
            (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, config.reuse_is_opportunistic),
            (
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                config.reuse_adds_dependencies,
            ),
        ];
        for (attribute, is_on) in flags {
            let mut value = c_int::from(is_on);
            let value = (&raw mut value).cast();
            // SAFETY: the value of these attributes is an int.
            self.check(unsafe {
                (self.table.cuMemPoolSetAttribute)(pointer(pool), attribute as u32, value)
            })?;
        }
        let mut threshold = config.release_threshold_bytes;
        let attribute = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold).cast();
        // SAFETY: the value of this attribute is a 64-bit number.
        self.check(unsafe {
            (self.table.cuMemPoolSetAttribute)(pointer(pool), attribute as u32, value)
        })
    }

    pub(crate) fn destroy_memory_pool(&self, pool: u64) -> Result<(), Failure> {
        // SAFETY: what was allocated from it lives on.
        self.check(unsafe { (self.table.cuMemPoolDestroy)(pointer(pool)) })
    }

    pub(crate) fn trim_memory_pool(&self, pool: u64, keep_bytes: u64) -> Result<(), Failure> {
        // SAFETY: gives back only what is not in use.
        self.check(unsafe { (self.table.cuMemPoolTrimTo)(pointer(pool), keep_bytes as usize) })
    }

    pub(crate) fn memory_pool_usage(&self, pool: u64) -> Result<MemoryPoolUsage, Failure> {
        let get = |attribute| {
            let mut value = 0_u64;
            let to = (&raw mut value).cast();
            // SAFETY: writes one 64-bit number.
            self.check(unsafe {
                (self.table.cuMemPoolGetAttribute)(pointer(pool), attribute as u32, to)
            })?;
            Ok(value)
        };
        let mut usage = MemoryPoolUsage::default();
        usage.reserved_bytes = get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        usage.reserved_peak_bytes = get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
        usage.used_bytes = get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        usage.used_peak_bytes = get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
        Ok(usage)
    }

    pub(crate) fn set_memory_pool_access(
        &self,
        pool: u64,
        access: &[Access],
    ) -> Result<(), Failure> {
        let (rights, count) = (access.as_ptr(), access.len());
        // SAFETY: reads `count` descriptions, which have the driver's layout.
        self.check(unsafe { (self.table.cuMemPoolSetAccess)(pointer(pool), rights, count) })
    }

    pub(crate) fn malloc_async(&self, pool: u64, bytes: u64, stream: u64) -> Result<u64, Failure> {
        let (mut address, bytes, pool) = (0, bytes as usize, pointer(pool));
        let to = &raw mut address;
        // SAFETY: writes one address.
        self.check(unsafe {
            (self.table.cuMemAllocFromPoolAsync)(to, bytes, pool, pointer(stream))
        })?;
        Ok(address)
    }

    pub(crate) fn free_async(&self, address: u64, stream: u64) -> Result<(), Failure> {
        // SAFETY: the caller ordered the stream after every use.
        self.check(unsafe { (self.table.cuMemFreeAsync)(address, pointer(stream)) })
    }
}
