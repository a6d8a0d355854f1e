//! Memory for other processes, by a descriptor for each handle; and theirs.
//!
//! Invariants: what is exported is the memory of a live block, which stays where it is; a handle
//! keeps its descriptor until it is released. Imported memory belongs to no heap. It is unmapped
//! once the device has been idle since it was closed, since that waits for no kernel.

use std::ops::Range;
use std::sync::Arc;

use drystone_core::{Captured, FreeError, GranuleId, HandleAt, SharedBy, StateMachine as _, Whole};
use drystone_driver::{Call, Descriptor, DriverError, ErrorCode};

use super::Engine;
use super::imports::Mapping;
use crate::backend::BackendState;
use crate::out_of_memory::Stays;
use crate::share::{Behind, Exported, ExportedHandle, ShareError};

impl Engine {
    /// The descriptors of the memory of a live block.
    pub(crate) fn export(&self, address: u64) -> Result<Exported, ShareError> {
        let BackendState::Heap(heap) = &self.backend else { return Err(ShareError::DriversOwn) };
        let block = heap.change(|heap| heap.block_at(address)).map_err(FreeError::from)??;
        self.export_range(address..address + block.bytes)
    }

    /// The descriptors of the memory behind addresses.
    pub(crate) fn export_range(&self, addresses: Range<u64>) -> Result<Exported, ShareError> {
        let BackendState::Heap(heap) = &self.backend else { return Err(ShareError::DriversOwn) };
        self.refuse_at_the_end()?;
        let Range { start: address, end } = addresses;
        // No handle is released meanwhile.
        let _growth = self.growth.lock();
        self.bring_back();
        let handles = heap
            .change(|heap| heap.share(address..end, SharedBy::Export))
            .map_err(FreeError::from)??;
        let handles = handles.ok_or(ShareError::Plain { address })?;
        // Of addresses without memory nothing is given.
        let beside = |at: u64, of: &HandleAt| (of.address == at).then_some(at + of.bytes);
        let first = handles.first().map_or(end, |first| first.address);
        let reached = handles.iter().try_fold(first, beside);
        if first > address || reached.is_none_or(|reached| reached < end) {
            return Err(FreeError::Unknown { address }.into());
        }
        let exported = handles.iter().map(|handle| {
            let descriptor = self.descriptor_of(handle.granule)?;
            Ok(ExportedHandle { descriptor, bytes: handle.bytes })
        });
        let handles = exported.collect::<Result<_, DriverError>>()?;
        Ok(Exported { offset_bytes: address - first, handles })
    }

    /// Leaves memory behind addresses where it is while its blocks are live; whether it is ours.
    pub(crate) fn keep_in_place(&self, addresses: Range<u64>, by: SharedBy) -> bool {
        let BackendState::Heap(heap) = &self.backend else { return false };
        self.while_nothing_moves(|| {
            heap.change(|heap| heap.share(addresses, by)).is_ok_and(|handles| handles.is_ok())
        })
    }

    /// Gives the live block around an address one handle, if it can be, and leaves that where it
    /// is. `None` if there is no such block, it is plain memory, or a callback asks.
    pub(crate) fn make_whole(&self, address: u64) -> Option<Behind> {
        let BackendState::Heap(heap) = &self.backend else { return None };
        let before = heap.change(|heap| Whole::of(heap).handles(address)).ok()?.ok()?;
        if before == 0 || self.executor.calling_out.refuse_within().is_err() {
            return None;
        }
        let is_shared = || heap.change(|heap| Whole::of(heap).is_kept(address)).unwrap_or(false);
        if before == 1 && is_shared() {
            return Some(Behind { handles: 1, stays: None });
        }
        let _growth = self.growth.lock();
        let is_captured = || self.executor.refuse_in_capture(Call::Hold).is_err();
        let mut stays = self.stays(Captured::None);
        if stays.is_none() && is_captured() {
            stays = Some(Stays::Capture);
        }
        if stays.is_none() && self.refuse_at_the_end().is_ok() {
            self.bring_back();
            if before > 1
                && let Ok(free_bytes) = self.executor.free_bytes()
            {
                let _ = heap.change(|heap| Whole::of(heap).note_free(free_bytes));
            }
            let moved = self.compact_by(&|heap| Whole::of(heap).plan(address), None);
            if moved.moves > 0
                && !is_captured()
                && let Ok(Some(plan)) =
                    heap.change(|heap| Whole::of(heap).plan_release(moved.moved_bytes))
            {
                // What is not given back serves others.
                let _ = self.perform(plan);
            }
            stays = self.stays(Captured::None);
        }
        let handles = heap.change(|heap| Whole::of(heap).keep(address)).ok()?.ok()?;
        Some(Behind { handles, stays })
    }

    fn descriptor_of(&self, granule: GranuleId) -> Result<Arc<Descriptor>, DriverError> {
        let (known, handle) = {
            let mut handles = self.executor.handles.lock();
            (handles.descriptor(granule), handles.get(Call::Export, granule)?)
        };
        if let Some(descriptor) = known {
            return Ok(descriptor);
        }
        self.executor.refuse_in_capture(Call::Export)?;
        let descriptor = Arc::new(self.executor.driver.export(handle)?);
        self.executor.handles.lock().set_descriptor(granule, &descriptor);
        Ok(descriptor)
    }

    /// Maps memory that descriptors lead to, each with its size, beside each other. Returns where,
    /// and how many bytes that is.
    pub(crate) fn import(&self, handles: &[(&Descriptor, u64)]) -> Result<(u64, u64), ShareError> {
        self.refuse_at_the_end()?;
        let unit = self.executor.driver.info().granularity_bytes;
        let sizes = handles.iter().map(|&(_, bytes)| bytes);
        let is_whole = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(unit);
        let sum = sizes.clone().try_fold(0, u64::checked_add).filter(|&sum| sum > 0);
        let Some(total) = sum.filter(|_| sizes.clone().all(|bytes| is_whole(&bytes))) else {
            return Err(ShareError::Sizes { granularity_bytes: unit });
        };
        let driver = &*self.executor.driver;
        // Peers that are let in meanwhile find all of it or nothing.
        let _growth = self.growth.lock();
        self.executor.refuse_in_capture(Call::Import)?;
        let address = driver.reserve(total, 0)?;
        let mut mapping = Mapping::reserved(address, total);
        let mapped = handles.iter().try_for_each(|&(one, bytes)| mapping.add(driver, one, bytes));
        match mapped.and_then(|()| driver.set_access(address, total)) {
            Ok(()) => {
                self.imports.open.lock().push((address, total));
                Ok((address, total))
            }
            Err(error) => {
                // Nobody was told of it, so nobody uses it.
                if mapping.give_back(driver).is_err() {
                    self.imports.closed.lock().push(mapping);
                }
                Err(error.into())
            }
        }
    }

    /// Gives imported memory up.
    pub(crate) fn close_import(&self, address: u64) -> Result<(), ShareError> {
        let bytes = {
            let mut open = self.imports.open.lock();
            let known = open.iter().position(|&(start, _)| start == address);
            open.swap_remove(known.ok_or(ShareError::NotImported { address })?).1
        };
        let closed = Mapping::mapped(address, bytes);
        self.imports.closed.lock().push(closed);
        self.let_go_of_imports();
        Ok(())
    }

    /// Unmaps what was closed, once the device is idle. What cannot go now, as during a capture,
    /// goes with the next close or trim.
    pub(super) fn let_go_of_imports(&self) {
        if self.imports.closed.lock().is_empty() || self.refuse_at_the_end().is_err() {
            return;
        }
        let driver = &*self.executor.driver;
        let closed = std::mem::take(&mut *self.imports.closed.lock());
        let idle = {
            let _wait = self.wait.lock();
            let idle = self.executor.refuse_in_capture(Call::SynchronizeDevice);
            idle.and_then(|()| driver.synchronize_device())
        };
        // Who lets a peer in meanwhile finds all of it or nothing. A capture may have begun since.
        let _growth = self.growth.lock();
        if idle.and_then(|()| self.executor.refuse_in_capture(Call::Unmap)).is_err() {
            self.imports.closed.lock().extend(closed);
            return;
        }
        let left =
            closed.into_iter().filter_map(|mut one| one.give_back(driver).err().map(|_| one));
        let left: Vec<Mapping> = left.collect();
        self.imports.closed.lock().extend(left);
    }

    /// Opens imported memory to the peers that were let in since.
    pub(super) fn open_imports(&self) -> Result<(), DriverError> {
        let open = self.imports.open.lock().clone();
        open.into_iter().try_for_each(|(at, bytes)| self.executor.driver.set_access(at, bytes))
    }
}

impl From<DriverError> for ShareError {
    fn from(error: DriverError) -> Self {
        match (error.call, error.code) {
            (Call::Export, ErrorCode::NotSupported) => ShareError::NotShareable { error },
            _ => ShareError::Driver { error },
        }
    }
}
