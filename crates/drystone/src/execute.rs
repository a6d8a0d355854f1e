//! Execute: carries a plan out against the driver, with no lock of the heap held.
//!
//! Keeps the driver's half of P4 and I13: when a step of an all-or-nothing plan fails, the steps
//! before it are undone in reverse order, and the heap is told how many could not be.

use std::sync::Arc;

use drystone_core::{GranuleId, Plan, Step};
use drystone_driver::{Driver, DriverError, Handle, MemoryPool, MemoryPoolConfig};
use parking_lot::Mutex;

use crate::announcer::Announcer;
use crate::events::Events;
use crate::supply::{MemoryProvider, MemoryProviders, supplied};

/// A plan that was not carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) error: DriverError,
    /// How many leading steps are still in effect.
    pub(crate) in_effect: usize,
}

/// What plans act on.
pub(crate) struct Executor<'a> {
    pub(crate) driver: &'a dyn Driver,
    pub(crate) events: &'a Mutex<Events>,
    pub(crate) handles: &'a Mutex<Handles>,
    pub(crate) suppliers: &'a Mutex<MemoryProviders>,
    pub(crate) announcer: &'a Announcer,
    /// Who gives plain memory in the driver's place.
    pub(crate) supplier: Option<Arc<dyn MemoryProvider>>,
}

impl Executor<'_> {
    /// Does every step. Returns the address that a `Reserve` or `Malloc` step gave, else 0.
    /// Whatever is in effect then, is announced.
    pub(crate) fn carry_out(&self, plan: &Plan) -> Result<u64, Failure> {
        let carried_out = self.do_steps(plan);
        let (in_effect, given) = match &carried_out {
            Ok(given) => (plan.steps().len(), *given),
            Err(failure) => (failure.in_effect, 0),
        };
        let ordinal = || self.driver.info().ordinal;
        self.announcer.announce(ordinal, &plan.steps()[..in_effect], given);
        carried_out
    }

    fn do_steps(&self, plan: &Plan) -> Result<u64, Failure> {
        let mut given = 0;
        for (at, step) in plan.steps().iter().enumerate() {
            match self.step(step) {
                Ok(address) => given = address.unwrap_or(given),
                Err(error) if plan.is_all_or_nothing() => {
                    return Err(Failure { error, in_effect: self.undo(&plan.steps()[..at]) });
                }
                Err(error) => {
                    return Err(Failure { error, in_effect: at });
                }
            }
        }
        Ok(given)
    }

    fn step(&self, step: &Step) -> Result<Option<u64>, DriverError> {
        let driver = self.driver;
        match *step {
            Step::Reserve { bytes, alignment } => driver.reserve(bytes, alignment).map(Some),
            Step::Malloc { bytes } => self.malloc(bytes).map(Some),
            Step::Unreserve { address, bytes } => driver.unreserve(address, bytes).map(|()| None),
            Step::Create { granule, bytes } => {
                let handle = driver.create(bytes)?;
                self.handles.lock().set(granule, handle);
                Ok(None)
            }
            Step::Release { granule } => {
                let handle = self.handles.lock().get(granule);
                driver.release(handle).map(|()| None)
            }
            Step::Map { address, bytes, granule } => {
                let handle = self.handles.lock().get(granule);
                driver.map(address, bytes, handle).map(|()| None)
            }
            Step::SetAccess { address, bytes } => driver.set_access(address, bytes).map(|()| None),
            Step::Unmap { address, bytes } => driver.unmap(address, bytes).map(|()| None),
            Step::Free { address, .. } => self.free(address).map(|()| None),
            Step::Record { fence } => self.events.lock().record(driver, fence).map(|()| None),
            Step::Wait { stream, fence } => {
                self.events.lock().wait(driver, stream, fence).map(|()| None)
            }
            Step::SynchronizeDevice => driver.synchronize_device().map(|()| None),
        }
    }

    #[inline(never)]
    fn malloc(&self, bytes: u64) -> Result<u64, DriverError> {
        let Some(supplier) = &self.supplier else { return self.driver.malloc(bytes) };
        let address = supplied(&**supplier, bytes)?;
        self.suppliers.lock().note(address, bytes, Arc::clone(supplier));
        Ok(address)
    }

    #[inline(never)]
    fn free(&self, address: u64) -> Result<(), DriverError> {
        let supplied = self.suppliers.lock().leave(address);
        match supplied {
            Some((bytes, supplier)) => {
                supplier.take_back(address, bytes);
                Ok(())
            }
            None => self.driver.free(address),
        }
    }

    /// Undoes steps, last first, until one cannot be undone. Returns how many are left.
    fn undo(&self, steps: &[Step]) -> usize {
        let driver = self.driver;
        for (at, step) in steps.iter().enumerate().rev() {
            let undone = match *step {
                Step::Create { granule, .. } => {
                    let handle = self.handles.lock().get(granule);
                    driver.release(handle)
                }
                Step::Map { address, bytes, .. } => driver.unmap(address, bytes),
                // Access goes with the mapping; what else there is to undo is the last step of its
                // plan.
                _ => Ok(()),
            };
            if undone.is_err() {
                return at + 1;
            }
        }
        0
    }
}

/// The driver's handles of granules and of memory pools, by name.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    table: Vec<Handle>,
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
        if self.memory_pools.len() <= pool {
            self.memory_pools.resize(pool + 1, None);
        }
        self.memory_pools[pool] = handle;
    }

    /// Every memory pool that was made, with the position of its pool.
    pub(crate) fn memory_pools(&self) -> Vec<(usize, MemoryPool)> {
        let pools = self.memory_pools.iter().enumerate();
        pools.filter_map(|(at, &pool)| Some((at, pool?))).collect()
    }

    fn set(&mut self, granule: GranuleId, handle: Handle) {
        if self.table.len() <= granule.index() {
            self.table.resize(granule.index() + 1, Handle(0));
        }
        self.table[granule.index()] = handle;
    }

    /// The handle of a granule that was created.
    fn get(&self, granule: GranuleId) -> Handle {
        self.table.get(granule.index()).copied().unwrap_or(Handle(0))
    }
}
