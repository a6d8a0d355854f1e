//! The thread that gives memory back: to neighbours that wish for it, and what nobody has used for
//! long. It sleeps until then.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use drystone::{Allocator, Gift, Points};

use super::board::{Board, SLOTS};
use super::wish::{Stage, Wish};
use super::{Table, futex, inbox};
use crate::barrier::barrier;
use crate::{state, thread};

/// Into how many parts the time is cut after which memory is idle.
const IDLE_PARTS: u32 = 4;

impl Table {
    /// Starts the thread, once.
    #[cold]
    pub(super) fn start(&self) {
        if self.has_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        // The table lives as long as the process.
        let given = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: the thread gets what it casts back. Without one nobody is served.
        let _ = unsafe { thread::start(run, given) };
    }

    /// Serves as long as the process lives.
    fn serve(&self) {
        let Some(allocator) = self.allocator.get() else { return };
        let nobody = AtomicU32::new(0);
        let bell = self.board.as_ref().map_or(&nobody, |board| &board.own().bell);
        let tick = self.idle.map(|idle| idle / IDLE_PARTS);
        let (mut moments, mut next) = (VecDeque::new(), tick.map(|tick| Instant::now() + tick));
        while state::check().is_ok() {
            let heard = bell.load(Ordering::Acquire);
            if let Some(board) = &self.board {
                while self.serving(|| self.serve_one(board, allocator)) {}
                self.discard_late();
                // Whoever only looks rings, too.
                board.own().tell_unused(allocator.unused_bytes());
            }
            if let (Some(tick), Some(at)) = (tick, next)
                && Instant::now() >= at
            {
                self.serving(|| self.give_idle(allocator, &mut moments));
                next = Some(Instant::now() + tick);
            }
            futex::sleep(bell, heard, next.map(|at| at.saturating_duration_since(Instant::now())));
        }
    }

    /// Gives memory back, unless the process exits.
    fn serving<R>(&self, give: impl FnOnce() -> R) -> R {
        let _serving = self.serving.lock();
        give()
    }

    /// Serves the oldest wish that is made to this process. False if there is none.
    pub(super) fn serve_one(&self, board: &Board, allocator: &Allocator) -> bool {
        let wishes = (0..SLOTS).filter_map(|index| {
            let slot = board.slot(index)?;
            let wish = Wish::of(slot.wish.load(Ordering::Acquire))?;
            let is_ours = wish.stage == Stage::Posted && usize::from(wish.to) == board.own_index();
            let is_one = is_ours && board.is_alive(index);
            is_one.then(|| (slot.wished_ms.load(Ordering::Relaxed), index, wish))
        });
        let Some((_, index, wish)) = wishes.min_by_key(|&(since, ..)| since) else { return false };
        let Some(slot) = board.slot(index) else { return false };
        let pass = |from: Wish, to: Wish| {
            let (from, to) = (from.word(), to.word());
            slot.wish.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let taken = wish.at(Stage::Taken, wish.bytes());
        if !pass(wish, taken) {
            // Withdrawn.
            return true;
        }
        let begun = Instant::now();
        let inbox = slot.inbox.load(Ordering::Relaxed);
        let Gift { bytes: given_bytes, handles } = match wish.bytes() {
            0 => Gift::default(),
            bytes => allocator.give_to_neighbours(bytes, inbox != 0, self.wait),
        };
        // Nobody looks for what comes after the wish is over.
        let is_late = slot.wish.load(Ordering::Acquire) != taken.word();
        inbox::deliver(if is_late { 0 } else { inbox }, handles);
        // What was on its way has arrived.
        board.own().tell(allocator.allocated_and_reserved_bytes().1, allocator.unused_bytes());
        if given_bytes > 0 {
            self.note(slot, false, given_bytes, begun.elapsed());
        }
        // Who has given up waiting finds it free on the device.
        if pass(taken, taken.at(Stage::Answered, given_bytes)) {
            slot.answers.fetch_add(1, Ordering::Release);
            futex::wake(&slot.answers);
        } else {
            // It has been withdrawn just now: its maker's thread looks for what came too late.
            slot.ring();
        }
        true
    }

    /// Gives back what nobody has used for so long, and notes how far streams are now.
    fn give_idle(&self, allocator: &Allocator, moments: &mut VecDeque<Points>) {
        let Some(now) = allocator.points() else { return };
        moments.push_back(now);
        if moments.len() > IDLE_PARTS as usize
            && let Some(then) = moments.pop_front()
        {
            let patience = self.idle.unwrap_or(Duration::ZERO) / IDLE_PARTS;
            let given = allocator.give_back_unused_since(&then, patience);
            self.exchanges.lock().idle_bytes += given;
        }
    }
}

extern "C" fn run(table: *mut c_void) -> *mut c_void {
    // SAFETY: given by `start`, and lives as long as the process.
    let table = unsafe { &*table.cast::<Table>() };
    barrier((), || table.serve());
    ptr::null_mut()
}
