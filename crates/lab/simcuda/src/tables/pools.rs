//! [`Pools`]: which memory pools a device has chosen, and whom they are open to.

use drystone_driver::MemoryPoolConfig;
use drystone_sim::SharedFile;
use drystone_sim::SimDevice;
use std::collections::HashMap;

/// What the driver API knows of a device's pools, by their values.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) default: Option<u64>,
    pub(crate) current: Option<u64>,
    /// Which other devices may reach a pool, as bits.
    pub(crate) opened_to: HashMap<u64, u64>,
    /// Files that stand for pools that were exported.
    pub(crate) files: HashMap<u64, SharedFile>,
}

impl Pools {
    /// The pools of a fresh device: its default pool, where it has any.
    pub(crate) fn new(device: &SimDevice) -> Self {
        let default = device.add_memory_pool(&MemoryPoolConfig::default());
        Self { default: default.ok().map(|pool| pool.0), ..Self::default() }
    }

    /// Which other devices may reach a pool, as bits.
    pub(crate) fn reachable_by(&self, pool: u64) -> u64 {
        self.opened_to.get(&pool).copied().unwrap_or(0)
    }

    /// How many there are that no program made.
    pub(crate) const fn initial(&self) -> usize {
        if self.default.is_some() { 1 } else { 0 }
    }
}
