//! [`SharedFile`]: a file in memory that stands for physical memory in every process.
//!
//! It takes memory only where it is written. Descriptors that are given away share a lock of the
//! file, which the operating system keeps for as long as one of their copies is open anywhere: so
//! it can be asked whether any is.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{File, OpenOptions, read_link};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// What the names of these files begin with, and of no others; the device's ordinal follows.
const NAME: &str = "drystone-sim-";

/// Tells two files apart, whatever descriptors lead to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// A file in memory, by a descriptor that is never given away.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    identity: FileIdentity,
    ordinal: u32,
    bytes: u64,
}

fn path(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

impl SharedFile {
    /// A fresh file of this size, for memory of a device.
    /// Errors: the operating system's: no descriptor is left, say.
    pub fn new(ordinal: u32, bytes: u64) -> io::Result<Self> {
        let file = File::from(memfd_create(format!("{NAME}{ordinal}"), MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        Self::of_file(file, ordinal)
    }

    /// The file that a descriptor leads to, which may be another process's.
    /// Errors: it leads to no such file.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let path = path(descriptor);
        let target = read_link(&path)?;
        let name =
            target.to_str().and_then(|name| name.strip_prefix("/memfd:")?.strip_prefix(NAME));
        let digits = name.and_then(|name| name.split(' ').next());
        let ordinal = digits.and_then(|digits| digits.parse().ok());
        let ordinal = ordinal.ok_or(io::ErrorKind::InvalidInput)?;
        Self::of_file(OpenOptions::new().read(true).write(true).open(path)?, ordinal)
    }

    /// The file that a process has open by that number.
    /// Errors: it has none, or no such file.
    pub fn of_process(process: u32, number: RawFd) -> io::Result<Self> {
        let path = format!("/proc/{process}/fd/{number}");
        Self::of(OpenOptions::new().read(true).write(true).open(path)?.as_fd())
    }

    fn of_file(file: File, ordinal: u32) -> io::Result<Self> {
        let data = file.metadata()?;
        let identity = FileIdentity { device: data.dev(), inode: data.ino() };
        Ok(Self { file, identity, ordinal, bytes: data.len() })
    }

    /// A descriptor for others.
    /// Errors: the operating system's.
    pub fn give(&self) -> io::Result<OwnedFd> {
        let given = OpenOptions::new().read(true).write(true).open(path(self.file.as_fd()))?;
        given.lock_shared()?;
        Ok(given.into())
    }

    /// Whether a descriptor that was given away is open, in any process.
    pub fn is_given(&self) -> bool {
        let is_none = self.file.try_lock().is_ok();
        if is_none {
            // Only this descriptor's own lock; nothing depends on it.
            let _ = self.file.unlock();
        }
        !is_none
    }

    /// Whether a descriptor is open that a process gave away of a file, which it has open itself by
    /// that number.
    pub(crate) fn is_given_by(process: u32, number: RawFd, identity: FileIdentity) -> bool {
        let path = format!("/proc/{process}/fd/{number}");
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.and_then(|file| Self::of_file(file, 0));
        file.is_ok_and(|file| file.identity == identity && file.is_given())
    }

    /// Which file it is.
    pub const fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Of which device the memory is.
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its size, in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::SharedFile;
    use std::os::fd::{AsFd, OwnedFd};

    #[test]
    fn it_is_known_whether_any_copy_of_a_given_descriptor_is_open() {
        let file = SharedFile::new(3, 4096).unwrap();
        assert!(!file.is_given());
        let given = file.give().unwrap();
        let copy = given.try_clone().unwrap();
        let again = SharedFile::of(copy.as_fd()).unwrap();
        assert_eq!((again.identity(), again.ordinal(), again.bytes()), (file.identity(), 3, 4096));
        drop(given);
        assert!(file.is_given() && again.is_given());
        drop(copy);
        assert!(!file.is_given() && !again.is_given());
        assert_ne!(SharedFile::new(3, 4096).unwrap().identity(), file.identity());
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let other = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(SharedFile::of(other.as_fd()).is_err());
    }
}
