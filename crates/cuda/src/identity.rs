//! [`Identities`]: which stream is which, also while it is being captured.
//!
//! The driver's own id answers that, but may not be asked of a stream that is being captured: it
//! refuses, and the attempt breaks the capture. So the last answer is remembered by handle, and a
//! stream that is first seen in a capture gets an identity of ours, which it keeps when the driver
//! can be asked again. A handle that came back as another stream is noticed then, not before:
//! programs retire a stream before they destroy it.
//!
//! What was told of a handle with an id is so for ever. Each thread remembers it of the streams
//! that it met last, so that threads on streams of their own do not wait for one another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone_driver::{CaptureStatus, StreamUid};
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::failure::Failure;

/// The legacy default stream, under its other name 0, too.
const LEGACY: u64 = 1;
/// The same handle is another stream in every thread.
const PER_THREAD: u64 = 2;

/// Where identities of ours begin. The driver counts its own up from small numbers.
const FIRST_OF_OURS: u64 = 1 << 63;

/// What is known of the stream behind a handle.
#[derive(Clone, Copy, Debug)]
struct Known {
    uid: StreamUid,
    /// The driver's id, once it could be asked.
    id: Option<u64>,
}

/// How many streams a thread remembers; for those it meets beyond, the table is locked.
const REMEMBERED: usize = 8;

/// A stream that the thread met: the number of the table, the handle, the driver's id; and who it
/// is.
type Met = Cell<Option<((u64, u64, u64), StreamUid)>>;

thread_local! {
    /// By id. Has no destructor, so that it serves until the thread's very end.
    static MET: [Met; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
    /// The per-thread default stream of each device; gone with its thread.
    static OF_THREAD: RefCell<BTreeMap<u64, Known>> = const { RefCell::new(BTreeMap::new()) };
}

/// The streams of one device.
#[derive(Debug)]
pub(crate) struct Identities {
    /// Tells this table from all others.
    number: u64,
    ordinal: u32,
    by_handle: Mutex<BTreeMap<u64, Known>>,
}

impl Identities {
    pub(crate) fn new(ordinal: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, ordinal, by_handle: Mutex::new(BTreeMap::new()) }
    }

    /// The identity of a stream, which may be another device's. The device's context is current.
    #[inline]
    pub(crate) fn of(&self, cuda: &Cuda, stream: u64) -> Result<StreamUid, Failure> {
        let stream = if stream == 0 { LEGACY } else { stream };
        let is_captured = match cuda.capture_status(stream) {
            Ok(status) => status != CaptureStatus::None,
            Err(failure) if failure.number == Failure::STREAM_CAPTURE_IMPLICIT => true,
            Err(failure) => return Err(failure),
        };
        let id = if is_captured { None } else { Some(cuda.stream_id(stream)?) };
        Ok(self.recall(stream, id))
    }

    /// Who a handle is, given what the driver says now, if it could be asked.
    fn recall(&self, stream: u64, id: Option<u64>) -> StreamUid {
        let Some(own) = id else { return self.look_up(stream, id) };
        let stream_now = (self.number, stream, own);
        MET.with(|met| {
            let met = &met[own as usize % REMEMBERED];
            match met.get() {
                Some((same, uid)) if same == stream_now => uid,
                _ => {
                    let uid = self.look_up(stream, id);
                    met.set(Some((stream_now, uid)));
                    uid
                }
            }
        })
    }

    /// Matches what the driver says now, if it could be asked, with what is known of the handle.
    fn look_up(&self, stream: u64, id: Option<u64>) -> StreamUid {
        if stream != PER_THREAD {
            return self.settle(stream, id, &mut self.by_handle.lock(), stream);
        }
        let settle = |known: &RefCell<_>| {
            self.settle(u64::from(self.ordinal), id, &mut known.borrow_mut(), stream)
        };
        // A thread that is ending has forgotten; the driver's id is enough for it.
        OF_THREAD.try_with(settle).unwrap_or_else(|_| self.uid(stream, id))
    }

    fn settle(
        &self,
        key: u64,
        id: Option<u64>,
        table: &mut BTreeMap<u64, Known>,
        stream: u64,
    ) -> StreamUid {
        let known = table.entry(key).or_insert_with(|| Known { uid: self.uid(stream, id), id });
        match (known.id, id) {
            (None, Some(_)) => known.id = id,
            (Some(before), Some(now)) if before != now => {
                *known = Known { uid: self.uid(stream, id), id };
            }
            _ => {}
        }
        known.uid
    }

    /// A fresh identity. Whether the driver's ids of default streams differ between devices is not
    /// documented, so the ordinal is made part of them.
    fn uid(&self, stream: u64, id: Option<u64>) -> StreamUid {
        static NEXT_OF_OURS: AtomicU64 = AtomicU64::new(FIRST_OF_OURS);
        StreamUid(match id {
            Some(id) if stream <= PER_THREAD => id ^ (u64::from(self.ordinal) << 48),
            Some(id) => id,
            None => NEXT_OF_OURS.fetch_add(1, Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use drystone_driver::StreamUid;

    use super::{Identities, LEGACY, PER_THREAD};

    #[test]
    fn a_stream_has_the_drivers_id() {
        let identities = Identities::new(0);
        assert_eq!(identities.recall(0x7000, Some(12)), StreamUid(12));
        assert_eq!(identities.recall(0x7000, Some(12)), StreamUid(12));
    }

    /// A stream first seen in a capture on one device, and at once on another.
    #[test]
    fn what_a_thread_remembers_of_one_device_says_nothing_of_another() {
        let [one, other] = [Identities::new(0), Identities::new(0)];
        let first = one.recall(0x7000, None);
        assert_eq!(one.recall(0x7000, Some(12)), first);
        assert_eq!(other.recall(0x7000, Some(12)), StreamUid(12));
        assert_eq!(one.recall(0x7000, Some(12)), first);
    }

    #[test]
    fn b2_a_recycled_handle_is_another_stream() {
        let identities = Identities::new(0);
        let first = identities.recall(0x7000, Some(12));
        assert_ne!(identities.recall(0x7000, Some(13)), first);
    }

    #[test]
    fn i11_a_stream_keeps_its_identity_while_it_is_captured() {
        let identities = Identities::new(0);
        let before = identities.recall(0x7000, Some(12));
        assert_eq!(identities.recall(0x7000, None), before);
        assert_eq!(identities.recall(0x7000, Some(12)), before);
    }

    #[test]
    fn i11_a_stream_first_seen_in_a_capture_keeps_the_identity_it_got_there() {
        let identities = Identities::new(0);
        let first = identities.recall(0x7000, None);
        let other = identities.recall(0x8000, None);
        assert_ne!(first, other);
        assert_eq!(identities.recall(0x7000, None), first);
        assert_eq!(identities.recall(0x7000, Some(12)), first);
        assert_eq!(identities.recall(0x7000, Some(12)), first);
        // The handle's next stream is another.
        assert_eq!(identities.recall(0x7000, Some(13)), StreamUid(13));
    }

    #[test]
    fn b3_default_streams_of_two_devices_differ_even_if_the_drivers_ids_do_not() {
        let (one, two) = (Identities::new(0), Identities::new(1));
        assert_ne!(one.recall(LEGACY, Some(5)), two.recall(LEGACY, Some(5)));
        assert_ne!(one.recall(PER_THREAD, Some(6)), two.recall(PER_THREAD, Some(6)));
    }

    #[test]
    fn b4_the_per_thread_stream_is_another_in_every_thread_also_in_a_capture() {
        let identities = Identities::new(0);
        let here = identities.recall(PER_THREAD, None);
        let there = std::thread::scope(|scope| {
            scope.spawn(|| identities.recall(PER_THREAD, None)).join().unwrap()
        });
        assert_ne!(here, there);
        assert_eq!(identities.recall(PER_THREAD, Some(6)), here);
    }
}
