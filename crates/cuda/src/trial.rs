//! The trial of holds: whether a driver's calls that map memory return while streams wait, CUDA
//! does not say. It is found out once for each device, on addresses and memory of our own, and
//! first on a stream of our own: the program's default stream is held only where that went well,
//! and then as every move holds it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drystone_driver::{ErrorCode, Relaxed};

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::gate::{LEGACY, Tools};
use crate::properties::{Access, PhysicalMemory};

/// How long calls that map memory may take while streams wait: else they wait for them, too.
const TRIAL: Duration = Duration::from_millis(200);

/// What is tried: everything that takes a stream or memory to make is there before, and goes after.
struct Objects {
    bytes: u64,
    handle: u64,
    address: u64,
    stream: u64,
}

/// Whether memory is mapped, opened, copied and unmapped while streams wait. Holds take numbers
/// after this one.
///
/// Errors: the device is full, or busy, which says nothing of it.
pub(crate) fn try_out(
    cuda: &Cuda,
    memory: PhysicalMemory,
    tools: Tools,
    number: &mut u32,
) -> Result<bool, Failure> {
    // With one queue for all streams, the first that waits is in the way of the others.
    if std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").is_ok_and(|value| value.trim() == "1") {
        return Ok(false);
    }
    // A capture that nobody told of forbids some of it to a thread that is not.
    let Ok(_relaxed) = Relaxed::enter(cuda) else {
        return Err(Failure { number: Failure::NOT_READY, name: "CUDA_ERROR_NOT_READY" });
    };
    let tried = Objects::new(cuda, memory).and_then(|objects| {
        let tried = objects.hold_and_map(cuda, memory, tools, number);
        let given_back = objects.give_back(cuda);
        tried.and_then(|works| given_back.map(|()| works))
    });
    match tried {
        Err(failure) if matches!(failure.code(), ErrorCode::OutOfMemory | ErrorCode::NotReady) => {
            Err(failure)
        }
        tried => Ok(tried.unwrap_or(false)),
    }
}

impl Objects {
    fn new(cuda: &Cuda, memory: PhysicalMemory) -> Result<Self, Failure> {
        let bytes = cuda.granularity_bytes(memory)?;
        let handle = cuda.create(bytes, memory)?;
        let address = cuda.reserve(bytes, 0);
        let stream = address.and_then(|_| cuda.create_stream());
        match (address, stream) {
            (Ok(address), Ok(stream)) => Ok(Self { bytes, handle, address, stream }),
            (address, stream) => {
                let _ = cuda.release(handle);
                let _ = address.and_then(|address| cuda.unreserve(address, bytes));
                stream.and(address).and(Err(Failure { number: Failure::NOT_SUPPORTED, name: "" }))
            }
        }
    }

    fn hold_and_map(
        &self,
        cuda: &Cuda,
        memory: PhysicalMemory,
        tools: Tools,
        number: &mut u32,
    ) -> Result<bool, Failure> {
        for streams in [&[self.stream][..], &[LEGACY, self.stream]] {
            *number = number.wrapping_add(1);
            if !self.map_beside(cuda, memory, tools, (*number, streams))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Maps, copies and unmaps memory while streams wait. Whether that took no longer than it may:
    /// a thread lets them go after that time.
    fn map_beside(
        &self,
        cuda: &Cuda,
        memory: PhysicalMemory,
        tools: Tools,
        (number, streams): (u32, &[u64]),
    ) -> Result<bool, Failure> {
        let (bytes, address) = (self.bytes, self.address);
        let is_done = AtomicBool::new(false);
        let tried = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let begun = Instant::now();
                while !is_done.load(Ordering::Acquire) && begun.elapsed() < TRIAL {
                    thread::sleep(Duration::from_micros(100));
                }
                tools.let_go(number);
                is_done.load(Ordering::Acquire)
            });
            let tried = tools.hold(cuda, number, streams).map(|()| {
                let mapped = cuda.map(address, bytes, self.handle);
                let copied = mapped.and_then(|()| {
                    cuda.set_access(address, bytes, &[Access::of(memory.ordinal)])?;
                    tools.copy(cuda, address + bytes / 2, address, 512)?;
                    tools.finish_copies(cuda)
                });
                (mapped, copied.and_then(|()| cuda.unmap(address, bytes)))
            });
            is_done.store(true, Ordering::Release);
            let is_quick = watch.join().unwrap_or(false);
            tried.map(|(mapped, unmapped)| (mapped, unmapped, is_quick))
        });
        let (mapped, unmapped, is_quick) = tried?;
        if mapped.is_ok() && unmapped.is_err() {
            // A copy that stood behind a stream that was held comes to an end now.
            tools.finish_copies(cuda)?;
            cuda.unmap(address, bytes)?;
        }
        match unmapped {
            Err(failure) if failure.code() == ErrorCode::OutOfMemory => Err(failure),
            unmapped => Ok(is_quick && unmapped.is_ok()),
        }
    }

    fn give_back(&self, cuda: &Cuda) -> Result<(), Failure> {
        let released = cuda.release(self.handle);
        let unreserved = cuda.unreserve(self.address, self.bytes);
        let finished = cuda.synchronize_stream(self.stream);
        released.and(unreserved).and(finished).and(cuda.destroy_stream(self.stream))
    }
}
