//! Streams as foreign code names them, by handle. Who they are, `drystone` knows; here is what it
//! cannot know: whether the end of a stream will be told.

use std::sync::atomic::{AtomicBool, Ordering};

use drystone::driver::Stream;
use drystone::{StreamEnd, StreamId, seen};
use parking_lot::Mutex;

use crate::device::Device;
use crate::status::{Failure, Status};

/// Tells whether the end of a stream will be told, of a device and by its handle.
pub type TellEnd = fn(u32, u64) -> StreamEnd;

static TELL_END: Mutex<Option<TellEnd>> = Mutex::new(None);

/// From now on it is asked of a stream that was not met before.
pub fn ask(tell: TellEnd) {
    *TELL_END.lock() = Some(tell);
}

/// Whether streams live as long as the process, so that any may be asked at any time.
static STREAMS_STAY: AtomicBool = AtomicBool::new(false);

/// Says of all streams to come that they live as long as the process.
pub fn all_stay() {
    STREAMS_STAY.store(true, Ordering::Relaxed);
}

/// What is known of a stream's end.
#[cold]
fn end_of(device: u32, handle: u64) -> StreamEnd {
    if STREAMS_STAY.load(Ordering::Relaxed) || seen::is_seen(Stream(handle)) {
        return StreamEnd::Told;
    }
    // Asked without the lock.
    let tell = *TELL_END.lock();
    tell.map_or(StreamEnd::Untold, |tell| tell(device, handle))
}

impl Device {
    /// The key of a stream.
    ///
    /// # Errors
    /// The driver does not know the stream.
    #[inline]
    pub fn stream(&self, handle: u64) -> Result<StreamId, Failure> {
        Ok(self.allocator.stream(Stream(handle), || end_of(self.ordinal, handle))?)
    }

    /// The same of a stream that the driver may be asked about until it is retired.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn keep_stream(&self, handle: u64) -> Result<StreamId, Failure> {
        Ok(self.allocator.add_stream(Stream(handle))?)
    }

    /// Says that a stream is about to be destroyed.
    ///
    /// # Errors
    /// It is the default stream, or the driver does not know it.
    pub fn retire_stream(&self, handle: u64) -> Result<(), Failure> {
        if Stream(handle).is_default() {
            let message = "the default stream is never destroyed, so it cannot be retired";
            return Err(Failure::new(Status::InvalidValue, message));
        }
        Ok(self.allocator.retire_stream(self.stream(handle)?)?)
    }
}
