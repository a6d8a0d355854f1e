//! Neighbours: other processes of the same user on the same device. What one of them holds unused
//! is given to another that is refused memory, with no daemon: they meet on a *board* in shared
//! memory, one for each device and user.
//!
//! Invariants: nothing is given back except a wish of a process that lives, and no more than it
//! wishes, as far as units allow; what is wished beyond what a request lacks is no more than its
//! process was given in a row, and nothing that others lack; a wish ends by its deadline, whatever
//! became of whom it was made to; what is read from the board is somebody else's word, and believed
//! for a figure at most.
//!
//! Bottom first: `life` (who still lives), `futex`, `board` (the file and its slots), `wish` (one
//! word of a slot), `taken` (what was given of late), `inbox` (what is given as it is); `ask` (who
//! wishes), `serve` (the thread that gives back, and what is idle), `forked` (what a child does not
//! keep).

mod ask;
mod board;
mod forked;
mod futex;
#[cfg(fuzzing)]
pub mod fuzzing;
mod inbox;
mod life;
mod serve;
mod taken;
#[cfg(test)]
mod tests;
mod wish;

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drystone::driver::DeviceInfo;
use drystone::{Allocator, Gift, Neighbour, Neighbours, Options};
use parking_lot::Mutex;

use self::board::{Board, Slot};
use self::inbox::Inbox;
use self::taken::Taken;

/// How many exchanges are remembered.
const REMEMBERED: usize = 16;
/// How long an exit waits for memory that is being given back: it calls the driver.
const AT_EXIT: Duration = Duration::from_millis(100);

/// Memory that went from one process to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The other process.
    pub process: u32,
    /// What its program is called.
    pub name: String,
    /// Whether it gave, and this one took.
    pub is_taken: bool,
    /// How much, in bytes.
    pub bytes: u64,
    /// How long that took: to give it back, or until it was there.
    pub took: Duration,
}

/// What went from and to other processes so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// Bytes that this process gave.
    pub given_bytes: u64,
    /// How often it gave some.
    pub given: u64,
    /// Bytes that others gave it.
    pub taken_bytes: u64,
    /// How often it was given some.
    pub taken: u64,
    /// How often one that lives gave no answer in time.
    pub unanswered: u64,
    /// Bytes that went back since nobody used them for long.
    pub idle_bytes: u64,
    /// The last ones, oldest first.
    pub last: VecDeque<Exchange>,
}

/// What a process has that wishes.
#[derive(Default)]
struct Wishing {
    taken: Taken,
    /// From the first wish on that handles may serve as they are.
    inbox: Option<Inbox>,
}

/// A device's neighbours, as one process sees them. Lives as long as the process.
pub(crate) struct Table {
    /// None where only idle memory is looked after.
    board: Option<Board>,
    device_bytes: u64,
    wait: Duration,
    idle: Option<Duration>,
    allocator: OnceLock<Allocator>,
    has_thread: AtomicBool,
    exchanges: Mutex<Exchanges>,
    /// Held by the one thread of this process that wishes.
    wishing: Mutex<Wishing>,
    /// Held while memory is given back.
    serving: Mutex<()>,
}

impl Table {
    /// Joins the board of a device, if the options say so and there can be one.
    pub(crate) fn join(info: &DeviceInfo, options: &Options) -> Option<&'static Self> {
        let board = options.neighbours.and_then(|_| Board::join(info.uuid));
        if board.is_none() && options.idle.is_none() {
            return None;
        }
        Some(Self::with(board, options, info.total_bytes))
    }

    fn with(board: Option<Board>, options: &Options, device_bytes: u64) -> &'static Self {
        Box::leak(Box::new(Self {
            board,
            device_bytes,
            wait: options.neighbours.unwrap_or_default(),
            idle: options.idle,
            allocator: OnceLock::new(),
            has_thread: AtomicBool::new(false),
            exchanges: Mutex::default(),
            wishing: Mutex::default(),
            serving: Mutex::default(),
        }))
    }

    /// Serves an allocator's device from now on.
    pub(crate) fn begin(&'static self, allocator: &Allocator) {
        if self.allocator.set(allocator.clone()).is_ok() {
            self.close_in_children();
            allocator.set_neighbours(self);
        }
    }

    /// The process exits: nothing more is given back, and what is under way ends first.
    pub(crate) fn leave(&self) {
        let board = self.board.as_ref();
        if board.is_some_and(|board| !board.is_own_process()) {
            return;
        }
        // For good. One that takes longer is left to itself.
        std::mem::forget(self.serving.try_lock_for(AT_EXIT));
        board.into_iter().for_each(Board::leave);
    }

    /// What went from and to others.
    pub(crate) fn exchanges(&self) -> Exchanges {
        self.exchanges.lock().clone()
    }

    fn note(&self, slot: &Slot, is_taken: bool, bytes: u64, took: Duration) {
        let (process, name) = (slot.process(), slot.name());
        let mut exchanges = self.exchanges.lock();
        if is_taken {
            exchanges.taken += 1;
            exchanges.taken_bytes += bytes;
        } else {
            exchanges.given += 1;
            exchanges.given_bytes += bytes;
        }
        if exchanges.last.len() == REMEMBERED {
            exchanges.last.pop_front();
        }
        exchanges.last.push_back(Exchange { process, name, is_taken, bytes, took });
    }
}

impl Neighbours for Table {
    fn wait(&self) -> Duration {
        self.wait
    }

    fn ask(&self, bytes: u64, takes_handles: bool, until: Instant) -> Gift {
        let board = self.board.as_ref();
        board.map_or_else(Gift::default, |board| self.wish(board, bytes, takes_handles, until))
    }

    fn descriptors_max(&self) -> usize {
        inbox::descriptors_max()
    }

    fn end(&self) {
        if let Some(board) = &self.board {
            board.own().wished_ms.store(0, Ordering::Release);
        }
    }

    fn tell(&self, held_bytes: u64, unused_bytes: u64) {
        if let Some(board) = &self.board {
            board.own().tell(held_bytes, unused_bytes);
        }
        if held_bytes > 0 && !self.has_thread.load(Ordering::Relaxed) {
            self.start();
        }
    }

    fn offered_bytes(&self) -> u64 {
        let Some(board) = &self.board else { return 0 };
        let mut offered_bytes = 0_u64;
        for (_, slot) in board.others() {
            offered_bytes = offered_bytes.saturating_add(slot.unused_bytes());
            slot.ring();
        }
        offered_bytes
    }

    fn others(&self, is_fresh: bool) -> Vec<Neighbour> {
        let Some(board) = &self.board else { return Vec::new() };
        if is_fresh {
            self.refresh(board);
        }
        board.others().map(|(_, slot)| slot.as_neighbour()).collect()
    }
}
