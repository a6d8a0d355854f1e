//! [`Counted`]: a driver that counts the calls made through it.
//!
//! Counted is what `drystone compare` counts: memory, event, stream and synchronisation calls. What
//! only asks about a device, a stream or a capture is passed on uncounted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone::driver::{
    CaptureMode, CaptureStatus, Descriptor, DeviceInfo, Driver, DriverError, Event, Handle, Hold,
    MemoryInfo, MemoryPool, MemoryPoolConfig, MemoryPoolUsage, Stream, StreamUid,
};

type Result<T> = std::result::Result<T, DriverError>;

/// A driver, and how often it was called.
pub(crate) struct Counted {
    driver: Arc<dyn Driver>,
    calls: AtomicU64,
}

impl Counted {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, calls: AtomicU64::new(0) }
    }

    /// The number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The driver, for one more call.
    fn called(&self) -> &dyn Driver {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.driver
    }
}

impl Driver for Counted {
    fn info(&self) -> DeviceInfo {
        self.driver.info()
    }

    fn check_context(&self) -> Result<()> {
        self.driver.check_context()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.driver.memory_info()
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        self.called().reserve(bytes, alignment)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.called().unreserve(address, bytes)
    }

    fn create(&self, bytes: u64) -> Result<Handle> {
        self.called().create(bytes)
    }

    fn create_on_host(&self, bytes: u64) -> Result<Handle> {
        self.called().create_on_host(bytes)
    }

    fn release(&self, handle: Handle) -> Result<()> {
        self.called().release(handle)
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<()> {
        self.called().map(address, bytes, handle)
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.called().set_access(address, bytes)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.called().unmap(address, bytes)
    }

    fn export(&self, handle: Handle) -> Result<Descriptor> {
        self.called().export(handle)
    }

    fn import(&self, descriptor: &Descriptor) -> Result<Handle> {
        self.called().import(descriptor)
    }

    fn malloc(&self, bytes: u64) -> Result<u64> {
        self.called().malloc(bytes)
    }

    fn free(&self, address: u64) -> Result<()> {
        self.called().free(address)
    }

    fn enable_peer_access(&self, peer_ordinal: u32) -> Result<()> {
        self.called().enable_peer_access(peer_ordinal)
    }

    fn create_memory_pool(&self, config: &MemoryPoolConfig) -> Result<MemoryPool> {
        self.called().create_memory_pool(config)
    }

    fn destroy_memory_pool(&self, pool: MemoryPool) -> Result<()> {
        self.called().destroy_memory_pool(pool)
    }

    fn trim_memory_pool(&self, pool: MemoryPool, keep_bytes: u64) -> Result<()> {
        self.called().trim_memory_pool(pool, keep_bytes)
    }

    fn memory_pool_usage(&self, pool: MemoryPool) -> Result<MemoryPoolUsage> {
        self.driver.memory_pool_usage(pool)
    }

    fn malloc_async(&self, pool: MemoryPool, bytes: u64, stream: Stream) -> Result<u64> {
        self.called().malloc_async(pool, bytes, stream)
    }

    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        self.called().free_async(address, stream)
    }

    fn hold(&self, streams: &[Stream]) -> Result<Hold> {
        self.called().hold(streams)
    }

    fn let_go(&self, hold: Hold) {
        self.driver.let_go(hold);
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        self.called().copy(to, from, bytes)
    }

    fn finish_copies(&self) -> Result<()> {
        self.called().finish_copies()
    }

    fn create_event(&self) -> Result<Event> {
        self.called().create_event()
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        self.called().destroy_event(event)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.called().record(event, stream)
    }

    fn query(&self, event: Event) -> Result<bool> {
        self.called().query(event)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.called().wait(stream, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        self.called().synchronize_event(event)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        self.called().synchronize_stream(stream)
    }

    fn synchronize_device(&self) -> Result<()> {
        self.called().synchronize_device()
    }

    fn covers(&self, stream: Stream) -> Option<bool> {
        self.driver.covers(stream)
    }

    fn stream_uid(&self, stream: Stream) -> Result<StreamUid> {
        self.driver.stream_uid(stream)
    }

    fn capture_status(&self, stream: Stream) -> Result<CaptureStatus> {
        self.driver.capture_status(stream)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.driver.exchange_capture_mode(mode)
    }
}
