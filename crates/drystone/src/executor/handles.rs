//! Handles: which handle of the driver's stands for which granule, which memory pool for which
//! pool, and which descriptor other processes know a handle by.
//!
//! Invariants: the driver never sees a handle that it did not give, or that was released; a handle
//! has one descriptor at most, which is closed before it is released, or goes along with it.

use std::sync::Arc;

use drystone_core::GranuleId;
use drystone_driver::{
    Call, Descriptor, DriverError, ErrorCode, Handle, MemoryPool, MemoryPoolConfig,
};

/// The driver's handles of granules and of memory pools, by name.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    table: Vec<Option<Handle>>,
    exported: Vec<Option<Arc<Descriptor>>>,
    /// What handles came by that another process made: the driver need not make a second one. A
    /// list: one more kind of map would be more code than it saves time.
    adopted: Vec<(GranuleId, Descriptor)>,
    memory_pools: Vec<Option<MemoryPool>>,
    /// How memory pools are made.
    pub(crate) config: MemoryPoolConfig,
}

impl Handles {
    pub(crate) fn with_config(config: MemoryPoolConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// The memory pool of the pool at a position, if it was made.
    pub(crate) fn memory_pool(&self, pool: usize) -> Option<MemoryPool> {
        self.memory_pools.get(pool).copied().flatten()
    }

    pub(crate) fn set_memory_pool(&mut self, pool: usize, handle: Option<MemoryPool>) {
        *place(&mut self.memory_pools, pool) = handle;
    }

    /// Every memory pool that was made, with the position of its pool.
    pub(crate) fn memory_pools(&self) -> Vec<(usize, MemoryPool)> {
        let pools = self.memory_pools.iter().enumerate();
        pools.filter_map(|(at, &pool)| Some((at, pool?))).collect()
    }

    /// Notes the handle of a granule that was created, or that it was released.
    pub(crate) fn set(&mut self, granule: GranuleId, handle: Option<Handle>) {
        *place(&mut self.table, granule.index()) = handle;
    }

    /// The descriptor of a granule's handle, if it has one, for others to have.
    pub(crate) fn descriptor(&mut self, granule: GranuleId) -> Option<Arc<Descriptor>> {
        if let Some(adopted) = self.take_adopted(granule) {
            self.set_descriptor(granule, &Arc::new(adopted));
        }
        self.exported.get(granule.index())?.clone()
    }

    /// Every descriptor that is open.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        let exported = self.exported.iter().flatten().map(|descriptor| &**descriptor);
        exported.chain(self.adopted.iter().map(|one| &one.1))
    }

    /// Closes the descriptor of a granule's handle, if it has one and nobody else holds it. One
    /// that the handle came by is the caller's.
    pub(crate) fn close_descriptor(&mut self, granule: GranuleId) -> Option<Descriptor> {
        if let Some(exported) = self.exported.get_mut(granule.index()) {
            *exported = None;
        }
        self.take_adopted(granule)
    }

    fn take_adopted(&mut self, granule: GranuleId) -> Option<Descriptor> {
        let at = self.adopted.iter().position(|one| one.0 == granule)?;
        Some(self.adopted.swap_remove(at).1)
    }

    /// Notes a handle that another process made, with what it came by.
    pub(crate) fn adopt(&mut self, granule: GranuleId, handle: Handle, descriptor: Descriptor) {
        self.set(granule, Some(handle));
        self.adopted.push((granule, descriptor));
    }

    /// How many such handles there are that nobody else has.
    pub(crate) fn adopted(&self) -> usize {
        self.adopted.len()
    }

    /// Notes the descriptor of a granule's handle.
    pub(crate) fn set_descriptor(&mut self, granule: GranuleId, descriptor: &Arc<Descriptor>) {
        *place(&mut self.exported, granule.index()) = Some(Arc::clone(descriptor));
    }

    /// The handle of a granule, for a call.
    ///
    /// Errors: it was not created, or released since. That is a bug, and no driver is asked.
    pub(crate) fn get(&self, call: Call, granule: GranuleId) -> Result<Handle, DriverError> {
        let handle = self.table.get(granule.index()).copied().flatten();
        handle.ok_or(DriverError::new(call, ErrorCode::NoHandle))
    }
}

/// The place of a position in a table, which grows up to it.
fn place<T>(table: &mut Vec<Option<T>>, at: usize) -> &mut Option<T> {
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    &mut table[at]
}

#[cfg(test)]
mod tests {
    use super::Handles;
    use drystone_core::{
        Config, Heap, Outcome, PoolId, Prefer, Reuse, SegmentKind, StateMachine, Step,
    };
    use drystone_driver::{Call, ErrorCode, Handle};

    #[test]
    fn a_handle_that_is_not_there_is_an_error_and_not_handle_0() {
        let config = Config::new(SegmentKind::Mapped, 2 << 20, 1 << 30);
        let config = config.with_prefer(Prefer::Memory).with_left_per_handle(u64::MAX);
        let mut heap = Heap::new(config);
        let stream = heap.add_stream();
        let mut granules = Vec::new();
        for _ in 0..2 {
            let outcome = heap.request(PoolId::DEFAULT, stream, 4 << 20, Reuse::MayWait).unwrap();
            let Outcome::Plan(plan) = outcome else { panic!("{outcome:?}") };
            granules.extend(plan.steps().iter().filter_map(|step| match *step {
                Step::Create { granule, .. } => Some(granule),
                _ => None,
            }));
            heap.commit(plan, 1 << 40);
        }
        let mut handles = Handles::default();
        handles.set(granules[1], Some(Handle(7)));
        assert_eq!(handles.get(Call::Map, granules[1]), Ok(Handle(7)));
        handles.set(granules[1], None);
        for granule in granules {
            let error = handles.get(Call::Map, granule).unwrap_err();
            assert_eq!((error.call, error.code), (Call::Map, ErrorCode::NoHandle));
        }
    }
}
