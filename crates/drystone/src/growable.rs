//! [`Growable`]: memory that grows and shrinks at an address that never changes. Nothing is copied,
//! and physical memory, in whole granules, is behind the front alone.

use std::fmt;

use drystone_core::{FreeError, PoolId, RecordStreamError, RequestError, StreamId};

use crate::allocator::Allocator;
use crate::build_error::BuildError;
use crate::error::AllocateError;
use crate::observers::Observer;
use crate::tag::Tag;

/// Why no addresses were reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The device, or the allocator's backend, maps no memory.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The size or the stream is none of the allocator's, or the driver has no addresses left.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
}

impl From<RequestError> for ReserveError {
    fn from(error: RequestError) -> Self {
        ReserveError::Allocate(error.into())
    }
}

/// Memory from a fixed address on: a cache that grows with the conversation, say. Made by
/// [`Allocator::reserve`], freed when dropped, in the order of its stream.
///
/// # What it takes and gives
/// A growth maps free memory of the allocator's first, whose last use is known to be complete, and
/// creates the rest: a call to create and one to map for each handle, and one to open the range. It
/// counts, and is limited, as any other memory; where there is none it waits and gives back as
/// [`Allocator::allocate`] does. What a shrink gives up stays mapped behind the front, so that
/// growing again costs nothing, until another request or a trim takes it, in whole handles.
///
/// # Streams and graphs
/// It is used in the order of its stream, which each growth asks about: it lives as long, or is
/// retired, and the memory only shrinks. Other streams are reported by
/// [`record_stream`](Self::record_stream), those that launch a graph over it, too. A graph may use
/// whatever is before the front when it runs: what was there when it was captured stays there.
#[must_use = "dropping it frees the memory"]
pub struct Growable {
    allocator: Allocator,
    pool: PoolId,
    stream: StreamId,
    address: u64,
    room_bytes: u64,
    granule_bytes: u64,
    /// The front.
    bytes: u64,
    /// The front in whole granules: the size of the live block.
    backed_bytes: u64,
}

impl Allocator {
    /// Reserves addresses for memory of up to so many bytes, rounded up to whole granules. They may
    /// be more than the device has. One driver call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let mut cache = allocator.reserve(stream, 64 << 30)?;
    /// let address = cache.address();
    /// cache.grow_to(100 << 20)?;
    /// cache.grow_to(3 << 30)?; // the first 100 MiB are as they were
    /// assert_eq!((cache.address(), cache.bytes()), (address, 3 << 30));
    /// assert_eq!(allocator.stats().all.reserved_bytes.current, 3 << 30);
    /// cache.shrink_to(1 << 30)?;
    /// allocator.trim()?;
    /// assert!(allocator.stats().all.reserved_bytes.current < 5 << 28); // in whole handles
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The device or the backend maps no memory, the stream is unknown, or there are no addresses.
    pub fn reserve(&self, stream: StreamId, max_bytes: u64) -> Result<Growable, ReserveError> {
        let (pool, room, granule_bytes) = self.engine.reserve(stream, max_bytes)?;
        Ok(Growable {
            allocator: self.clone(),
            pool,
            stream,
            address: room.address,
            room_bytes: room.bytes,
            granule_bytes,
            bytes: 0,
            backed_bytes: 0,
        })
    }
}

impl Growable {
    /// Where it starts on the device: a multiple of the granule. It never changes.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it has: where the front is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes it can have.
    pub const fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Physical bytes up to the front, in whole granules.
    pub const fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    /// The stream in whose order it is used.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Counts under a tag from now on, in whole granules, and under no other.
    pub fn tagged(self, tag: &Tag) -> Self {
        // No other block ever starts there, so it may have a tag before it has memory.
        let tags = &self.allocator.engine.tags;
        tags.set(self.address, Some(tag), self.backed_bytes);
        self
    }

    fn set_front(&mut self, bytes: u64, backed_bytes: u64) {
        let old_bytes = std::mem::replace(&mut self.backed_bytes, backed_bytes);
        self.bytes = bytes;
        let engine = &self.allocator.engine;
        if engine.observers.has(Observer::Recorder) {
            engine.recorder.resized(self.pool, self.stream, self.address, backed_bytes);
        }
        if engine.observers.has(Observer::Tags) {
            engine.tags.resized(self.address, old_bytes, backed_bytes);
        }
    }

    /// Moves the front forward to so many bytes; does nothing if it is there already. What is
    /// before it stays as it is; what comes contains whatever is there. May call the driver and
    /// wait as [`Allocator::allocate`]; legal while its stream is captured.
    ///
    /// # Errors
    /// Out of memory, more than the room, a failing driver; or, in a capture, other streams still
    /// use what was given up there. The front is where it was.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), AllocateError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        if bytes > self.room_bytes {
            let (bytes, room_bytes) = (bytes - self.bytes, self.room_bytes);
            return Err(RequestError::Room { bytes, room_bytes }.into());
        }
        // The room is of whole granules.
        let backed_bytes = bytes.next_multiple_of(self.granule_bytes);
        if backed_bytes > self.backed_bytes {
            let missing = backed_bytes - self.backed_bytes;
            let block = (self.backed_bytes > 0).then_some(self.address);
            self.allocator.engine.extend(self.pool, self.stream, block, missing)?;
        }
        self.set_front(bytes, backed_bytes);
        Ok(())
    }

    /// Moves the front back to so many bytes; does nothing if it is there already. Never waits:
    /// what is behind it is given up in the order of its stream, and of those that used it.
    ///
    /// # Errors
    /// The allocator is poisoned, or somebody has freed the memory by its address.
    pub fn shrink_to(&mut self, bytes: u64) -> Result<(), FreeError> {
        if bytes >= self.bytes {
            return Ok(());
        }
        let backed_bytes = bytes.next_multiple_of(self.granule_bytes);
        if backed_bytes < self.backed_bytes {
            self.allocator.engine.give_up(self.address, backed_bytes)?;
        }
        self.set_front(bytes, backed_bytes);
        Ok(())
    }

    /// Moves the front forward over all that is left of the device, and within the limit, except
    /// a margin, which is what everything else may ask for in all beside what is in use now. Called
    /// once weights are loaded and graphs are captured. Returns the bytes it has then.
    ///
    /// Everything unused is given back to the device first, so that no piece of it is lost to the
    /// margin: which waits until the device is idle, and is refused while a stream is captured.
    ///
    /// # Errors
    /// A driver call failed; what was grown until then stays.
    pub fn commit_rest(&mut self, margin_bytes: u64) -> Result<u64, AllocateError> {
        let failed = |error| AllocateError::Driver { error, bytes: margin_bytes };
        self.allocator.trim().map_err(|refused| failed(refused.error))?;
        let left_bytes = self.allocator.budget().map_err(failed)?.device_bytes;
        let room_bytes = self.room_bytes - self.backed_bytes;
        let mut more_bytes = left_bytes.saturating_sub(margin_bytes).min(room_bytes);
        loop {
            more_bytes -= more_bytes % self.granule_bytes;
            match self.grow_to(self.backed_bytes + more_bytes) {
                // What others took meanwhile, or the driver needs itself, is not there.
                Err(AllocateError::OutOfMemory(_)) if more_bytes > 0 => {
                    more_bytes = more_bytes.saturating_sub((more_bytes / 64).max(1));
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(self.bytes),
            }
        }
    }

    /// Notes that it is also used on another stream: what it gives up, also when dropped, is not
    /// used again before that stream has passed the point it has reached by then. For what it has
    /// now, and for what it grows by while it has any.
    ///
    /// # Errors
    /// The stream is not one of the allocator's.
    pub fn record_stream(&self, stream: StreamId) -> Result<(), RecordStreamError> {
        if self.backed_bytes == 0 {
            return Ok(());
        }
        self.allocator.record_stream(self.address, stream)
    }
}

impl Drop for Growable {
    fn drop(&mut self) {
        if self.backed_bytes > 0 {
            // Its block is live, or the allocator poisoned, and keeps what it has.
            let _ = self.allocator.engine.give_up(self.address, 0);
            self.set_front(0, 0);
        }
        self.allocator.engine.tags.set(self.address, None, 0);
        self.allocator.engine.give_up_room(self.pool);
    }
}

impl fmt::Debug for Growable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, room_bytes, stream, .. } = self;
        let mut debug = f.debug_struct("Growable");
        debug.field("address", address).field("bytes", bytes).field("room_bytes", room_bytes);
        debug.field("stream", stream).finish_non_exhaustive()
    }
}
