//! A forked child has every descriptor of its parent's until it runs another program, and with them
//! the memory that they lead to: as workers that load data do for hours. So they are closed there.
//!
//! Invariant: no lock is waited for, which a thread may have had that is not in the child. What one
//! has at that moment stays open.

use std::os::fd::{AsRawFd, RawFd};

use parking_lot::Mutex;

use super::Table;

/// Those whose descriptors a child closes.
static TABLES: Mutex<Vec<&'static Table>> = Mutex::new(Vec::new());

unsafe extern "C" fn in_child() {
    // Their numbers stay taken: a later drop closes nothing of the child's own.
    // SAFETY: the path is a C string.
    let nothing = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if nothing < 0 {
        return;
    }
    let close = |descriptor: RawFd| {
        // SAFETY: both are open.
        unsafe { libc::dup3(nothing, descriptor, libc::O_CLOEXEC) };
    };
    if let Some(tables) = TABLES.try_lock() {
        tables.iter().for_each(|table| table.each_descriptor(close));
    }
    // SAFETY: opened above, and nobody else's.
    unsafe { libc::close(nothing) };
}

impl Table {
    /// Its descriptors are closed in children from now on.
    pub(super) fn close_in_children(&'static self) {
        let mut tables = TABLES.lock();
        if tables.is_empty() {
            // SAFETY: the handler waits for nothing and allocates nothing. Without it children
            // keep what they have.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        tables.push(self);
    }

    /// Calls for each descriptor that leads to memory, and for the inbox, which keeps what is in
    /// there.
    fn each_descriptor(&self, call: impl Fn(RawFd)) {
        if let Some(allocator) = self.allocator.get() {
            allocator.each_descriptor(&mut |descriptor| call(descriptor.as_raw_fd()));
        }
        if let Some(wishing) = self.wishing.try_lock()
            && let Some(inbox) = &wishing.inbox
        {
            call(inbox.as_raw_fd());
        }
    }
}
