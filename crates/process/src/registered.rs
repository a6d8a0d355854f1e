//! Memory that a library has registered by its address: a network card's, NCCL's, a disk's.
//!
//! Invariant: what is in the table is pinned once for each time that it was registered. It stays
//! where it is, also once it is free, until the library gives it up.

use std::ops::Range;

use parking_lot::Mutex;

use crate::device::Device;
use crate::{check, registry};

/// By the library, and what that calls it.
type Name = (&'static str, usize);

/// Memory that was registered, until it is given up.
pub struct Registered {
    name: Name,
    /// The call that did it.
    call: &'static str,
    /// What it belongs to, whose end gives it up: 0 for nothing.
    owner: usize,
    held: Held,
}

/// Looked through for each that is given up: a library has a few thousand at most.
static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Memory of ours that stays where it is until this is dropped.
pub struct Held {
    device: &'static Device,
    addresses: Range<u64>,
}

impl Held {
    /// Memory that is about to be registered; `None` if it is none of ours.
    pub fn new(addresses: Range<u64>) -> Option<Self> {
        check().ok()?;
        let mut devices = registry::in_use();
        let device =
            devices.find(|device| device.allocator.pin_range(addresses.clone()).is_ok())?;
        Some(Self { device, addresses })
    }

    /// It is registered, and stays until it is given up by its name.
    pub fn keep(self, call: &'static str, name: Name, owner: usize) {
        Registered { name, call, owner, held: self }.keep();
    }
}

impl Registered {
    /// Back into the table: it was not given up.
    pub fn keep(self) {
        if check().is_ok() {
            REGISTERED.lock().push(self);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if check().is_ok() {
            let _ = self.device.allocator.unpin_range(self.addresses.clone());
        }
    }
}

/// What a library is about to give up, as it was registered last by this name. Out of the table
/// before the library's call, since the name may be another's from then on.
///
/// What belongs to an owner is taken by it and its name. None has the name 0, and a forked child
/// has nothing.
pub fn take(name: Name, owner: usize) -> Option<Registered> {
    check().ok().filter(|()| name.1 != 0)?;
    let mut all = REGISTERED.lock();
    let at = all.iter().rposition(|one| one.name == name && one.owner == owner)?;
    // In their order: what has one name is given up from the last on.
    Some(all.remove(at))
}

/// All that was registered by a name.
pub fn take_named(name: Name) -> Vec<Registered> {
    take_out(|one| one.name == name)
}

/// What belongs to an owner, which ends and gives up all.
pub fn take_all(library: &'static str, owner: usize) -> Vec<Registered> {
    take_out(|one| (one.name.0, one.owner) == (library, owner))
}

fn take_out(is_gone: impl Fn(&Registered) -> bool) -> Vec<Registered> {
    if check().is_err() {
        return Vec::new();
    }
    REGISTERED.lock().extract_if(.., |one| is_gone(one)).collect()
}

/// What a call has registered of a device.
pub struct Kept {
    /// The call.
    pub call: &'static str,
    /// How many ranges.
    pub ranges: u64,
    /// Of all of them.
    pub bytes: u64,
}

/// What is registered of a device now.
pub fn of_device(ordinal: u32) -> Vec<Kept> {
    let mut found: Vec<Kept> = Vec::new();
    for one in REGISTERED.lock().iter().filter(|one| one.held.device.ordinal == ordinal) {
        let bytes = one.held.addresses.end - one.held.addresses.start;
        match found.iter_mut().find(|kept| kept.call == one.call) {
            Some(kept) => (kept.ranges, kept.bytes) = (kept.ranges + 1, kept.bytes + bytes),
            None => found.push(Kept { call: one.call, ranges: 1, bytes }),
        }
    }
    found
}

/// A device is about to be forgotten: what was registered of it is gone.
pub fn forget_device(ordinal: u32) {
    drop(take_out(|one| one.held.device.ordinal == ordinal));
}
