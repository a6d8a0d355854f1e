//! Memory that other processes give as it is: handles of theirs become ours.
//!
//! Invariant: a handle is adopted once the driver has mapped it in the size that the giver says,
//! and keeps the descriptor that it came by, to be given on or exported. Whatever fails, the
//! memory goes back to the device with its descriptor.

use drystone_core::{Giving, SegmentKind};
use drystone_driver::{Call, DriverError, Handle, Relaxed, ShareableHandle};

use super::Engine;
use super::imports::Mapping;
use crate::backend::BackendState;
use crate::neighbours::LooseHandle;

impl Engine {
    /// Whether handles of others can become this allocator's.
    pub(super) fn takes_handles(&self) -> bool {
        let info = self.executor.driver.info();
        let BackendState::Heap(heap) = &self.backend else { return false };
        heap.read().config().kind == SegmentKind::Mapped
            && info.shareable_handle != ShareableHandle::None
            && !info.is_integrated
            && self.executor.refuse_in_capture(Call::Import).is_ok()
    }

    /// Takes handles in, as far as the limit leaves room. True if it took any.
    pub(super) fn adopt(&self, loose: Vec<LooseHandle>) -> bool {
        let BackendState::Heap(heap) = &self.backend else { return false };
        let driver = &*self.executor.driver;
        if loose.is_empty() || self.refuse_at_the_end().is_err() {
            return false;
        }
        let Ok(_relaxed) = Relaxed::enter(driver) else { return false };
        let _growth = self.growth.lock();
        if self.executor.refuse_in_capture(Call::Import).is_err() {
            return false;
        }
        let imported = self.import_mapped(loose).unwrap_or_default();
        let sizes = imported.iter().map(|(_, one)| one.bytes);
        let named = heap.change(|heap| Giving::of(heap).adopt(sizes)).unwrap_or_default();
        let has_taken = !named.is_empty();
        let mut named = named.into_iter();
        for (handle, LooseHandle { descriptor, .. }) in imported {
            match named.next() {
                Some(granule) => self.executor.handles.lock().adopt(granule, handle, descriptor),
                // What the driver keeps now it keeps to the end: nobody has a name for it.
                None => drop(driver.release(handle)),
            }
        }
        has_taken
    }

    /// Handles of what descriptors lead to, each of which was mapped in its whole size: as many as
    /// descriptors may stay open, the largest.
    fn import_mapped(
        &self,
        mut loose: Vec<LooseHandle>,
    ) -> Result<Vec<(Handle, LooseHandle)>, DriverError> {
        let driver = &*self.executor.driver;
        let info = driver.info();
        let is_size =
            |bytes: u64| bytes.is_multiple_of(info.granularity_bytes) && bytes <= info.total_bytes;
        loose.retain(|one| one.bytes > 0 && is_size(one.bytes));
        let descriptors_max = self.neighbours.get().map_or(0, |one| one.descriptors_max());
        let most = descriptors_max.saturating_sub(self.executor.handles.lock().adopted());
        while loose.len() > most
            && let Some(least) = (0..loose.len()).min_by_key(|&at| loose[at].bytes)
        {
            loose.swap_remove(least);
        }
        let total_bytes = loose.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        let mut probe = Mapping::reserved(driver.reserve(total_bytes, 0)?, total_bytes);
        let imported = loose.into_iter().filter_map(|one| {
            let handle = driver.import(&one.descriptor).ok()?;
            if probe.map(driver, handle, one.bytes).is_err() {
                let _ = driver.release(handle);
                return None;
            }
            Some((handle, one))
        });
        let imported = imported.collect();
        if probe.give_back(driver).is_err() {
            self.imports.closed.lock().push(probe);
        }
        Ok(imported)
    }
}
