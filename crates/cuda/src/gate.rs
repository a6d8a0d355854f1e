//! [`Tools`]: the gate that streams wait at.
//!
//! Each stream writes that it has arrived, and waits until a word says that it may go on. CUDA
//! warns of such waits, since it does not see what they wait for: so nothing that cannot be undone
//! is done before all have arrived, they are waited for 2 ms at most, and to let go is a store to
//! memory, which cannot fail. The words are never freed and their numbers only grow: a wait that a
//! capture took along passes at once wherever its graph is launched.
//!
//! With more streams than queues on the device, copies may stand behind a stream that waits: a hold
//! counts only once work on the stream of copies has passed by, and copies have a deadline, too.

use std::hint;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::calls::{Context, Cuda};
use crate::current::Current;
use crate::failure::Failure;

/// How long streams are waited for that are to be held.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long copies are waited for: many times what those of a move take. And other devices, before
/// anything stands still: what they do may wait for the very thread that asks.
pub(crate) const COPIES: Duration = Duration::from_millis(50);

/// How many streams can be held.
const STREAMS_MAX: usize = 1022;

/// `CU_STREAM_LEGACY`
pub(crate) const LEGACY: u64 = 1;

/// A stream, and the context that its handle is used in.
pub(crate) type Queue = (Context, u64);

/// A number that no hold had before.
pub(crate) const fn next(number: &mut u32) -> u32 {
    *number = number.wrapping_add(1);
    *number
}

/// Words in pinned memory: the first lets go, the others say who has arrived.
#[derive(Clone, Copy)]
struct Words(NonNull<AtomicU32>);

// SAFETY: they are atomics in memory that is never freed.
unsafe impl Send for Words {}
// SAFETY: the same.
unsafe impl Sync for Words {}

impl Words {
    fn open(self) -> &'static AtomicU32 {
        // SAFETY: the first word of memory that is never freed.
        unsafe { self.0.as_ref() }
    }

    /// Of the stream at a position; the last one of all is that of copies.
    fn arrived(self, at: usize) -> &'static AtomicU32 {
        assert!(at <= STREAMS_MAX, "more streams than words");
        // SAFETY: a word of the same memory.
        let word = unsafe { self.0.add(1 + at) };
        // SAFETY: it is never freed.
        unsafe { word.as_ref() }
    }
}

/// What holds are made with: made once, and never destroyed.
#[derive(Clone, Copy)]
pub(crate) struct Tools {
    words: Words,
    /// The stream of copies.
    copies: u64,
}

impl Tools {
    pub(crate) fn new(cuda: &Cuda) -> Result<Self, Failure> {
        let words = Words(cuda.words(STREAMS_MAX + 2)?);
        Ok(Self { words, copies: cuda.create_stream()? })
    }

    /// Holds streams by a number that no hold had before, once all have arrived; else all go on.
    pub(crate) fn hold(self, cuda: &Cuda, number: u32, streams: &[Queue]) -> Result<(), Failure> {
        let held = self.hold_all(cuda, number, streams);
        if held.is_err() {
            self.let_go(number);
        }
        held
    }

    pub(crate) fn let_go(self, number: u32) {
        self.words.open().store(number, Ordering::Release);
    }

    /// Queues a hold on each stream, and waits until all have arrived, and copies pass by them.
    fn hold_all(self, cuda: &Cuda, number: u32, streams: &[Queue]) -> Result<(), Failure> {
        let (words, deadline) = (self.words, Instant::now() + PATIENCE);
        self.queue_on(cuda, streams, |stream, arrived| {
            cuda.queue_hold(stream, arrived, words.open(), number)
        })?;
        self.await_all(number, streams.len(), deadline)?;
        cuda.queue_write(self.copies, words.arrived(STREAMS_MAX), number)?;
        wait_until(deadline, || Ok(self.has_arrived(number, STREAMS_MAX)))
    }

    /// Waits until streams have done what is queued on them so far, by a number of its own. None of
    /// them stands still.
    pub(crate) fn pass(self, cuda: &Cuda, number: u32, streams: &[Queue]) -> Result<(), Failure> {
        // A query would break a capture that begins at this moment.
        self.queue_on(cuda, streams, |stream, arrived| cuda.queue_write(stream, arrived, number))?;
        self.await_all(number, streams.len(), Instant::now() + COPIES)
    }

    /// Queues something on each stream, in its context, with the word that it writes.
    fn queue_on(
        self,
        cuda: &Cuda,
        streams: &[Queue],
        queue: impl Fn(u64, &AtomicU32) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // Fewer may be there the next time.
        if streams.len() > STREAMS_MAX {
            return Err(Failure::BUSY);
        }
        for (at, &(context, stream)) in streams.iter().enumerate() {
            let _current = Current::enter(cuda, context)?;
            queue(stream, self.words.arrived(at))?;
        }
        Ok(())
    }

    fn await_all(self, number: u32, count: usize, deadline: Instant) -> Result<(), Failure> {
        wait_until(deadline, || Ok((0..count).all(|at| self.has_arrived(number, at))))
    }

    fn has_arrived(self, number: u32, at: usize) -> bool {
        self.words.arrived(at).load(Ordering::Acquire) == number
    }

    /// Begins a copy, on the stream of copies.
    pub(crate) fn copy(self, cuda: &Cuda, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
        cuda.copy(to, from, bytes, self.copies)
    }

    /// Waits until all copies are complete: not forever, since streams may be held meanwhile.
    pub(crate) fn finish_copies(self, cuda: &Cuda) -> Result<(), Failure> {
        finish(cuda, self.copies)
    }

    /// The stream of copies.
    pub(crate) const fn copies(self) -> u64 {
        self.copies
    }
}

/// Waits until the copies on a stream are complete, for as long as copies may take.
pub(crate) fn finish(cuda: &Cuda, copies: u64) -> Result<(), Failure> {
    wait_until(Instant::now() + COPIES, || cuda.is_idle(copies))?;
    cuda.synchronize_stream(copies)
}

/// Asks again and again, until a time.
pub(crate) fn wait_until(
    deadline: Instant,
    is_so: impl Fn() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    while !is_so()? {
        if Instant::now() >= deadline {
            return Err(Failure::BUSY);
        }
        hint::spin_loop();
    }
    Ok(())
}
