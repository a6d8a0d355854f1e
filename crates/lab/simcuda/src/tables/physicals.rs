//! [`Physicals`]: physical memory by handle and by mapping, and who may reach it.
//!
//! Invariant: it holds what the simulated device holds.

use crate::abi::MemoryProperties;
use crate::status::{INVALID_HANDLE, Outcome};
use drystone_driver::Handle;
use drystone_sim::{FileIdentity, SharedFile, SimDevice};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Physical memory, as long as a handle or a mapping keeps it.
#[derive(Debug)]
pub(crate) struct Physical {
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID` of every mapping of it.
    pub(crate) number: u64,
    pub(crate) properties: MemoryProperties,
    /// What lies behind it, once there is something or it was exported.
    pub(crate) file: OnceLock<Arc<SharedFile>>,
}

impl Physical {
    pub(crate) fn new(properties: MemoryProperties, file: OnceLock<Arc<SharedFile>>) -> Arc<Self> {
        Arc::new(Self { number: next_number(), properties, file })
    }
}

/// A number that no allocation of this process had before.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) physical: Arc<Physical>,
    pub(crate) references: u32,
}

#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) bytes: u64,
    pub(crate) physical: Arc<Physical>,
    /// Devices that may reach it, as bits.
    pub(crate) reachable_by: u64,
    /// Of memory that lies on another device.
    pub(crate) abroad: Option<Abroad>,
}

/// What keeps memory of another device while it is mapped.
#[derive(Debug)]
pub(crate) struct Abroad {
    pub(crate) ordinal: usize,
    pub(crate) owner: SimDevice,
    pub(crate) handle: Handle,
}

impl Abroad {
    /// The same once more.
    pub(crate) fn again(&self) -> Outcome<Self> {
        let (handle, _) = self.owner.one_more_handle(self.handle)?;
        Ok(Self { ordinal: self.ordinal, owner: self.owner.clone(), handle })
    }
}

impl Drop for Abroad {
    fn drop(&mut self) {
        // It was made for this alone.
        let _ = self.owner.give_up_handle(self.handle);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Physicals {
    /// By the device's value of the handle.
    pub(crate) held: HashMap<u64, Held>,
    pub(crate) mapped: BTreeMap<u64, Mapped>,
}

impl Physicals {
    pub(crate) fn mapping_at(&self, address: u64) -> Option<&Mapped> {
        self.mapping_around(address).map(|(_, mapping)| mapping)
    }

    /// The mapping that holds an address, with its start.
    pub(crate) fn mapping_around(&self, address: u64) -> Option<(u64, &Mapped)> {
        let (&start, mapping) = self.mapped.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((start, mapping))
    }

    /// The physical memory that a handle stands for.
    pub(crate) fn find(&self, value: u64) -> Outcome<Arc<Physical>> {
        self.held.get(&value).map(|held| Arc::clone(&held.physical)).ok_or(INVALID_HANDLE)
    }

    /// The handle of this very memory gets one more reference.
    pub(crate) fn retain(&mut self, physical: &Arc<Physical>) -> Option<u64> {
        let is_it = |(_, held): &(&u64, &mut Held)| Arc::ptr_eq(&held.physical, physical);
        let (&value, held) = self.held.iter_mut().find(is_it)?;
        held.references += 1;
        Some(value)
    }

    pub(crate) fn hold(&mut self, value: u64, physical: Arc<Physical>) {
        self.held.insert(value, Held { physical, references: 1 });
    }

    /// Memory of this device that the file is of.
    pub(crate) fn of_file(&self, identity: FileIdentity) -> Option<Arc<Physical>> {
        let held = self.held.values().map(|held| &held.physical);
        let mapped = self.mapped.values().map(|mapping| &mapping.physical);
        let is_it = |file: &Arc<SharedFile>| file.identity() == identity;
        held.chain(mapped).find(|one| one.file.get().is_some_and(is_it)).cloned()
    }
}
