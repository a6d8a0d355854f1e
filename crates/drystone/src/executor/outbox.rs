//! [`Outbox`]: handles that go to another process as they are. Creating memory takes a hundred
//! times as long as a descriptor for what is there.
//!
//! Invariant: what is in it was released here, so that nobody but its descriptor keeps it: with
//! that the memory goes back to the device.

use drystone_core::GranuleId;

use crate::neighbours::LooseHandle;

/// What is about to go, and what has gone.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Handles that are to go once they are released, with their sizes.
    wanted: Vec<(GranuleId, u64)>,
    loose: Vec<LooseHandle>,
}

impl Outbox {
    /// These are to go, with their sizes in bytes.
    pub(crate) fn want(&mut self, handles: Vec<(GranuleId, u64)>) {
        self.wanted = handles;
    }

    /// What has gone since. Nothing is to go any more.
    pub(crate) fn take(&mut self) -> Vec<LooseHandle> {
        self.wanted.clear();
        std::mem::take(&mut self.loose)
    }

    /// The size of a handle that is to go.
    pub(crate) fn wanted_bytes(&self, granule: GranuleId) -> Option<u64> {
        self.wanted.iter().find(|one| one.0 == granule).map(|one| one.1)
    }

    /// It was released.
    pub(crate) fn put(&mut self, handle: Option<LooseHandle>) {
        self.loose.extend(handle);
    }
}
