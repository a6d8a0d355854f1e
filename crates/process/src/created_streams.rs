//! Streams of which somebody says that they were created, used by an allocator or not: they stand
//! still while memory moves.

use std::sync::atomic::{AtomicBool, Ordering};

use drystone::driver::Stream;
use parking_lot::Mutex;

use crate::registering;

/// Streams of which somebody says that they were created, and that never end: device and handle.
static CREATED: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());

/// Whether every stream that may use memory is one of these, or is brought by a request or a use.
static ALL_TOLD: AtomicBool = AtomicBool::new(false);

/// A stream was created that never ends.
pub fn created(device: u32, handle: u64) {
    CREATED.lock().push((device, handle));
}

/// From now on of every stream that may use memory somebody says that it was created, or brings it.
pub(crate) fn all_told() {
    ALL_TOLD.store(true, Ordering::Relaxed);
}

/// Whether that is so.
pub(crate) fn are_all_told() -> bool {
    ALL_TOLD.load(Ordering::Relaxed)
}

/// Whether somebody said so of a stream.
pub(crate) fn is_created(device: u32, handle: u64) -> bool {
    CREATED.lock().contains(&(device, handle))
}

/// Tells of a device's streams that were created, unless somebody registers memory by its address.
pub(crate) fn others(ordinal: u32, run: &mut dyn FnMut(Vec<Stream>)) {
    if registering::is_loaded() {
        return;
    }
    let created = CREATED.lock();
    let own = created.iter().filter(|one| one.0 == ordinal);
    run(own.map(|one| Stream(one.1)).collect());
}
