//! Giving memory back for others: other processes on the device, and everybody where nobody here
//! has used it for long.
//!
//! Invariant: the growth lock is held for about a slice at a time, so that a request which misses
//! meanwhile waits for no more; hits take no part. What a capture forbids is not done.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use drystone_core::{Captured, Giving, Heap, Points};
use drystone_driver::Relaxed;

use super::Engine;
use crate::backend::{BackendState, heap};
use crate::neighbours::{Gift, LooseHandle, Neighbours};

/// How long the growth lock is held at most, as far as the last slice tells.
const SLICE: Duration = Duration::from_millis(1);
/// What the first slice gives back.
const FIRST_BYTES: u64 = 32 << 20;
/// How long it is waited at first until fences have passed.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// How many handles go as they are: a descriptor for each is open until it is taken in, and their
/// messages fit into a socket's buffer.
const LOOSE_HANDLES_MAX: usize = 128;
/// How often it is tried, once no fence is on its way.
const ROUNDS_MAX: usize = 16;

/// A request that other processes are asked for, until it is served or refused.
pub(super) struct Asking<'a> {
    neighbours: Option<&'a dyn Neighbours>,
    /// Until when: then it is refused, whatever comes and goes.
    until: Instant,
    /// What was free when the device was found to have enough again, and the request was tried for
    /// that.
    was_back: Cell<Option<u64>>,
    /// Whether time was up when that was looked at last.
    is_late: Cell<bool>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.neighbours.into_iter().for_each(Neighbours::end);
    }
}

impl Engine {
    /// Gives so many bytes of unused memory up, until that moment: as little more as its units
    /// allow. `hands_over`: handles go as they are, not back to the device.
    pub(crate) fn give_to_neighbours(&self, bytes: u64, hands_over: bool, until: Instant) -> Gift {
        let mut gift = Gift::default();
        if bytes > 0 && self.refuse_at_the_end().is_ok() {
            let handles = hands_over.then_some(&mut gift.handles);
            gift.bytes = self.give_all(bytes, handles, until);
        }
        gift
    }

    fn give_all(
        &self,
        bytes: u64,
        mut loose: Option<&mut Vec<LooseHandle>>,
        until: Instant,
    ) -> u64 {
        let mut give = |bytes, since: Option<&Points>| {
            self.give_loose(bytes, since, until, loose.as_deref_mut())
        };
        let since_growth = self.points_at_growth.lock().clone();
        self.note_synchronizing();
        // What was used last goes last.
        let mut given_bytes = give(bytes, since_growth.as_ref());
        let (mut rounds, mut pause) = (0, FIRST_PAUSE);
        while given_bytes < bytes && rounds < ROUNDS_MAX && Instant::now() + pause < until {
            // What the program frees meanwhile joins what is free already, so that a fence is
            // behind the times at once: the next one may not be. The device is not waited for: a
            // capture that begins would wait, too.
            self.note_synchronizing();
            given_bytes += give(bytes - given_bytes, None);
            if self.backend.read().unused_bytes() == 0 {
                break;
            }
            let is_pending = self.executor.events.lock().any_recorded();
            rounds += usize::from(!is_pending);
            thread::sleep(pause);
            pause = (pause * 2).min(SLICE);
        }
        if given_bytes < bytes && self.gather(bytes - given_bytes, until) {
            given_bytes += give(bytes - given_bytes, None);
        }
        given_bytes
    }

    /// Gives back what has been free since some points. Returns the bytes.
    pub(crate) fn give_back_unused_since(&self, points: &Points, until: Instant) -> u64 {
        match self.refuse_at_the_end() {
            Ok(()) => self.give(u64::MAX, Some(points), until),
            Err(_) => 0,
        }
    }

    /// How far each stream has come, with fences that will tell when it has: what is freed later
    /// counts as used since. `None` where the driver keeps what is free.
    pub(crate) fn points(&self) -> Option<Points> {
        let BackendState::Heap(heap) = &self.backend else { return None };
        self.note_synchronizing();
        heap.change(|heap| Giving::of(heap).points()).ok()
    }

    /// Gives back what can go without waiting, slice by slice. Returns the bytes.
    pub(super) fn give(&self, bytes: u64, since: Option<&Points>, until: Instant) -> u64 {
        self.give_loose(bytes, since, until, None)
    }

    /// The same; where somebody takes handles as they are, the first of them go so.
    fn give_loose(
        &self,
        bytes: u64,
        since: Option<&Points>,
        until: Instant,
        mut loose: Option<&mut Vec<LooseHandle>>,
    ) -> u64 {
        // A capture that begins meanwhile, without a word, is not broken.
        let Ok(_relaxed) = Relaxed::enter(&*self.executor.driver) else { return 0 };
        let (mut given_bytes, mut slice_bytes) = (0, FIRST_BYTES);
        while given_bytes < bytes {
            let Some(_growth) = self.growth.try_lock_until(until) else { break };
            let begun = Instant::now();
            self.collect();
            let asked_bytes = slice_bytes.min(bytes - given_bytes);
            let given = match &self.backend {
                BackendState::Heap(heap) => heap::trim_once(&self.executor, heap, &mut |heap| {
                    let plan = Giving::of(heap).plan(asked_bytes, since)?;
                    if let Some(loose) = &loose {
                        let mut wanted = Giving::of(heap).loose_handles(&plan);
                        wanted.truncate(self.loose_max().saturating_sub(loose.len()));
                        self.executor.outbox.lock().want(wanted);
                    }
                    Some(plan)
                }),
                // The driver does not say when what was used last, and gives back what it can.
                BackendState::AsyncPools(_) if since.is_some() => Ok(None),
                BackendState::AsyncPools(_) => {
                    let given = self.backend.trim(&self.executor).map(Some);
                    given.map(|given| given.filter(|&bytes| bytes > 0))
                }
            };
            let mut leaving_bytes = 0;
            if let Some(loose) = &mut loose {
                loose.append(&mut self.executor.outbox.lock().take());
                leaving_bytes = loose.iter().map(|one| one.bytes).sum();
            }
            // Until it has arrived it counts as unused here, so that nobody takes it for in use.
            self.tell_neighbours_with(leaving_bytes);
            let given = match given {
                Ok(Some(given)) => given,
                Ok(None) => break,
                Err(error) => return given_bytes + error.given_back_bytes,
            };
            given_bytes += given;
            if Instant::now() >= until {
                break;
            }
            let took = begun.elapsed();
            if took < SLICE / 4 {
                slice_bytes = slice_bytes.saturating_mul(2);
            } else if took > SLICE {
                slice_bytes = (slice_bytes / 2).max(1);
            }
            if took >= SLICE {
                // Who waits for the lock is to get it.
                drop(_growth);
                thread::yield_now();
            }
        }
        given_bytes
    }

    /// How many handles go as they are at once.
    fn loose_max(&self) -> usize {
        let own_max = self.neighbours.get().map_or(LOOSE_HANDLES_MAX, |one| one.descriptors_max());
        own_max.min(LOOSE_HANDLES_MAX)
    }

    /// Moves live memory together until so much is whole. True if anything has moved.
    fn gather(&self, bytes: u64, until: Instant) -> bool {
        if self.stays(Captured::None).is_some() {
            return false;
        }
        let mut has_moved = false;
        while Instant::now() < until {
            let Some(_growth) = self.growth.try_lock_until(until) else { break };
            let plan = |heap: &mut Heap| Giving::of(heap).plan_compaction(bytes);
            if self.compact_by(&plan, Some(SLICE)).moves == 0 {
                break;
            }
            has_moved = true;
            drop(_growth);
            thread::yield_now();
        }
        has_moved
    }

    /// Begins to ask other processes for a request.
    pub(super) fn begin_asking(&self) -> Asking<'_> {
        let neighbours = self.neighbours.get().copied();
        let wait = neighbours.map_or(Duration::ZERO, Neighbours::wait);
        Asking {
            neighbours,
            until: Instant::now() + wait,
            was_back: Cell::new(None),
            is_late: Cell::new(false),
        }
    }

    /// Asks other processes for what a request of so many bytes lacks, beside so many unused ones
    /// of this one. True if they gave anything.
    pub(super) fn ask_neighbours(&self, bytes: u64, own_bytes: u64, asked: &Asking<'_>) -> bool {
        let Some(neighbours) = asked.neighbours else { return false };
        let free_bytes = || self.executor.free_bytes().unwrap_or(0);
        let unit_bytes = self.backend.read().unit_bytes();
        let needed_bytes = bytes.checked_next_multiple_of(unit_bytes).unwrap_or(bytes);
        let lacks = || needed_bytes.saturating_sub(free_bytes().saturating_add(own_bytes));
        // Somebody gave it back since the device refused; or it refuses what it says to have, and
        // says the same the next time.
        let is_back = || {
            let free_bytes = Some(free_bytes());
            asked.was_back.replace(free_bytes) != free_bytes && !neighbours.others(false).is_empty()
        };
        let mut lacking_bytes = lacks();
        while lacking_bytes > 0 && Instant::now() < asked.until {
            let gift = neighbours.ask(lacking_bytes, self.takes_handles(), asked.until);
            // What comes without an answer, as of one that was killed meanwhile, serves as well.
            if self.adopt(gift.handles) || gift.bytes > 0 {
                return true;
            }
            // What is back on the device meanwhile is no neighbour's any more.
            let before_bytes = std::mem::replace(&mut lacking_bytes, lacks());
            if lacking_bytes >= before_bytes {
                return false;
            }
        }
        // Once more where it came as time was up.
        (Instant::now() < asked.until || !asked.is_late.replace(true)) && is_back()
    }

    /// The same for others than requests: for what the device lacks of so many bytes. Returns what
    /// they gave.
    pub(crate) fn ask_neighbours_for(&self, bytes: u64) -> u64 {
        let asking = self.begin_asking();
        let Some(neighbours) = asking.neighbours else { return 0 };
        let free_bytes = self.executor.free_bytes().unwrap_or(0);
        match bytes.saturating_sub(free_bytes) {
            0 => 0,
            lacking_bytes => neighbours.ask(lacking_bytes, false, asking.until).bytes,
        }
    }

    /// Says what is held, where that may have changed.
    pub(crate) fn tell_neighbours(&self) {
        self.tell_neighbours_with(0);
    }

    /// The same with unused memory that is on its way to another process.
    fn tell_neighbours_with(&self, leaving_bytes: u64) {
        let Some(neighbours) = self.neighbours.get() else { return };
        let all = self.backend.read().stats().all;
        let (held_bytes, used_bytes) =
            (all.reserved_bytes.current + leaving_bytes, all.active_bytes.current);
        neighbours.tell(held_bytes, held_bytes.saturating_sub(used_bytes));
    }

    /// Notes what other processes would give.
    pub(super) fn note_offered(&self) {
        if let Some(neighbours) = self.neighbours.get()
            && let BackendState::Heap(heap) = &self.backend
        {
            let offered_bytes = neighbours.offered_bytes();
            // What is poisoned says itself what is next.
            let _ = heap.change(|heap| Giving::of(heap).note_offered(offered_bytes));
        }
    }

    /// Memory has come: what is free now, and not used before it comes again, is the first to go.
    pub(super) fn note_growth(&self) {
        if self.neighbours.get().is_some()
            && let BackendState::Heap(heap) = &self.backend
        {
            *self.points_at_growth.lock() = heap.change(|heap| Giving::of(heap).points()).ok();
        }
        self.tell_neighbours();
    }
}
