//! The last error of each thread, as `cudaGetLastError` tells and clears it.
//!
//! Errors that leave the context unusable stay: on a device nothing succeeds after them.

use std::cell::Cell;

use crate::error::{self, Status};

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(error::SUCCESS) };
}

/// Remembers an error, `cudaErrorNotReady` too, as the real runtime does; passes it on.
pub fn record(status: Status) -> Status {
    if status != error::SUCCESS {
        LAST.set(status);
    }
    status
}

/// Tells the last error of this thread and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> Status {
    let last = LAST.get();
    if !error::is_sticky(last) {
        LAST.set(error::SUCCESS);
    }
    last
}

/// Tells the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> Status {
    LAST.get()
}
