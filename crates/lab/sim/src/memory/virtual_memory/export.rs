//! Physical memory that other processes know by a descriptor.
//!
//! Invariant: exported memory stays taken here while a descriptor of it is open in any process
//! (`cuMemRelease` in CUDA's driver API: freed "when all outstanding references to the handle,
//! including its shareable counterparts, are also released"). Nobody is told of their end, so it is
//! looked for whenever somebody asks what memory there is.

use super::{Holders, Object, VirtualMemory, is_granular};
use crate::memory::piece::{Physical, Piece};
use crate::memory::supply::Supply;
use crate::refuse::refuse;
use crate::shared_file::SharedFile;
use drystone_driver::{Descriptor, ErrorCode, Handle};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// The operating system has no descriptor or no memory left (`CUDA_ERROR_OPERATING_SYSTEM`).
const OPERATING_SYSTEM: ErrorCode = ErrorCode::Other(304);

impl VirtualMemory {
    /// The file behind the memory of a handle, made when it is first asked for.
    pub(crate) fn file_of(&mut self, handle: Handle) -> Result<Arc<SharedFile>, ErrorCode> {
        let physical = *self.handles.get(handle.0).ok_or(ErrorCode::InvalidHandle)?;
        let object = self.objects.get_mut(&physical).ok_or(ErrorCode::InvalidHandle)?;
        if let Some(file) = &object.file {
            return Ok(Arc::clone(file));
        }
        let file =
            Arc::new(SharedFile::new(self.ordinal, object.bytes).map_err(|_| OPERATING_SYSTEM)?);
        self.exports.by_file.insert(file.identity(), physical);
        object.file = Some(Arc::clone(&file));
        Ok(file)
    }

    pub(crate) fn export(
        &mut self,
        supply: &Supply,
        handle: Handle,
    ) -> Result<Descriptor, ErrorCode> {
        // No public source says that what was imported can be exported again.
        refuse(ErrorCode::NotSupported, self.exports.imported.contains(&handle.0))?;
        let file = self.file_of(handle)?;
        let descriptor = file.give().map_err(|_| OPERATING_SYSTEM)?;
        let physical = self.exports.by_file.get(&file.identity());
        if let Some(object) = physical.and_then(|physical| self.objects.get_mut(physical))
            && object.holders == Holders::Nobody
        {
            supply.note_exported(file.identity(), object.bytes)?;
            object.holders = Holders::Others;
        }
        Ok(descriptor)
    }

    /// A handle of this device's memory, or of memory of another process's, which is taken from
    /// this device, too.
    pub(crate) fn import(
        &mut self,
        supply: &mut Supply,
        descriptor: &Descriptor,
    ) -> Result<Handle, ErrorCode> {
        let file = SharedFile::of(descriptor.as_fd()).map_err(|_| ErrorCode::InvalidValue)?;
        refuse(ErrorCode::NotSupported, file.ordinal() != self.ordinal)?;
        let identity = file.identity();
        let known = self.exports.by_file.get(&identity).copied();
        let physical = match known {
            Some(physical) => physical,
            None if file.bytes() == 0 || !is_granular(file.bytes()) => {
                return Err(ErrorCode::InvalidValue);
            }
            None => {
                let bytes = file.bytes();
                let physical = supply.take_imported(identity, bytes)?;
                let (file, holders) = (Some(Arc::new(file)), Holders::Maker);
                let object = Object { bytes, handles: 0, mappings: 0, file, holders };
                self.objects.insert(physical, object);
                self.exports.by_file.insert(identity, physical);
                physical
            }
        };
        let object = self.objects.get_mut(&physical).ok_or(ErrorCode::InvalidValue)?;
        object.handles += 1;
        if object.holders == Holders::Descriptors {
            object.holders = Holders::Others;
            supply.note_outlived(identity, None);
        }
        self.exports.outlived.retain(|&other| other != physical);
        let handle = self.handles.insert(physical);
        self.exports.imported.insert(handle);
        Ok(Handle(handle))
    }

    /// Whether the memory, which nothing of this process's keeps, is kept by a descriptor. Memory
    /// of another process is that one's to keep.
    pub(super) fn is_kept(&mut self, supply: &Supply, physical: Physical) -> bool {
        let Some(object) = self.objects.get_mut(&physical) else { return false };
        let Some(file) = &object.file else { return false };
        if matches!(object.holders, Holders::Others | Holders::Descriptors) && file.is_given() {
            if std::mem::replace(&mut object.holders, Holders::Descriptors) == Holders::Others {
                supply.note_outlived(file.identity(), Some(file.as_fd().as_raw_fd()));
            }
            self.exports.outlived.push(physical);
            return true;
        }
        self.exports.by_file.remove(&file.identity());
        false
    }

    /// Gives back what only descriptors kept that are closed by now.
    pub(crate) fn look_at_exports(&mut self, supply: &mut Supply) -> Vec<Piece> {
        let outlived = std::mem::take(&mut self.exports.outlived);
        outlived.into_iter().filter_map(|physical| self.collect(supply, physical)).collect()
    }
}
