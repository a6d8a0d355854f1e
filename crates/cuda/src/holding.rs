//! [`Holding`]: what it takes to let all streams of a device stand still while memory is mapped.
//!
//! Each stream writes that it has arrived, and waits until a word says that it may go on. CUDA
//! warns of such waits, since it does not see what they wait for: so nothing that cannot be undone
//! is done before all have arrived, they are waited for 2 ms at most, and to let go is a store to
//! memory, which cannot fail. The words are never freed and their numbers only grow: a wait that a
//! capture took along passes at once wherever its graph is launched.
//!
//! Whether a driver's calls that map memory return while a stream waits, CUDA does not say: that is
//! tried out, once for each device, on addresses and a stream of our own.

use std::hint;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drystone_driver::{CaptureStatus, ErrorCode, Hold, Relaxed, Stream};
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::properties::{Access, PhysicalMemory};

/// How long streams are waited for that are to be held.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long calls that map memory may take while a stream waits: else they wait for it, too.
const TRIAL: Duration = Duration::from_millis(200);

/// How many streams can be held.
const STREAMS_MAX: usize = 1023;

/// `CU_STREAM_LEGACY`
const LEGACY: u64 = 1;

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

    /// Of the stream at a position below [`STREAMS_MAX`].
    fn arrived(self, at: usize) -> &'static AtomicU32 {
        assert!(at < STREAMS_MAX, "more streams than words");
        // SAFETY: a word of the same memory.
        let word = unsafe { self.0.add(1 + at) };
        // SAFETY: it is never freed.
        unsafe { word.as_ref() }
    }
}

/// What a device can do, as far as it was tried out.
enum Ability {
    Unknown,
    None,
    /// With the stream of copies that were begun and not waited for; 0 without any.
    Works {
        words: Words,
        copies: u64,
        number: u32,
    },
}

/// Of one device.
pub(crate) struct Holding {
    memory: PhysicalMemory,
    ability: Mutex<Ability>,
}

impl Holding {
    pub(crate) fn new(memory: PhysicalMemory) -> Self {
        Self { memory, ability: Mutex::new(Ability::Unknown) }
    }

    /// Holds these streams and the context's default one.
    pub(crate) fn hold(&self, cuda: &Cuda, streams: &[Stream]) -> Result<Hold, Failure> {
        check_captures(cuda, streams)?;
        let mut ability = self.ability.lock();
        if matches!(*ability, Ability::Unknown) {
            *ability = find_out(cuda, self.memory)?;
        }
        let Ability::Works { words, number, .. } = &mut *ability else {
            return Err(Failure { number: Failure::NOT_SUPPORTED, name: "" });
        };
        *number = number.wrapping_add(1);
        let (words, number) = (*words, *number);
        match queue_all(cuda, words, number, streams) {
            Ok(()) => Ok(Hold(number.into())),
            Err(failure) => {
                words.open().store(number, Ordering::Release);
                Err(failure)
            }
        }
    }

    /// Lets the streams of a hold go.
    pub(crate) fn let_go(&self, hold: &Hold) {
        if let Ability::Works { words, .. } = &*self.ability.lock() {
            words.open().store(hold.0 as u32, Ordering::Release);
        }
    }

    /// Begins a copy, on a stream of its own.
    pub(crate) fn copy(&self, cuda: &Cuda, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
        let mut ability = self.ability.lock();
        let Ability::Works { copies, .. } = &mut *ability else {
            return Err(Failure { number: Failure::NOT_SUPPORTED, name: "" });
        };
        if *copies == 0 {
            *copies = cuda.create_stream()?;
        }
        cuda.copy(to, from, bytes, *copies)
    }

    /// Waits until all copies are complete.
    pub(crate) fn finish_copies(&self, cuda: &Cuda) -> Result<(), Failure> {
        let mut ability = self.ability.lock();
        let Ability::Works { copies, .. } = &mut *ability else { return Ok(()) };
        if *copies != 0 {
            cuda.synchronize_stream(*copies)?;
            // One that cannot be destroyed is used again.
            cuda.destroy_stream(*copies)?;
            *copies = 0;
        }
        Ok(())
    }
}

/// Refuses what is captured: it would become part of the graph; and the default stream must not be
/// used beside a capture that would wait for it.
fn check_captures(cuda: &Cuda, streams: &[Stream]) -> Result<(), Failure> {
    for stream in streams.iter().map(|stream| stream.0).chain([LEGACY]) {
        if cuda.capture_status(stream)? != CaptureStatus::None {
            return Err(Failure { number: Failure::STREAM_CAPTURE_IMPLICIT, name: "" });
        }
    }
    Ok(())
}

/// Queues a hold on each stream, and waits until all have arrived.
fn queue_all(cuda: &Cuda, words: Words, number: u32, streams: &[Stream]) -> Result<(), Failure> {
    if streams.len() >= STREAMS_MAX {
        return Err(Failure { number: Failure::NOT_SUPPORTED, name: "" });
    }
    // The default stream first: one that it waits for would wait for it, were it held before. What
    // waits for the default stream stands still with it.
    let mut queued = 0;
    let mut queue = |stream: u64| {
        let arrived = words.arrived(queued);
        queued += 1;
        cuda.queue_hold(stream, arrived, words.open(), number)
    };
    queue(LEGACY)?;
    for stream in streams {
        if !cuda.is_blocking(stream.0)? {
            queue(stream.0)?;
        }
    }
    let begun = Instant::now();
    let has_arrived = |at: usize| words.arrived(at).load(Ordering::Acquire) == number;
    while !(0..queued).all(has_arrived) {
        if begun.elapsed() >= PATIENCE {
            return Err(Failure { number: Failure::NOT_READY, name: "CUDA_ERROR_NOT_READY" });
        }
        hint::spin_loop();
    }
    Ok(())
}

/// Tries out whether memory is mapped, opened and unmapped while a stream waits. A device that is
/// full says nothing.
fn find_out(cuda: &Cuda, memory: PhysicalMemory) -> Result<Ability, Failure> {
    // With one queue for all streams, the first that waits is in the way of the others.
    if std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").is_ok_and(|value| value.trim() == "1") {
        return Ok(Ability::None);
    }
    // A capture that nobody told of forbids some of it to a thread that is not.
    let Ok(_relaxed) = Relaxed::enter(cuda) else { return Ok(Ability::Unknown) };
    let tried = || {
        let words = Words(cuda.words(STREAMS_MAX + 1)?);
        let stream = cuda.create_stream()?;
        let mapped = map_beside(cuda, memory, words, stream);
        // What it waited for has come, whatever became of the rest.
        let destroyed = cuda.destroy_stream(stream);
        Ok::<_, Failure>(mapped?.then_some(words).filter(|_| destroyed.is_ok()))
    };
    match tried() {
        Ok(Some(words)) => Ok(Ability::Works { words, copies: 0, number: 1 }),
        Err(failure) if failure.code() == ErrorCode::OutOfMemory => Err(failure),
        _ => Ok(Ability::None),
    }
}

/// Maps and unmaps memory while a stream waits. Whether that took no longer than it may: a thread
/// lets the stream go after that time.
fn map_beside(
    cuda: &Cuda,
    memory: PhysicalMemory,
    words: Words,
    stream: u64,
) -> Result<bool, Failure> {
    let bytes = cuda.granularity_bytes(memory)?;
    let (handle, address) = (cuda.create(bytes, memory)?, cuda.reserve(bytes, 0)?);
    let is_done = AtomicBool::new(false);
    let map = || {
        cuda.map(address, bytes, handle)?;
        let opened = cuda.set_access(address, bytes, &[Access::of(memory.ordinal)]);
        let unmapped = cuda.unmap(address, bytes);
        opened.and(unmapped)
    };
    let (mapped, is_quick) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let begun = Instant::now();
            while !is_done.load(Ordering::Acquire) && begun.elapsed() < TRIAL {
                thread::sleep(Duration::from_micros(100));
            }
            words.open().store(1, Ordering::Release);
            is_done.load(Ordering::Acquire)
        });
        let held = cuda.queue_hold(stream, words.arrived(0), words.open(), 1);
        let mapped = held.and_then(|()| map());
        is_done.store(true, Ordering::Release);
        (mapped, watch.join().unwrap_or(false))
    });
    let given_back = cuda.release(handle).and(cuda.unreserve(address, bytes));
    let finished = cuda.synchronize_stream(stream);
    mapped.and(given_back).and(finished)?;
    Ok(is_quick)
}
