//! [`Inbox`]: where handles arrive that neighbours give as they are.
//!
//! Invariant: who gives sends all of them before it answers the wish. What comes after that wish is
//! over serves the next one, or goes back to the device.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use drystone::LooseHandle;

use crate::descriptors::{connect, listen, prepare, random, receive, send};

/// How long one side waits for the other: all has been sent when the other looks.
const PATIENCE: Duration = Duration::from_millis(20);
/// How many handles are taken in at once: more than any neighbour sends.
const LOOSE_MAX: usize = 1024;
/// How many neighbours' are looked at at once.
const SENDERS_MAX: usize = super::board::SLOTS;

/// A socket of this process's own.
pub(super) struct Inbox {
    name: u64,
    listener: UnixListener,
}

impl Inbox {
    /// Under a fresh name. `None` where there can be none: then memory goes by way of the device.
    pub(super) fn open() -> Option<Self> {
        let name = random().filter(|&name| name != 0)?;
        let listener = listen(name).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(Self { name, listener })
    }

    /// What others send to.
    pub(super) const fn name(&self) -> u64 {
        self.name
    }

    /// What has arrived. Where the system cannot hand it out, as without a descriptor left, the
    /// inbox goes, and with it what is in there.
    pub(super) fn take(inbox: &mut Option<Self>) -> Vec<LooseHandle> {
        let mut loose = Vec::new();
        for _ in 0..SENDERS_MAX {
            let Some(Self { listener, .. }) = inbox else { break };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    *inbox = None;
                    break;
                }
            };
            if stream.set_nonblocking(false).is_err() || prepare(&stream, PATIENCE).is_err() {
                continue;
            }
            while loose.len() < LOOSE_MAX
                && let Ok(Some((descriptor, bytes))) = receive(&stream)
            {
                loose.push(LooseHandle { descriptor, bytes });
            }
        }
        loose
    }
}

impl AsRawFd for Inbox {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

/// How many descriptors of others' memory may stay open: a quarter of what the process may open, as
/// it has it by default, and no more than a device of large handles takes.
pub(super) fn descriptors_max() -> usize {
    const MOST: usize = 1024;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the struct.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if told == 0 { (limit.rlim_cur / 4).min(MOST as libc::rlim_t) as usize } else { 0 }
}

/// Sends handles to whom an inbox is by that name; 0 is nobody's. What cannot be sent goes back to
/// the device.
pub(super) fn deliver(name: u64, loose: Vec<LooseHandle>) {
    if name == 0 || loose.is_empty() {
        return;
    }
    let Ok(stream) = connect(name, PATIENCE) else { return };
    for LooseHandle { descriptor, bytes } in loose {
        if send(&stream, bytes, descriptor.as_raw_fd()).is_err() {
            return;
        }
    }
}
