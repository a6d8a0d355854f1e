//! Who wishes: neighbours are asked one after another, so that no two give what one would do.
//!
//! Invariant: nobody is asked to give unless all that they could give serves this request and those
//! that were there before it: so of several that lack memory none takes what another needs more.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use drystone::Gift;

use super::board::{Board, Slot, now_ms};
use super::futex;
use super::inbox::Inbox;
use super::taken::KEPT_MS;
use super::wish::{Stage, Wish};
use super::{Table, Wishing};

/// How long it is waited for new figures of one: its thread may be busy giving.
const FIGURES: Duration = Duration::from_millis(10);
/// How often it is looked whether who is waited for still lives.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked what neighbours have unused, while that changes, and how long apart.
const LOOKS_MAX: usize = 20;
const PAUSE: Duration = Duration::from_millis(2);
/// How often neighbours are asked that said to have enough, and gave nothing: others were quicker.
const TAKES_MAX: usize = 4;
/// After so many looks that show the same it stays so: a process that was killed takes some
/// milliseconds to be gone.
const STEADY: usize = 5;

impl Table {
    /// Asks neighbours for so many bytes until that moment.
    pub(super) fn wish(
        &self,
        board: &Board,
        bytes: u64,
        takes_handles: bool,
        until: Instant,
    ) -> Gift {
        let mut gift = Gift::default();
        let Some(mut wishing) = self.wishing.try_lock_until(until) else { return gift };
        let Wishing { taken, inbox } = &mut *wishing;
        if takes_handles && inbox.is_none() {
            *inbox = Inbox::open();
        }
        let name = inbox.as_ref().filter(|_| takes_handles).map_or(0, Inbox::name);
        board.own().inbox.store(name, Ordering::Relaxed);
        let since_ms = now_ms().saturating_sub((self.wait - self.left(until)).as_millis() as u64);
        // It stands until the request is over, so that who has wished for less long lets it be.
        board.own().lacks_bytes.store(bytes, Ordering::Relaxed);
        board.own().wished_ms.store(since_ms.max(1), Ordering::Release);
        let lacked_before = || board.lacked_before(since_ms.max(1), self.wait);
        for _ in 0..TAKES_MAX {
            let Some((others, spare_bytes)) = who_could(board, bytes, until, lacked_before) else {
                break;
            };
            let beyond_bytes = taken.beyond_bytes(self.device_bytes).min(spare_bytes);
            gift.bytes = self.take(board, others, [bytes, beyond_bytes], until);
            if gift.bytes > 0 {
                break;
            }
        }
        if gift.bytes > 0 {
            taken.note(gift.bytes);
            board.own().took_ms.store(now_ms(), Ordering::Relaxed);
        }
        gift.handles = Inbox::take(inbox);
        if !takes_handles {
            gift.handles.clear();
        }
        gift
    }

    /// What arrived too late for its wish goes back to the device.
    pub(super) fn discard_late(&self) {
        if let Some(mut wishing) = self.wishing.try_lock_for(PAUSE) {
            drop(Inbox::take(&mut wishing.inbox));
        }
    }

    /// Asks these neighbours one after another: who was given memory of late last, and before that
    /// who got more of it last. What goes beyond what lacks is asked of nobody for itself.
    fn take(
        &self,
        board: &Board,
        mut others: Vec<usize>,
        [bytes, beyond_bytes]: [u64; 2],
        until: Instant,
    ) -> u64 {
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
            let lacking_bytes = bytes - given_bytes;
            let unused_bytes = board.slot(index).map_or(0, Slot::unused_bytes);
            // Nobody moves anything for what is not lacking.
            let with_beyond = lacking_bytes.saturating_add(beyond_bytes).min(unused_bytes);
            let wished_bytes = with_beyond.max(lacking_bytes);
            let answer = ask_one(board, index, wished_bytes, most);
            self.exchanges.lock().unanswered += u64::from(answer == Err(Unanswered::InTime));
            let given = answer.unwrap_or(0);
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
    pub(super) fn refresh(&self, board: &Board) {
        // A request that wishes has new figures, too.
        if let Some(_wishing) = self.wishing.try_lock_for(FIGURES) {
            ask_for_figures(board, Instant::now() + self.wait);
        }
    }
}

/// Those that could give so many bytes together, beside what others lacked before. Where they could
/// not they keep what they have: `None`, unless what they hold is about to change. With them goes
/// how much more they could give.
fn who_could(
    board: &Board,
    bytes: u64,
    until: Instant,
    lacked_before: impl Fn() -> u64,
) -> Option<(Vec<usize>, u64)> {
    let (mut before, mut steady, mut looks) = (None, 0, 0);
    while looks < LOOKS_MAX {
        let before_bytes = lacked_before();
        let Figures { others, could_bytes, have_all } = ask_for_figures(board, until);
        let spare_bytes = could_bytes.checked_sub(bytes.saturating_add(before_bytes));
        if let Some(spare_bytes) = spare_bytes {
            return Some((others, spare_bytes));
        }
        let held_bytes = board.others().map(|(_, slot)| slot.held_bytes());
        let now = Some((could_bytes, held_bytes.fold(0, u64::saturating_add)));
        let is_in_turn = before_bytes == 0;
        // Those before it are served or refused in no longer than they wait.
        looks += usize::from(is_in_turn);
        // One whose thread is busy has more, perhaps, once it says so.
        steady = if is_in_turn && have_all && now == before { steady + 1 } else { 0 };
        if steady == STEADY || Instant::now() + PAUSE >= until {
            break;
        }
        before = now;
        thread::sleep(PAUSE);
    }
    None
}

/// What neighbours could give.
struct Figures {
    /// Where they are.
    others: Vec<usize>,
    could_bytes: u64,
    /// Whether all have answered. One that has not could give what it last said.
    have_all: bool,
}

/// Asks all neighbours for new figures.
fn ask_for_figures(board: &Board, until: Instant) -> Figures {
    let mut figures = Figures { others: Vec::new(), could_bytes: 0, have_all: true };
    for (index, slot) in board.others() {
        let answer = ask_one(board, index, 0, until.min(Instant::now() + FIGURES));
        figures.have_all &= answer.is_ok();
        figures.could_bytes = figures.could_bytes.saturating_add(slot.unused_bytes());
        figures.others.push(index);
    }
    figures
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    /// There was none in time.
    InTime,
    /// Whoever was asked is gone, or somebody has written where they had no business to.
    Gone,
}

/// Asks one neighbour for so many bytes, for none for its figures, and waits for the answer until
/// that moment.
fn ask_one(board: &Board, index: usize, bytes: u64, until: Instant) -> Result<u64, Unanswered> {
    let (own, other) = (board.own(), board.slot(index).ok_or(Unanswered::Gone)?);
    let owner = other.owner();
    let last = Wish::of(own.wish.load(Ordering::Relaxed)).map_or(0, |wish| wish.number);
    let to = u8::try_from(index).map_err(|_| Unanswered::Gone)?;
    let wish = Wish::new(to, last.wrapping_add(1), bytes);
    own.wish.store(wish.word(), Ordering::Release);
    other.ring();
    let answer = loop {
        let seen = own.answers.load(Ordering::Acquire);
        let now = Wish::of(own.wish.load(Ordering::Acquire));
        let now = now.filter(|now| (now.to, now.number) == (wish.to, wish.number));
        match now {
            Some(now) if now.stage == Stage::Answered => break Ok(now.bytes()),
            Some(_) => {}
            None => break Err(Unanswered::Gone),
        }
        let left = until.saturating_duration_since(Instant::now());
        // Its slot may be another's by now, who knows nothing of this.
        if other.owner() != owner || !board.is_alive(index) {
            break Err(Unanswered::Gone);
        }
        if left.is_zero() {
            break Err(Unanswered::InTime);
        }
        futex::sleep(&own.answers, seen, Some(left.min(LOOK)));
    };
    // Withdrawn, or over; its number stays, so that the next one has another.
    let over = wish.at(Stage::Answered, 0);
    own.wish.store(over.word(), Ordering::Release);
    answer
}
