//! Memory of another device, or of the host, behind addresses of this one.
//!
//! NVIDIA's sample `vectorAddMMAP` maps memory of several devices side by side, and opens it to
//! one: no call of peer access is needed for that, only the ability.
//! Invariant: memory is its own device's alone, which keeps it while others have handles of it.

use super::{Holders, Object, VirtualMemory, is_granular};
use crate::memory::supply::Supply;
use crate::refuse::refuse;
use drystone_driver::{ErrorCode, Handle};

impl VirtualMemory {
    /// One more handle of memory, for another device to keep it by, and its size.
    pub(crate) fn one_more_handle(&mut self, handle: Handle) -> Result<(Handle, u64), ErrorCode> {
        let physical = *self.handles.get(handle.0).ok_or(ErrorCode::InvalidHandle)?;
        let object = self.objects.get_mut(&physical).ok_or(ErrorCode::InvalidHandle)?;
        object.handles += 1;
        Ok((Handle(self.handles.insert(physical)), object.bytes))
    }

    /// A handle of as much memory of another device, to be mapped here.
    pub(crate) fn foreign_handle(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
    ) -> Result<Handle, ErrorCode> {
        self.handle_of(Holders::OtherDevice, supply, bytes)
    }

    /// A handle of as much memory of the host.
    pub(crate) fn host_handle(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
    ) -> Result<Handle, ErrorCode> {
        self.handle_of(Holders::Host, supply, bytes)
    }

    /// Whether the mapping that holds an address leads to the host's memory.
    pub(crate) fn leads_to_host(&self, address: u64) -> bool {
        let object = self.mapping_at(address).and_then(|piece| self.objects.get(&piece.physical));
        object.is_some_and(|object| object.holders == Holders::Host)
    }

    fn handle_of(
        &mut self,
        holders: Holders,
        supply: &mut Supply,
        bytes: u64,
    ) -> Result<Handle, ErrorCode> {
        refuse(ErrorCode::InvalidValue, bytes == 0 || !is_granular(bytes))?;
        let physical = supply.number(bytes)?;
        self.objects
            .insert(physical, Object { bytes, handles: 1, mappings: 0, file: None, holders });
        Ok(Handle(self.handles.insert(physical)))
    }
}
