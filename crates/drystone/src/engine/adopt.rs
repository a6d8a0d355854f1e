//! Memory that other processes give as it is: handles of theirs become ours.
//!
//! Invariant: a handle is taken in once the driver has mapped it in the size that whoever gave it
//! says. Whatever fails, the memory goes back to the device with its descriptor.

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

    /// Takes handles in, as far as the limit leaves room.
    pub(super) fn adopt(&self, loose: Vec<LooseHandle>) {
        let BackendState::Heap(heap) = &self.backend else { return };
        let driver = &*self.executor.driver;
        if loose.is_empty() || self.refuse_at_the_end().is_err() {
            return;
        }
        let Ok(_relaxed) = Relaxed::enter(driver) else { return };
        let _growth = self.growth.lock();
        if self.executor.refuse_in_capture(Call::Import).is_err() {
            return;
        }
        let imported = self.import_mapped(&loose).unwrap_or_default();
        let sizes = imported.iter().map(|one| one.1);
        let named = heap.change(|heap| Giving::of(heap).adopt(sizes)).unwrap_or_default();
        for (at, &(handle, _)) in imported.iter().enumerate() {
            match named.get(at) {
                Some(&granule) => self.executor.handles.lock().set(granule, Some(handle)),
                // What the driver keeps now it keeps to the end: nobody has a name for it.
                None => drop(driver.release(handle)),
            }
        }
    }

    /// Handles of what descriptors lead to, each of which was mapped in its whole size.
    fn import_mapped(&self, loose: &[LooseHandle]) -> Result<Vec<(Handle, u64)>, DriverError> {
        let driver = &*self.executor.driver;
        let info = driver.info();
        let is_size =
            |bytes: u64| bytes.is_multiple_of(info.granularity_bytes) && bytes <= info.total_bytes;
        let loose = loose.iter().filter(|one| one.bytes > 0 && is_size(one.bytes));
        let total_bytes = loose.clone().map(|one| one.bytes).fold(0, u64::saturating_add);
        let mut probe = Mapping::reserved(driver.reserve(total_bytes, 0)?, total_bytes);
        let imported = loose.filter_map(|one| {
            let handle = driver.import(&one.descriptor).ok()?;
            if probe.map(driver, handle, one.bytes).is_err() {
                let _ = driver.release(handle);
                return None;
            }
            Some((handle, one.bytes))
        });
        let imported = imported.collect();
        if probe.give_back(driver).is_err() {
            self.imports.closed.lock().push(probe);
        }
        Ok(imported)
    }
}
