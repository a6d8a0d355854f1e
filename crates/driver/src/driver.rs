//! The [`Driver`] trait: one device, and the contract of every call.

use crate::{
    Call, CaptureMode, CaptureStatus, Descriptor, DeviceInfo, DriverError, ErrorCode, Event,
    Handle, Hold, MemoryInfo, MemoryPool, MemoryPoolConfig, MemoryPoolUsage, Stream, StreamUid,
};

/// One device. Methods may be called from any thread; the implementation makes the device current
/// and restores what was current before.
///
/// Every method may fail with [`ErrorCode::Deinitialized`](crate::ErrorCode::Deinitialized) once
/// process exit began, with `NotInitialized` in a forked child and with `ContextLost` after a
/// kernel fault; what is listed under *Errors* comes on top. A call that fails has changed nothing.
pub trait Driver: Send + Sync {
    /// What the device can do. Makes no driver call and never fails.
    fn info(&self) -> DeviceInfo;

    /// Free and total physical memory, over all processes. Of an integrated device that is what the
    /// host can give without swapping, its page cache with it: asked in captures, too.
    ///
    /// Errors: `CaptureUnsupported` (forbidden to this thread; whether a driver does is not known).
    fn memory_info(&self) -> Result<MemoryInfo, DriverError>;

    // Virtual memory. Ranges are multiples of the granularity.

    /// Reserves a range of addresses with nothing behind it and returns its start.
    ///
    /// `bytes` is a positive multiple of the granularity; `alignment` is 0 or a power of two.
    /// Legal in capture. Errors: `OutOfMemory` (address space), `InvalidValue`.
    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64, DriverError>;

    /// Returns a whole reserved range, as [`reserve`](Self::reserve) gave it, with nothing mapped.
    ///
    /// Errors: `InvalidValue` for another start or size, or while something is mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// Creates physical memory. It takes device memory at once and has no address yet.
    ///
    /// `bytes` is a positive multiple of the granularity. Whether fresh memory reads as zero is
    /// not promised. Legal in capture. Errors: `OutOfMemory`, `InvalidValue`.
    fn create(&self, bytes: u64) -> Result<Handle, DriverError>;

    /// The same of memory of the host, which the device reads and writes over the bus once it is
    /// mapped and open. It is pinned, and takes none of the device's.
    ///
    /// Errors: `OutOfMemory`, `InvalidValue`, `NotSupported` (the driver makes no such memory).
    fn create_on_host(&self, bytes: u64) -> Result<Handle, DriverError> {
        Err(DriverError::new(Call::CreateOnHost, ErrorCode::NotSupported).with_figures(bytes, 0))
    }

    /// Gives up the handle. The memory goes back to the device once nothing maps it any more.
    ///
    /// Errors: `InvalidHandle` (unknown, or released before).
    fn release(&self, handle: Handle) -> Result<(), DriverError>;

    /// Maps the whole of `handle` (`bytes` is its size) at `address`, without access rights yet.
    ///
    /// A handle may be mapped at several addresses. Legal in capture. Errors: `InvalidValue` when
    /// the range is not reserved, overlaps a mapping, is misaligned or has not the handle's size;
    /// `InvalidHandle`; `OutOfMemory` when the handle is mapped too often.
    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<(), DriverError>;

    /// Gives the device read and write access to a range that is mapped throughout; one call may
    /// cover many mappings.
    ///
    /// Legal in capture. Errors: `InvalidValue` when part of the range is not mapped,
    /// `OutOfMemory` when the driver's limit of mappings is reached.
    fn set_access(&self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// Unmaps a range that is made of whole mappings. Acts at once: it does **not** wait for
    /// kernels that use the range, so the caller must know that the last use is complete.
    ///
    /// Errors: `InvalidValue` when part of the range is not mapped or a mapping would be cut.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// Gives physical memory to other processes: a descriptor that leads to it, the caller's to
    /// close. The memory goes back to the device only once its handle, its mappings and every copy
    /// of the descriptor in any process are gone.
    ///
    /// Errors: `InvalidHandle`, `NotSupported` (the memory was not created to be shared by
    /// descriptors, or no memory of the device is), `Other` (no descriptor is left to the process).
    fn export(&self, handle: Handle) -> Result<Descriptor, DriverError>;

    /// A handle of the memory that a descriptor leads to, to map and release like any other. The
    /// descriptor stays the caller's, and may be closed at once.
    ///
    /// Errors: `InvalidValue` (it leads to no such memory), `NotSupported`, `OutOfMemory`.
    fn import(&self, descriptor: &Descriptor) -> Result<Handle, DriverError>;

    // Plain and stream-ordered memory.

    /// Allocates plain device memory (`cudaMalloc`), aligned to at least 512 bytes.
    ///
    /// Errors: `OutOfMemory`, `InvalidValue` for 0 bytes, `CaptureUnsupported` while a capture
    /// forbids it to this thread (which breaks the capture).
    fn malloc(&self, bytes: u64) -> Result<u64, DriverError>;

    /// Frees what [`malloc`](Self::malloc) gave. Waits until the device is idle.
    ///
    /// Errors: `InvalidValue` for another address, `CaptureUnsupported` as for `malloc`.
    fn free(&self, address: u64) -> Result<(), DriverError>;

    /// Gives another device access to this device's memory: to plain memory and memory pools from
    /// now on, to mapped memory at its next [`set_access`](Self::set_access). Asking again is
    /// harmless.
    ///
    /// Errors: `NotSupported` when the two are not connected, `InvalidValue` for this device or
    /// one that does not exist.
    fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), DriverError>;

    // Stream-ordered memory, from memory pools of the driver.

    /// Creates a memory pool. It takes device memory when something is allocated from it.
    ///
    /// Errors: `NotSupported` (no memory pools, or exportable ones where nothing can be shared),
    /// `OutOfMemory`.
    fn create_memory_pool(&self, config: &MemoryPoolConfig) -> Result<MemoryPool, DriverError>;

    /// Destroys a memory pool. What is still allocated from it stays valid until it is freed.
    ///
    /// Errors: `InvalidHandle`.
    fn destroy_memory_pool(&self, pool: MemoryPool) -> Result<(), DriverError>;

    /// Gives idle memory back to the device until the pool holds no more than `keep_bytes`, as far
    /// as the host knows that its last use is complete.
    ///
    /// Errors: `InvalidHandle`.
    fn trim_memory_pool(&self, pool: MemoryPool, keep_bytes: u64) -> Result<(), DriverError>;

    /// What a memory pool holds and has handed out.
    ///
    /// Errors: `InvalidHandle`, `CaptureUnsupported` while a capture forbids it to this thread
    /// (which breaks the capture).
    fn memory_pool_usage(&self, pool: MemoryPool) -> Result<MemoryPoolUsage, DriverError>;

    /// Allocates in stream order from a memory pool (`cudaMallocFromPoolAsync`), aligned to at
    /// least 256 bytes. In a capture the allocation becomes part of the graph, which owns the
    /// memory from then on.
    ///
    /// Errors: `OutOfMemory`, `InvalidValue`, `InvalidHandle` (pool or stream), `NotSupported`.
    fn malloc_async(
        &self,
        pool: MemoryPool,
        bytes: u64,
        stream: Stream,
    ) -> Result<u64, DriverError>;

    /// Frees in stream order what [`malloc_async`](Self::malloc_async) gave. The caller orders
    /// `stream` after every use on other streams before.
    ///
    /// Errors: `InvalidValue` (unknown address), `InvalidHandle` (stream), `NotSupported`.
    fn free_async(&self, address: u64, stream: Stream) -> Result<(), DriverError>;

    // Memory that gets other memory behind its addresses.

    /// Holds streams: returns once all that was queued on them before is done, and nothing queued
    /// later begins before [`let_go`](Self::let_go). The context's default stream is always among
    /// them, and with it every stream that waits for that one.
    ///
    /// Waits for 2 ms at most. A stream that is not idle by then is no reason to go on: all go on
    /// as if nothing had been asked. Calls that map, unmap and open memory are allowed meanwhile,
    /// and return. One hold lasts at a time.
    ///
    /// Errors: `NotReady` (a stream had more to do, or another hold lasts), `CaptureUnsupported`
    /// (one is captured), `InvalidHandle`, `NotSupported` (the device cannot hold streams, or its
    /// calls that map memory wait for them).
    fn hold(&self, streams: &[Stream]) -> Result<Hold, DriverError> {
        let _ = streams;
        Err(DriverError::new(Call::Hold, ErrorCode::NotSupported))
    }

    /// Lets the streams of a hold go on. Makes no call that could fail.
    fn let_go(&self, hold: Hold) {
        let _ = hold;
    }

    /// Begins to copy so many bytes of mapped memory, of the device or the host. It is in no
    /// stream's order: the caller holds all that may use either side, and waits for it by
    /// [`finish_copies`](Self::finish_copies).
    ///
    /// Errors: `InvalidValue` (a byte of a side is mapped nowhere, or not open), `NotSupported`.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DriverError> {
        Err(DriverError::new(Call::Copy, ErrorCode::NotSupported).with_figures(bytes, from.min(to)))
    }

    /// Blocks the host until every copy that was begun is complete: not forever, since what is
    /// held may be in the way of copies.
    ///
    /// Errors: `NotReady` (they were not in time, and go on), `NotSupported`.
    fn finish_copies(&self) -> Result<(), DriverError> {
        Err(DriverError::new(Call::FinishCopies, ErrorCode::NotSupported))
    }

    // Streams and events.

    /// Creates an event without timing.
    ///
    /// Legal in capture. Errors: `OutOfMemory`.
    fn create_event(&self) -> Result<Event, DriverError>;

    /// Destroys an event. Legal at any time, also before the recorded work completed.
    ///
    /// Errors: `InvalidHandle`.
    fn destroy_event(&self, event: Event) -> Result<(), DriverError>;

    /// Marks the point that `stream` has reached in its queue. In a capture it becomes part of the
    /// graph, and the event belongs to the capture from then on.
    ///
    /// Errors: `InvalidHandle` (event, or a stream destroyed meanwhile). One of which
    /// [`covers`](Self::covers) says `false` is refused, once what it has queued is done.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError>;

    /// Whether the work up to the event's last record is complete; true if never recorded.
    ///
    /// Errors: `InvalidHandle`, `CapturedEvent`, `CaptureUnsupported` (forbidden to this thread).
    fn query(&self, event: Event) -> Result<bool, DriverError>;

    /// Makes work queued on `stream` from now on wait for the event. The host does not wait.
    ///
    /// Errors: `InvalidHandle`, `CapturedEvent` when the event belongs to another capture.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError>;

    /// Blocks the host until the work up to the event's last record is complete.
    ///
    /// Errors: `InvalidHandle`, `CapturedEvent`, `CaptureUnsupported`.
    fn synchronize_event(&self, event: Event) -> Result<(), DriverError>;

    /// Blocks the host until all work queued on the stream is complete.
    ///
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    fn synchronize_stream(&self, stream: Stream) -> Result<(), DriverError>;

    /// Blocks the host until the device is idle: until all is done that was queued on streams of
    /// its own context, and on those of which [`covers`](Self::covers) has said `true`.
    ///
    /// Errors: `CaptureUnsupported`.
    fn synchronize_device(&self) -> Result<(), DriverError>;

    /// Whether a wait for the device waits for this stream, too: not where that is of a context
    /// which the program made. `None` where that cannot be told now, as of a stream that is being
    /// captured. Asked by a relaxed thread, with a call that brings the stream.
    fn covers(&self, stream: Stream) -> Option<bool>;

    /// The identity of a stream. Handle values are recycled, identities are not. Of a stream that
    /// is being captured an implementation tells it from memory, or refuses; it does not ask the
    /// driver, which could break the capture.
    ///
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    fn stream_uid(&self, stream: Stream) -> Result<StreamUid, DriverError>;

    /// Whether everything from before is still there: asked before memory moves, and of no handle.
    /// Legal in capture for a relaxed thread.
    ///
    /// Errors: `DeviceReset`, and so every later call.
    fn check_context(&self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Whether the stream is being captured. Legal in capture.
    ///
    /// Errors: `InvalidHandle`.
    fn capture_status(&self, stream: Stream) -> Result<CaptureStatus, DriverError>;

    /// Sets the calling thread's capture mode and returns the one before. Calls that a capture
    /// forbids are allowed to a thread in [`CaptureMode::Relaxed`].
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, DriverError>;
}
