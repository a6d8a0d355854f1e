//! Who wishes: neighbours are asked one after another, so that no two give what one would do.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::Table;
use super::board::{Board, now_ms};
use super::futex;
use super::wish::{Stage, Wish};

/// How long it is waited for new figures of one: its thread may be busy giving.
const FIGURES: Duration = Duration::from_millis(10);
/// How often it is looked whether who is waited for still lives.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked what neighbours have unused, while that changes, and how long apart.
const LOOKS_MAX: usize = 10;
const PAUSE: Duration = Duration::from_millis(2);
/// For how long whoever was given memory is asked after all others: so that it does not go to and
/// fro.
const KEPT_MS: u64 = 1000;

impl Table {
    /// Asks neighbours for so many bytes until that moment. Returns what they gave.
    pub(super) fn wish(&self, board: &Board, bytes: u64, until: Instant) -> u64 {
        let Some(_wishing) = self.wishing.try_lock_until(until) else { return 0 };
        let since_ms = now_ms().saturating_sub((self.wait - self.left(until)).as_millis() as u64);
        // It stands until the request is over, so that who has wished for less long lets it be.
        board.own().wished_ms.store(since_ms.max(1), Ordering::Release);
        let half = Instant::now() + self.left(until) / 2;
        while board.has_older_wish(since_ms, self.wait) && Instant::now() < half {
            thread::sleep(PAUSE);
        }
        let given_bytes = match who_could(board, bytes, until) {
            Some(others) => self.take(board, others, bytes, until),
            None => 0,
        };
        if given_bytes > 0 {
            board.own().took_ms.store(now_ms(), Ordering::Relaxed);
        }
        given_bytes
    }

    /// Asks these neighbours one after another: who was given memory of late last, and before that
    /// who got more of it last.
    fn take(&self, board: &Board, mut others: Vec<usize>, bytes: u64, until: Instant) -> u64 {
        let now = now_ms();
        let rank = |index: usize| {
            board.slot(index).map(|slot| {
                let took_ms = slot.took_ms.load(Ordering::Relaxed);
                let has_taken = took_ms != 0 && now.saturating_sub(took_ms) < KEPT_MS;
                (has_taken, slot.grew_ms.load(Ordering::Relaxed))
            })
        };
        let mut given_bytes = 0;
        while let Some(at) = (0..others.len()).min_by_key(|&at| rank(others[at])) {
            let (index, asked) = (others.swap_remove(at), Instant::now());
            if given_bytes >= bytes || asked >= until {
                break;
            }
            // One that does not answer leaves half of the time to those behind it.
            let left = until - asked;
            let most = asked + if others.is_empty() { left } else { left / 2 };
            let given = ask_one(board, index, bytes - given_bytes, most).unwrap_or(0);
            if let Some(slot) = board.slot(index).filter(|_| given > 0) {
                given_bytes += given;
                self.note(slot, true, given, asked.elapsed());
            }
        }
        given_bytes
    }

    /// How much of the time that a request may wait is left until that moment.
    fn left(&self, until: Instant) -> Duration {
        until.saturating_duration_since(Instant::now()).min(self.wait)
    }

    /// Asks all neighbours for new figures.
    pub(super) fn refresh(&self, board: &Board, until: Instant) {
        if let Some(_wishing) = self.wishing.try_lock_until(until) {
            ask_for_figures(board, until);
        }
    }
}

/// Those that could give so many bytes together. Where they could not they keep what they have:
/// `None`, unless what they hold is about to change.
fn who_could(board: &Board, bytes: u64, until: Instant) -> Option<Vec<usize>> {
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let (others, could_bytes) = ask_for_figures(board, until);
        if could_bytes >= bytes {
            return Some(others);
        }
        let held_bytes = board.others().map(|(_, slot)| slot.held_bytes());
        let now = Some((could_bytes, held_bytes.fold(0, u64::saturating_add)));
        if now == before || Instant::now() + PAUSE >= until {
            break;
        }
        before = now;
        thread::sleep(PAUSE);
    }
    None
}

/// Asks all neighbours for new figures. Returns where they are, and what they could give: of one
/// whose thread is busy all that it holds.
fn ask_for_figures(board: &Board, until: Instant) -> (Vec<usize>, u64) {
    let (mut others, mut could_bytes) = (Vec::new(), 0_u64);
    for (index, slot) in board.others() {
        let answer = ask_one(board, index, 0, until.min(Instant::now() + FIGURES));
        let bytes = if answer.is_some() { slot.unused_bytes() } else { slot.held_bytes() };
        could_bytes = could_bytes.saturating_add(bytes);
        others.push(index);
    }
    (others, could_bytes)
}

/// Asks one neighbour for so many bytes, for none for its figures, and waits for the answer until
/// that moment. `None` if it gave none.
fn ask_one(board: &Board, index: usize, bytes: u64, until: Instant) -> Option<u64> {
    let (own, other) = (board.own(), board.slot(index)?);
    let owner = other.owner();
    let last = Wish::of(own.wish.load(Ordering::Relaxed)).map_or(0, |wish| wish.number);
    let wish = Wish::new(u8::try_from(index).ok()?, last.wrapping_add(1), bytes);
    own.wish.store(wish.word(), Ordering::Release);
    other.bell.fetch_add(1, Ordering::Release);
    futex::wake(&other.bell);
    let answer = loop {
        let seen = own.answers.load(Ordering::Acquire);
        let now = Wish::of(own.wish.load(Ordering::Acquire));
        let now = now.filter(|now| (now.to, now.number) == (wish.to, wish.number));
        match now {
            Some(now) if now.stage == Stage::Answered => break Some(now.bytes()),
            Some(_) => {}
            // Somebody has written there who had no business to.
            None => break None,
        }
        let left = until.saturating_duration_since(Instant::now());
        // Its slot may be another's by now, who knows nothing of this.
        if left.is_zero() || other.owner() != owner || !board.is_alive(index) {
            break None;
        }
        futex::sleep(&own.answers, seen, Some(left.min(LOOK)));
    };
    // Withdrawn, or over; its number stays, so that the next one has another.
    let over = wish.at(Stage::Answered, 0);
    own.wish.store(over.word(), Ordering::Release);
    answer
}
