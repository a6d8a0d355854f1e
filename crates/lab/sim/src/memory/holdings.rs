//! [`Holdings`]: what every process holds of devices that they share, in a file.
//!
//! A line for each process and device: its number, when it started, the device, the bytes that are
//! its own, and the files of memory that others may hold, too. The file is locked while it is read
//! and written. Invariants: memory that several processes hold counts once; a process that ended,
//! however it did, holds nothing.

use crate::refuse::refuse;
use crate::shared_file::{FileIdentity, SharedFile};
use drystone_driver::ErrorCode;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::{Read, Seek, Write};
use std::os::fd::RawFd;
use std::path::Path;

/// The operating system refuses the file (`CUDA_ERROR_OPERATING_SYSTEM`).
const OPERATING_SYSTEM: ErrorCode = ErrorCode::Other(304);

/// One process's part of one device.
#[derive(Debug, Default)]
struct Part {
    own_bytes: u64,
    files: BTreeMap<FileIdentity, Shared>,
}

/// Memory of a file that others may hold, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    bytes: u64,
    /// The process has neither handle nor mapping of it: only descriptors that were given away keep
    /// it, if any is open still. By this number it has the file open itself.
    outlived: Option<RawFd>,
}

/// Who: the process, when it started, and the ordinal of the device.
type Key = (u32, u64, u32);

type Parts = BTreeMap<Key, Part>;

/// A device's view of the file.
#[derive(Debug)]
pub(crate) struct Holdings {
    file: File,
    key: Key,
}

impl Holdings {
    /// A fresh device of this process, which holds nothing.
    ///
    /// Errors: the file cannot be opened, is no such file, or there is no `/proc`.
    pub(crate) fn open(path: &Path, ordinal: u32) -> Result<Self, ErrorCode> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let process = std::process::id();
        let started = started(process).ok_or(OPERATING_SYSTEM)?;
        let key = (process, started, ordinal);
        let holdings = Self { file: file.map_err(|_| OPERATING_SYSTEM)?, key };
        holdings.with(|parts, _| {
            parts.remove(&key);
            Ok(())
        })?;
        Ok(holdings)
    }

    /// What all processes hold of the device.
    pub(crate) fn used_bytes(&self) -> Result<u64, ErrorCode> {
        self.with(|parts, ordinal| Ok(used(parts, ordinal)))
    }

    /// Takes memory for this process, if there is as much of so many.
    pub(crate) fn take(&self, bytes: u64, total_bytes: u64) -> Result<(), ErrorCode> {
        self.change(|part, used| {
            refuse(ErrorCode::OutOfMemory, bytes > total_bytes.saturating_sub(used))?;
            part.own_bytes += bytes;
            Ok(())
        })
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        // A file that fails now failed nobody before, and tells the next who asks.
        let _ = self.change(|part, _| {
            part.own_bytes = part.own_bytes.saturating_sub(bytes);
            Ok(())
        });
    }

    /// Own memory stands for a file from now on, which other processes may hold, too.
    pub(crate) fn export(&self, file: FileIdentity, bytes: u64) -> Result<(), ErrorCode> {
        self.change(|part, _| {
            part.own_bytes = part.own_bytes.saturating_sub(bytes);
            part.files.insert(file, Shared { bytes, outlived: None });
            Ok(())
        })
    }

    /// Holds the memory of a file, which others hold already.
    pub(crate) fn import(&self, file: FileIdentity, bytes: u64) -> Result<(), ErrorCode> {
        self.change(|part, _| {
            part.files.insert(file, Shared { bytes, outlived: None });
            Ok(())
        })
    }

    /// Only descriptors keep the memory of a file now; or it is held again.
    pub(crate) fn set_outlived(&self, file: FileIdentity, outlived: Option<RawFd>) {
        // As for `give_back`.
        let _ = self.change(|part, _| {
            part.files.entry(file).and_modify(|shared| shared.outlived = outlived);
            Ok(())
        });
    }

    pub(crate) fn let_go(&self, file: FileIdentity) {
        // As for `give_back`.
        let _ = self.change(|part, _| {
            part.files.remove(&file);
            Ok(())
        });
    }

    /// Changes this process's part, given what all hold.
    fn change(
        &self,
        change: impl FnOnce(&mut Part, u64) -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        self.with(|parts, ordinal| {
            let used = used(parts, ordinal);
            change(parts.entry(self.key).or_default(), used)
        })
    }

    /// Reads the file, and writes it anew, with nobody else at it.
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Parts, u32) -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        self.file.lock().map_err(|_| OPERATING_SYSTEM)?;
        let done = self.read().and_then(|mut parts| {
            let result = work(&mut parts, self.key.2)?;
            self.write(&parts).map_err(|_| OPERATING_SYSTEM)?;
            Ok(result)
        });
        // The lock goes with the process at the latest.
        let _ = self.file.unlock();
        done
    }

    fn read(&self) -> Result<Parts, ErrorCode> {
        let mut text = String::new();
        let mut file = &self.file;
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map_err(|_| OPERATING_SYSTEM)?;
        let mut parts = Parts::new();
        for line in text.lines() {
            let (key, part) = parse(line).ok_or(OPERATING_SYSTEM)?;
            let is_own = (key.0, key.1) == (self.key.0, self.key.1);
            if is_own || started(key.0) == Some(key.1) {
                parts.insert(key, part);
            }
        }
        Ok(parts)
    }

    fn write(&self, parts: &Parts) -> std::io::Result<()> {
        let mut text = String::new();
        for ((process, started, ordinal), part) in parts {
            let _ = write!(text, "{process} {started} {ordinal} {}", part.own_bytes);
            for (FileIdentity { device, inode }, Shared { bytes, outlived }) in &part.files {
                let _ =
                    write!(text, " {device} {inode} {bytes} {}", outlived.map_or(0, |fd| fd + 1));
            }
            text.push('\n');
        }
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

fn used(parts: &Parts, ordinal: u32) -> u64 {
    let mut files: BTreeMap<FileIdentity, u64> = BTreeMap::new();
    let mut own = 0;
    for (key, part) in parts.iter().filter(|(key, _)| key.2 == ordinal) {
        own += part.own_bytes;
        let is_held = |(file, shared): &(&FileIdentity, &Shared)| {
            shared.outlived.is_none_or(|fd| SharedFile::is_given_by(key.0, fd, **file))
        };
        files.extend(part.files.iter().filter(is_held).map(|(file, shared)| (*file, shared.bytes)));
    }
    own + files.values().sum::<u64>()
}

fn parse(line: &str) -> Option<(Key, Part)> {
    let mut numbers = line.split(' ').map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let key = (next()?.try_into().ok()?, next()?, next()?.try_into().ok()?);
    let mut part = Part { own_bytes: next()?, files: BTreeMap::new() };
    while let Some(device) = next() {
        let file = FileIdentity { device, inode: next()? };
        let (bytes, number) = (next()?, RawFd::try_from(next()?).ok()?);
        part.files.insert(file, Shared { bytes, outlived: (number > 0).then(|| number - 1) });
    }
    Some((key, part))
}

/// When a process started, in the system's ticks; `None` if there is none, or only its status.
fn started(process: u32) -> Option<u64> {
    let text = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may hold anything, and ends with the last parenthesis.
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    let is_alive = !matches!(words.next()?, "Z" | "X");
    let started = words.nth(18)?.parse().ok()?;
    is_alive.then_some(started)
}

#[cfg(test)]
mod tests {
    use super::{Holdings, started};
    use crate::shared_file::SharedFile;
    use drystone_driver::ErrorCode;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn what_processes_hold_counts_once_and_ends_with_them() {
        let path = std::env::temp_dir().join(format!("drystone-holdings-{}", std::process::id()));
        let own = Holdings::open(&path, 0).unwrap();
        own.take(60, 100).unwrap();
        let file = SharedFile::new(0, 4096).unwrap().identity();
        own.export(file, 20).unwrap();
        assert_eq!(own.used_bytes(), Ok(60));
        // Another process, which lives as long as this one does: its parent.
        let parent = std::os::unix::process::parent_id();
        let key = (parent, started(parent).unwrap(), 0);
        let mut other = Holdings { file: own.file.try_clone().unwrap(), key };
        other.import(file, 20).unwrap();
        assert_eq!(other.used_bytes(), Ok(60));
        assert_eq!(other.take(41, 100), Err(ErrorCode::OutOfMemory));
        other.take(40, 100).unwrap();
        own.let_go(file);
        own.give_back(40);
        assert_eq!(own.used_bytes(), Ok(60));
        assert_eq!(Holdings::open(&path, 1).unwrap().used_bytes(), Ok(0));
        // One that ended: its number is another's by now.
        other.key.1 += 1;
        other.take(40, 100).unwrap();
        assert_eq!(own.used_bytes(), Ok(60));
        std::fs::remove_file(path).unwrap();
    }

    /// Each process that looks sees it end, not its maker alone, which may not look for long.
    #[test]
    fn what_only_descriptors_keep_is_held_until_the_last_is_closed() {
        let name = format!("drystone-outlived-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let maker = Holdings::open(&path, 0).unwrap();
        let parent = std::os::unix::process::parent_id();
        let key = (parent, started(parent).unwrap(), 0);
        let other = Holdings { file: maker.file.try_clone().unwrap(), key };
        maker.take(20, 100).unwrap();
        let file = SharedFile::new(0, 4096).unwrap();
        let descriptor = file.give().unwrap();
        maker.export(file.identity(), 20).unwrap();
        maker.set_outlived(file.identity(), Some(file.as_fd().as_raw_fd()));
        assert_eq!(other.used_bytes(), Ok(20));
        other.import(file.identity(), 20).unwrap();
        drop(descriptor);
        assert_eq!(other.used_bytes(), Ok(20), "who has taken it in keeps it");
        other.let_go(file.identity());
        assert_eq!(other.used_bytes(), Ok(0));
        std::fs::remove_file(path).unwrap();
    }
}
