//! Streams of which somebody says that they were created, used by an allocator or not: they stand
//! still while memory moves.

use std::sync::atomic::{AtomicBool, Ordering};

use drystone::address_calls;
use drystone::driver::Stream;
use parking_lot::{Mutex, MutexGuard};

/// Streams of which somebody says that they were created, and that never end.
static CREATED: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

/// Whether every stream that may use memory is one of these, or is brought by a request or a use.
static ALL_TOLD: AtomicBool = AtomicBool::new(false);

/// A stream was created that never ends. Nobody uses it before that returns.
pub fn created(handle: u64) {
    address_calls::run(|| CREATED.lock().push(Stream(handle)));
}

/// From now on of every stream that may use memory somebody says that it was created, or brings it.
pub(crate) fn all_told() {
    ALL_TOLD.store(true, Ordering::Relaxed);
}

/// Whether that is so.
pub(crate) fn are_all_told() -> bool {
    ALL_TOLD.load(Ordering::Relaxed)
}

/// The streams that were created.
pub(crate) fn lock() -> MutexGuard<'static, Vec<Stream>> {
    CREATED.lock()
}
