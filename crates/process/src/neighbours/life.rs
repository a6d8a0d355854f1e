//! Who a process is, and whether it still lives.
//!
//! A process that is killed leaves its slot as it was. The kernel tells: it held a lock of the
//! board's file, which ends with it, also where its number means nothing here (another container).
//! A forked child keeps such a lock, though, so where the number means something the process must
//! be there, too, and have begun when it says; numbers are used again.

use std::ffi::{CStr, c_int};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Locks one byte of a file for this opening of it. False if another has it.
pub(super) fn lock(file: &OwnedFd, byte: usize) -> bool {
    control(file, libc::F_OFD_SETLK, libc::F_WRLCK, byte).is_some()
}

/// Gives a lock up. It ends with the process otherwise, since mappings keep the file open.
pub(super) fn unlock(file: &OwnedFd, byte: usize) {
    control(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
}

/// Whether another opening of a file has a byte locked.
pub(super) fn is_locked(file: &OwnedFd, byte: usize) -> bool {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte);
    found.is_some_and(|found| found != libc::F_UNLCK as i16)
}

/// The kind of lock that a call of the kernel answers with; `None` if it fails.
fn control(file: &OwnedFd, command: c_int, kind: c_int, byte: usize) -> Option<i16> {
    // SAFETY: a plain C struct of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (byte as libc::off_t, 1);
    // SAFETY: the kernel reads and writes the struct during the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    (done == 0).then_some(lock.l_type)
}

/// Where process numbers mean what they mean here; 0 where that cannot be told.
pub(super) fn namespace() -> u64 {
    inode(c"/proc/self/ns/pid").unwrap_or(0)
}

/// The number of the file that a path leads to.
pub(super) fn inode(path: &CStr) -> Option<u64> {
    // SAFETY: a plain C struct of numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string; writes the struct.
    let told = unsafe { libc::stat(path.as_ptr(), &raw mut found) };
    (told == 0).then_some(found.st_ino as u64)
}

/// When a process began, in ticks since the machine did, cut to 32 bits (497 days at 100 Hz);
/// `None` if there is none, or it is over and only waits to be buried.
pub(super) fn began(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name, in brackets, may have anything in it.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    // The 22nd field of proc(5), the 19th after the state.
    let began: u64 = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began as u32)
}

/// What this program is called, cut to 16 bytes.
pub(super) fn name() -> [u8; 16] {
    let mut name = [0; 16];
    let text = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let text = text.trim_end().as_bytes();
    let length = text.len().min(name.len());
    name[..length].copy_from_slice(&text[..length]);
    name
}
