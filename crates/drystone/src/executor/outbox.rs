//! [`Outbox`]: handles that go to another process as they are. Creating memory takes a hundred times
//! as long as a descriptor for what is there.
//!
//! Invariant: what is in it was released here, so that nobody but its descriptor keeps it: whoever
//! drops that gives the memory back to the device.

use drystone_core::GranuleId;
use drystone_driver::{Driver, Handle};
use parking_lot::Mutex;

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

    /// A descriptor for a handle that is about to be released, if it is to go. Where the driver
    /// makes none, nothing goes.
    pub(crate) fn export(
        outbox: &Mutex<Self>,
        driver: &dyn Driver,
        granule: GranuleId,
        handle: Handle,
    ) -> Option<LooseHandle> {
        let known = |wanted: &Vec<(GranuleId, u64)>| wanted.iter().find(|one| one.0 == granule).copied();
        let (_, bytes) = known(&outbox.lock().wanted)?;
        match driver.export(handle) {
            Ok(descriptor) => Some(LooseHandle { descriptor, bytes }),
            Err(_) => {
                outbox.lock().wanted.clear();
                None
            }
        }
    }

    /// It was released.
    pub(crate) fn put(&mut self, handle: Option<LooseHandle>) {
        self.loose.extend(handle);
    }
}
