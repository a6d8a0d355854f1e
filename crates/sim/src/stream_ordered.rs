//! Stream-ordered memory as calls: memory pools, allocation and free in the order of a stream.

use crate::memory::FreePoint;
use crate::state::State;
use drystone_driver::{ErrorCode, MemoryPool, MemoryPoolConfig, MemoryPoolUsage, Stream};

impl State {
    pub(crate) fn create_memory_pool(
        &mut self,
        config: &MemoryPoolConfig,
    ) -> Result<MemoryPool, ErrorCode> {
        self.check_async_malloc()?;
        if config.is_exportable && !self.config.is_shareable {
            return Err(ErrorCode::NotSupported);
        }
        Ok(self.memory.pools.create(*config))
    }

    pub(crate) fn destroy_memory_pool(&mut self, pool: MemoryPool) -> Result<(), ErrorCode> {
        self.memory.pools.destroy(pool)?;
        self.trim_pools();
        Ok(())
    }

    pub(crate) fn trim_memory_pool(
        &mut self,
        pool: MemoryPool,
        keep_bytes: u64,
    ) -> Result<(), ErrorCode> {
        let now_ns = self.clock.now_ns();
        let pool = self.memory.pools.get_mut(pool)?;
        let gone = pool.trim(&mut self.memory.supply, now_ns, keep_bytes);
        if let Some(oracle) = &mut self.oracle {
            gone.iter().for_each(|piece| oracle.physical_gone(piece.physical, piece.bytes));
        }
        Ok(())
    }

    pub(crate) fn memory_pool_usage(&self, pool: MemoryPool) -> Result<MemoryPoolUsage, ErrorCode> {
        Ok(self.memory.pools.get(pool)?.usage())
    }

    pub(crate) fn malloc_async(
        &mut self,
        pool: MemoryPool,
        bytes: u64,
        stream: Stream,
    ) -> Result<u64, ErrorCode> {
        let index = self.async_stream(stream)?;
        let now_ns = self.clock.now_ns();
        let pool = self.memory.pools.get_mut(pool)?;
        let (address, wait_for) = pool.malloc(&mut self.memory.supply, bytes, index, now_ns)?;
        if let Some(point) = wait_for {
            let queue = self.streams.get_mut(stream)?;
            queue.busy_until_ns = queue.busy_until_ns.max(point.reached_ns);
            if let Some(oracle) = &mut self.oracle {
                oracle.order.stream(index).join(&point.clock);
            }
        }
        Ok(address)
    }

    pub(crate) fn free_async(&mut self, address: u64, stream: Stream) -> Result<(), ErrorCode> {
        let index = self.async_stream(stream)?;
        let reached_ns = self.streams.get(stream)?.busy_until_ns.max(self.clock.now_ns());
        let (pool, bytes) = self.memory.pools.owner_of(address)?;
        let mut point = FreePoint { stream: Some(index), reached_ns, ..FreePoint::default() };
        if let Some(oracle) = &mut self.oracle {
            oracle.freed_in_order(&mut self.log, address, bytes, index);
            point.clock = oracle.order.stream(index).clone();
        }
        pool.free(address, point);
        Ok(())
    }

    /// A synchronising call lets memory pools give idle memory back.
    pub(crate) fn trim_pools(&mut self) {
        let now_ns = self.clock.now_ns();
        let (supply, oracle) = (&mut self.memory.supply, &mut self.oracle);
        self.memory.pools.trim_each(|pool, keep_bytes| {
            let gone = pool.trim(supply, now_ns, keep_bytes);
            if let Some(oracle) = oracle {
                gone.iter().for_each(|piece| oracle.physical_gone(piece.physical, piece.bytes));
            }
        });
    }

    fn check_async_malloc(&self) -> Result<(), ErrorCode> {
        if self.config.has_async_malloc { Ok(()) } else { Err(ErrorCode::NotSupported) }
    }

    /// The index of a stream that may allocate in its order.
    fn async_stream(&self, stream: Stream) -> Result<u32, ErrorCode> {
        self.check_async_malloc()?;
        let queue = self.streams.get(stream)?;
        if queue.capture.is_some() {
            return Err(ErrorCode::NotSupported);
        }
        Ok(queue.index)
    }
}
