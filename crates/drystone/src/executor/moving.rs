//! [`Moving`]: what a plan needs that moves memory: streams that stand still, and addresses of its
//! own where the new memory is written before anybody sees it.
//!
//! Invariants: streams that are held are let go when the plan is over, whatever became of it, and
//! not before what was done is undone. No stream is added, retired or asked meanwhile, and no call
//! is under way that takes an address. What is mapped at addresses of this module's own is unmapped
//! there after the plan, or, where the driver refuses, before memory is released next.

use std::sync::atomic::{AtomicBool, Ordering};

use drystone_core::{GranuleId, Step};
use drystone_driver::{Call, Driver, DriverError, ErrorCode, Handle, Hold, Stream};
use parking_lot::{Mutex, MutexGuard};

use super::handles::Handles;
use crate::address_calls::Stopped;
use crate::streams::{Streams, Table};

/// How often it is tried to map memory again where it was.
const TRIES: usize = 16;

/// Ranges of addresses that were to be given back and could not be.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Vec<Left>>);

#[derive(Debug)]
struct Left {
    start: u64,
    bytes: u64,
    /// How much of it is mapped, from its start on.
    mapped: u64,
    /// A copy into it was begun and not waited for.
    is_copied_to: bool,
}

impl Scratch {
    /// Gives back what can be.
    pub(crate) fn give_back(&self, driver: &dyn Driver) {
        self.0.lock().retain_mut(|left| {
            left.is_copied_to = left.is_copied_to && driver.finish_copies().is_err();
            if !left.is_copied_to && left.mapped > 0 {
                let unmapped = driver.unmap(left.start, left.mapped);
                left.mapped = if unmapped.is_ok() { 0 } else { left.mapped };
            }
            left.mapped > 0 || driver.unreserve(left.start, left.bytes).is_err()
        });
    }
}

/// What a plan that moves memory has at the moment.
pub(super) struct Moving<'a> {
    pub(super) driver: &'a dyn Driver,
    pub(super) handles: &'a Mutex<Handles>,
    pub(super) streams: &'a Streams,
    pub(super) scratch: &'a Scratch,
    /// Who was told that memory goes has pinned some since.
    pub(super) is_vetoed: &'a AtomicBool,
    /// How many bytes of addresses it needs.
    pub(super) bytes: u64,
    pub(super) now: Now<'a>,
}

/// What has come of it so far.
#[derive(Default)]
pub(super) struct Now<'a> {
    /// Reserved addresses, and their size; 0 without any.
    start: u64,
    bytes: u64,
    /// Handles that are mapped there, one behind the other, with their sizes.
    staged: Vec<(GranuleId, u64)>,
    held: Option<(Hold, MutexGuard<'a, Table>, Stopped)>,
    /// Copies were begun and not waited for.
    is_copying: bool,
}

impl Moving<'_> {
    /// Does a step, if it is one of a move.
    pub(super) fn step(&mut self, step: &Step) -> Option<Result<(), DriverError>> {
        let driver = self.driver;
        Some(match *step {
            Step::Stage { granule, bytes } => self.stage(granule, bytes),
            Step::Hold => self.hold(),
            Step::Copy { address, bytes, granule } => self.copy(address, bytes, granule),
            Step::CopyTo { address, bytes, to } => {
                self.now.is_copying = true;
                driver.copy(to, address, bytes)
            }
            Step::FinishCopies => driver.finish_copies().inspect(|()| self.now.is_copying = false),
            Step::Lift { address, bytes, .. } => driver.unmap(address, bytes),
            Step::LetGo => {
                self.let_go();
                Ok(())
            }
            _ => return None,
        })
    }

    /// Maps a handle where nobody sees it.
    fn stage(&mut self, granule: GranuleId, bytes: u64) -> Result<(), DriverError> {
        let driver = self.driver;
        let handle = self.handles.lock().get(Call::Map, granule)?;
        if self.now.bytes == 0 {
            self.now.start = driver.reserve(self.bytes, 0)?;
            self.now.bytes = self.bytes;
        }
        let address = self.now.start + self.mapped_bytes();
        driver.map(address, bytes, handle)?;
        self.now.staged.push((granule, bytes));
        driver.set_access(address, bytes)
    }

    fn mapped_bytes(&self) -> u64 {
        self.now.staged.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Holds every stream that may use the memory.
    fn hold(&mut self) -> Result<(), DriverError> {
        if self.is_vetoed.load(Ordering::Relaxed) {
            return Err(DriverError::new(Call::Hold, ErrorCode::InCallback));
        }
        // Before the tables: a call may wait for these.
        let busy = || DriverError::new(Call::Hold, ErrorCode::NotReady);
        let stopped = Stopped::new().ok_or_else(busy)?;
        let is_created = |stream: &Stream| !stream.is_default() && *stream != Stream::PER_THREAD;
        let mut held = Err(busy());
        // The table after those of other devices, which wait for each other before that alone.
        self.streams.with_others(&mut |mut streams| {
            let table = self.streams.lock();
            streams.extend(table.lasting().map(|known| known.stream));
            streams.retain(is_created);
            streams.sort_unstable_by_key(|stream| stream.0);
            streams.dedup();
            held = self.driver.hold(&streams).map(|hold| (hold, table));
        });
        let (hold, table) = held?;
        self.now.held = Some((hold, table, stopped));
        Ok(())
    }

    /// Begins to copy into a staged handle.
    fn copy(&mut self, from: u64, bytes: u64, granule: GranuleId) -> Result<(), DriverError> {
        let mut to = self.now.start;
        for &(staged, staged_bytes) in &self.now.staged {
            if staged == granule {
                self.now.is_copying = true;
                return self.driver.copy(to, from, bytes);
            }
            to += staged_bytes;
        }
        Err(DriverError::new(Call::Copy, ErrorCode::NoHandle))
    }

    fn let_go(&mut self) {
        if let Some((hold, _table, _stopped)) = self.now.held.take() {
            self.driver.let_go(hold);
        }
    }

    /// Gives the addresses back.
    fn give_back(&mut self) {
        if self.now.bytes > 0 {
            let (start, bytes, mapped) = (self.now.start, self.now.bytes, self.mapped_bytes());
            let left = Left { start, bytes, mapped, is_copied_to: self.now.is_copying };
            self.scratch.0.lock().push(left);
            self.scratch.give_back(self.driver);
        }
        self.now.staged.clear();
        self.now.bytes = 0;
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.let_go();
        self.give_back();
    }
}

/// Maps a handle again where it was, with its streams still held. If that fails again and again,
/// live memory leads nowhere.
pub(super) fn put_back(
    driver: &dyn Driver,
    address: u64,
    bytes: u64,
    handle: Handle,
) -> Result<(), DriverError> {
    again(|| driver.map(address, bytes, handle))?;
    again(|| driver.set_access(address, bytes))
}

/// Does what must not fail, until the driver does not refuse it.
pub(super) fn again(call: impl Fn() -> Result<(), DriverError>) -> Result<(), DriverError> {
    (1..TRIES).fold(call(), |done, _| done.or_else(|_| call()))
}
