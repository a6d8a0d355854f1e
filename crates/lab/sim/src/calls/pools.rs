//! Stream-ordered memory as calls: memory pools, allocation and free in the order of a stream.
//!
//! In a capture both become nodes of the graph. The memory is the graph's from the capture on: it
//! serves again within the capture once freed there, and goes back when the graph's life ends.
//! Nobody else can free it before the graph has run; a graph frees nothing that is not a graph's.

use crate::memory::{Asker, FreePoint, Owner, Piece};
use crate::refuse::refuse;
use crate::state::State;
use drystone_driver::{Call, ErrorCode, MemoryPool, MemoryPoolConfig, MemoryPoolUsage, Stream};

impl State {
    pub(crate) fn create_memory_pool(
        &mut self,
        config: &MemoryPoolConfig,
    ) -> Result<MemoryPool, ErrorCode> {
        self.check_async_malloc()?;
        refuse(ErrorCode::NotSupported, config.is_exportable && !self.config.is_shareable)?;
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
        let pool = self.memory.pools.get_mut(pool)?;
        let gone = pool.trim(&mut self.memory.supply, keep_bytes);
        self.tell_gone(&gone);
        Ok(())
    }

    fn tell_gone(&mut self, gone: &[Piece]) {
        if let Some(oracle) = &mut self.oracle {
            gone.iter().for_each(|piece| oracle.physical_gone(piece.physical, piece.bytes));
        }
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
        let (index, capture) = self.async_stream(stream)?;
        let now_ns = self.clock.now_ns();
        let order = self.oracle.as_mut().map(|oracle| oracle.order.stream(index).clone());
        let asker = Asker { stream: index, now_ns, order: order.as_ref() };
        let own = self.memory.pools.get_mut(pool)?;
        let pool = match capture {
            Some(capture) => self.memory.pools.graph_mut(capture),
            None => own,
        };
        let mut gone = Vec::new();
        let given = pool.malloc(&mut self.memory.supply, bytes, asker, &mut gone);
        self.tell_gone(&gone);
        let (address, wait_for) = given?;
        if let (Some(point), None) = (wait_for, capture) {
            let queue = self.streams.get_mut(stream)?;
            self.added_waits += u64::from(point.reached_ns > now_ns);
            queue.busy_until_ns = queue.busy_until_ns.max(point.reached_ns);
            self.oracle.iter_mut().for_each(|oracle| oracle.order.stream(index).join(&point.clock));
        }
        Ok(address)
    }

    pub(crate) fn free_async(&mut self, address: u64, stream: Stream) -> Result<(), ErrorCode> {
        let (index, capture) = self.async_stream(stream)?;
        let (pool, bytes, owner) = self.memory.pools.owner_of(address)?;
        let reached_ns = match (capture, owner) {
            // A graph frees what graphs allocated, and never anything else.
            (Some(_), Owner::Pool) => return Err(ErrorCode::InvalidValue),
            // Until the graph has run there is nothing to free outside of it.
            (None, Owner::Graph { has_run: false }) => return Err(ErrorCode::InvalidValue),
            (Some(_), Owner::Graph { .. }) => u64::MAX,
            // Known of as an event there would be.
            (None, _) => {
                let queue = self.streams.get_mut(stream)?;
                let done_ns = queue.busy_until_ns.max(self.clock.now_ns());
                let known_ns = done_ns.saturating_add(self.config.event_latency_ns);
                queue.marked_until_ns = queue.marked_until_ns.max(known_ns);
                queue.marked_until_ns
            }
        };
        let mut point = FreePoint { stream: Some(index), reached_ns, ..FreePoint::default() };
        if let Some(oracle) = &mut self.oracle {
            oracle.freed_in_order(&mut self.log, address, bytes, index);
            point.clock = oracle.order.stream(index).clone();
        }
        pool.free(address, point);
        Ok(())
    }

    /// The life of a capture's graph ends, and with it the graph's memory.
    pub(crate) fn end_graph(&mut self, capture: u64) {
        let Some(mut pool) = self.memory.pools.take_graph(capture) else { return };
        let gone = pool.give_all_back(&mut self.memory.supply);
        if let Some(oracle) = &mut self.oracle {
            for piece in gone {
                oracle.freed(&mut self.log, Call::FreeAsync, piece.address, piece.bytes);
                oracle.physical_gone(piece.physical, piece.bytes);
            }
        }
    }

    /// A synchronising call lets memory pools give idle memory back.
    pub(crate) fn trim_pools(&mut self) {
        let now_ns = self.clock.now_ns();
        let (supply, oracle) = (&mut self.memory.supply, &mut self.oracle);
        self.memory.pools.trim_each(now_ns, |pool, keep_bytes| {
            let gone = pool.trim(supply, keep_bytes);
            if let Some(oracle) = oracle {
                gone.iter().for_each(|piece| oracle.physical_gone(piece.physical, piece.bytes));
            }
        });
    }

    fn check_async_malloc(&self) -> Result<(), ErrorCode> {
        if self.config.has_async_malloc { Ok(()) } else { Err(ErrorCode::NotSupported) }
    }

    /// The index of a stream that allocates or frees in its order, and the capture it is part of.
    fn async_stream(&self, stream: Stream) -> Result<(u32, Option<u64>), ErrorCode> {
        self.check_async_malloc()?;
        let queue = self.streams.get(stream)?;
        let capture = queue.capture.as_ref().map(|membership| membership.capture);
        capture.map_or(Ok(()), |capture| self.captures.check_intact(capture))?;
        Ok((queue.index, capture))
    }
}
