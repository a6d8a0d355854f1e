//! [`Altered`]: a driver that hands every call on to another one, unless told otherwise. Mutants
//! are made of it, and drivers that look at the allocator from within a call.

use std::sync::Arc;

use drystone::driver::{
    Call, CaptureMode, CaptureStatus, Descriptor, DeviceInfo, Driver, DriverError, Event, Handle,
    Hold, MemoryInfo, MemoryPool, MemoryPoolConfig, MemoryPoolUsage, Stream, StreamUid,
};

type Result<T> = std::result::Result<T, DriverError>;

/// What is different about an altered driver. A method that gives `None` changes nothing.
pub trait Alteration: Send + Sync {
    fn before(&self, _call: Call) {}

    /// Of a context: no call of the driver's interface stands for these questions.
    fn before_asking(&self, _of: &'static str) {}

    fn map(&self, _inner: &dyn Driver, _at: (u64, u64), _handle: Handle) -> Option<Result<()>> {
        None
    }

    fn malloc(&self, _inner: &dyn Driver, _bytes: u64) -> Option<Result<u64>> {
        None
    }

    fn malloc_async(
        &self,
        _inner: &dyn Driver,
        _bytes: u64,
        _of: (MemoryPool, Stream),
    ) -> Option<Result<u64>> {
        None
    }

    fn free_async(&self, _inner: &dyn Driver, _address: u64) -> Option<Result<()>> {
        None
    }

    fn record(&self) -> Option<Result<()>> {
        None
    }

    fn query(&self) -> Option<Result<bool>> {
        None
    }

    fn wait(&self) -> Option<Result<()>> {
        None
    }

    fn synchronize_device(&self) -> Option<Result<()>> {
        None
    }

    fn capture_status(&self) -> Option<Result<CaptureStatus>> {
        None
    }

    fn hold(&self, _inner: &dyn Driver, _streams: &[Stream]) -> Option<Result<Hold>> {
        None
    }

    /// Whether the streams go on.
    fn lets_go(&self) -> bool {
        true
    }

    fn copy(&self, _inner: &dyn Driver, _to: u64, _from: u64, _bytes: u64) -> Option<Result<()>> {
        None
    }

    fn finish_copies(&self, _inner: &dyn Driver) -> Option<Result<()>> {
        None
    }

    fn set_access(&self, _at: (u64, u64)) -> Option<Result<()>> {
        None
    }
}

/// A driver with an alteration.
pub struct Altered<A> {
    pub inner: Arc<dyn Driver>,
    pub alteration: A,
}

/// Methods that are handed on as they are.
macro_rules! hand_on {
    ($($call:ident $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$result> {
            self.alteration.before(Call::$call);
            self.inner.$name($($arg),*)
        })*
    };
}

/// Methods whose alteration does not depend on the arguments.
macro_rules! hand_on_unless_altered {
    ($($call:ident $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$result> {
            self.alteration.before(Call::$call);
            self.alteration.$name().unwrap_or_else(|| self.inner.$name($($arg),*))
        })*
    };
}

impl<A: Alteration> Driver for Altered<A> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn check_context(&self) -> Result<()> {
        self.alteration.before_asking("context");
        self.inner.check_context()
    }

    fn covers(&self, stream: Stream) -> Option<bool> {
        self.alteration.before_asking("context of the stream");
        self.inner.covers(stream)
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<()> {
        self.alteration.before(Call::Map);
        let altered = self.alteration.map(&*self.inner, (address, bytes), handle);
        altered.unwrap_or_else(|| self.inner.map(address, bytes, handle))
    }

    fn malloc(&self, bytes: u64) -> Result<u64> {
        self.alteration.before(Call::Malloc);
        let altered = self.alteration.malloc(&*self.inner, bytes);
        altered.unwrap_or_else(|| self.inner.malloc(bytes))
    }

    fn malloc_async(&self, pool: MemoryPool, bytes: u64, stream: Stream) -> Result<u64> {
        self.alteration.before(Call::MallocAsync);
        let altered = self.alteration.malloc_async(&*self.inner, bytes, (pool, stream));
        altered.unwrap_or_else(|| self.inner.malloc_async(pool, bytes, stream))
    }

    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        self.alteration.before(Call::FreeAsync);
        let altered = self.alteration.free_async(&*self.inner, address);
        altered.unwrap_or_else(|| self.inner.free_async(address, stream))
    }

    fn hold(&self, streams: &[Stream]) -> Result<Hold> {
        self.alteration.before(Call::Hold);
        let altered = self.alteration.hold(&*self.inner, streams);
        altered.unwrap_or_else(|| self.inner.hold(streams))
    }

    fn let_go(&self, hold: Hold) {
        if self.alteration.lets_go() {
            self.inner.let_go(hold);
        }
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        self.alteration.before(Call::Copy);
        let altered = self.alteration.copy(&*self.inner, to, from, bytes);
        altered.unwrap_or_else(|| self.inner.copy(to, from, bytes))
    }

    fn finish_copies(&self) -> Result<()> {
        self.alteration.before(Call::FinishCopies);
        let altered = self.alteration.finish_copies(&*self.inner);
        altered.unwrap_or_else(|| self.inner.finish_copies())
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.alteration.before(Call::SetAccess);
        let altered = self.alteration.set_access((address, bytes));
        altered.unwrap_or_else(|| self.inner.set_access(address, bytes))
    }

    fn capture_status(&self, stream: Stream) -> Result<CaptureStatus> {
        self.alteration.before(Call::CaptureStatus);
        let altered = self.alteration.capture_status();
        altered.unwrap_or_else(|| self.inner.capture_status(stream))
    }

    hand_on! {
        MemoryInfo memory_info() -> MemoryInfo;
        Reserve reserve(bytes: u64, alignment: u64) -> u64;
        Unreserve unreserve(address: u64, bytes: u64) -> ();
        Create create(bytes: u64) -> Handle;
        CreateOnHost create_on_host(bytes: u64) -> Handle;
        Release release(handle: Handle) -> ();
        Unmap unmap(address: u64, bytes: u64) -> ();
        Export export(handle: Handle) -> Descriptor;
        Import import(descriptor: &Descriptor) -> Handle;
        Free free(address: u64) -> ();
        EnablePeerAccess enable_peer_access(peer_ordinal: u32) -> ();
        CreateMemoryPool create_memory_pool(config: &MemoryPoolConfig) -> MemoryPool;
        DestroyMemoryPool destroy_memory_pool(pool: MemoryPool) -> ();
        TrimMemoryPool trim_memory_pool(pool: MemoryPool, keep_bytes: u64) -> ();
        MemoryPoolUsage memory_pool_usage(pool: MemoryPool) -> MemoryPoolUsage;
        CreateEvent create_event() -> Event;
        DestroyEvent destroy_event(event: Event) -> ();
        SynchronizeEvent synchronize_event(event: Event) -> ();
        SynchronizeStream synchronize_stream(stream: Stream) -> ();
        StreamUid stream_uid(stream: Stream) -> StreamUid;
        ExchangeCaptureMode exchange_capture_mode(mode: CaptureMode) -> CaptureMode;
    }

    hand_on_unless_altered! {
        Record record(event: Event, stream: Stream) -> ();
        Query query(event: Event) -> bool;
        Wait wait(stream: Stream, event: Event) -> ();
        SynchronizeDevice synchronize_device() -> ();
    }
}
