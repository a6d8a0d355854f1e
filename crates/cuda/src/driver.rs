//! [`Driver`] for [`CudaDevice`]: which function of CUDA answers which call.

use drystone_driver::{
    Call, CaptureMode, CaptureModes, CaptureStatus, Descriptor, DeviceInfo, Driver, DriverError,
    ErrorCode, Event, Handle, Hold, MemoryInfo, MemoryPool, MemoryPoolConfig, MemoryPoolUsage,
    ShareableHandle, Stream, StreamUid,
};

use crate::device::CudaDevice;
use crate::host_memory::HostMemory;
use crate::open_error::OpenError;
use crate::primary::Primary;
use crate::process;
use crate::properties::PhysicalMemory;
use crate::sharing::PoolRefused;

type Result<T> = std::result::Result<T, DriverError>;

impl Driver for CudaDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn check_context(&self) -> Result<()> {
        let checked = process::check().and_then(|()| self.primary.check(self.cuda));
        checked.map_err(|code| DriverError::new(Call::CaptureStatus, code))
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let may_call = process::check().and_then(|()| self.primary.refuse_reset());
        may_call.map_err(|code| DriverError::new(Call::MemoryInfo, code))?;
        match self.host.as_ref().and_then(HostMemory::available_bytes) {
            Some(free_bytes) => Ok(MemoryInfo::new(free_bytes, self.info.total_bytes)),
            None => self.call(Call::MemoryInfo, |cuda| cuda.memory_info()),
        }
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        self.call_virtual(Call::Reserve, |cuda| cuda.reserve(bytes, alignment))
            .map_err(|error| error.with_figures(bytes, 0))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.call_virtual(Call::Unreserve, |cuda| cuda.unreserve(address, bytes))
            .map_err(|error| error.with_figures(bytes, address))
    }

    fn create(&self, bytes: u64) -> Result<Handle> {
        self.call_virtual(Call::Create, |cuda| cuda.create(bytes, self.memory))
            .map(Handle)
            .map_err(|error| error.with_figures(bytes, 0))
    }

    fn create_on_host(&self, bytes: u64) -> Result<Handle> {
        let memory = PhysicalMemory::of_host(self.memory.ordinal);
        self.call_virtual(Call::CreateOnHost, |cuda| cuda.create(bytes, memory))
            .map(Handle)
            .map_err(|error| error.with_figures(bytes, 0))
    }

    fn release(&self, handle: Handle) -> Result<()> {
        self.call_virtual(Call::Release, |cuda| {
            cuda.release(handle.0)?;
            // Streams may be held, which some of it waits for.
            if !self.holding.is_held() {
                self.offer_leftovers(cuda);
            }
            Ok(())
        })
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<()> {
        self.call_virtual(Call::Map, |cuda| cuda.map(address, bytes, handle.0))
            .map_err(|error| error.with_figures(bytes, address))
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.call_virtual(Call::SetAccess, |cuda| {
            cuda.set_access(address, bytes, &self.sharing.access())
        })
        .map_err(|error| error.with_figures(bytes, address))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.call_virtual(Call::Unmap, |cuda| cuda.unmap(address, bytes))
            .map_err(|error| error.with_figures(bytes, address))
    }

    fn export(&self, handle: Handle) -> Result<Descriptor> {
        let is_shared = self.memory.handle != ShareableHandle::None;
        self.supports(Call::Export, self.info.has_virtual_memory && is_shared)?;
        self.call(Call::Export, |cuda| cuda.export(handle.0))
    }

    fn import(&self, descriptor: &Descriptor) -> Result<Handle> {
        self.call_virtual(Call::Import, |cuda| cuda.import(descriptor)).map(Handle)
    }

    fn malloc(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Malloc, |cuda| cuda.malloc(bytes))
            .map_err(|error| error.with_figures(bytes, 0))
    }

    fn free(&self, address: u64) -> Result<()> {
        self.call(Call::Free, |cuda| cuda.free(address).inspect(|()| self.offer_leftovers(cuda)))
            .map_err(|error| error.with_figures(0, address))
    }

    fn enable_peer_access(&self, peer_ordinal: u32) -> Result<()> {
        let call = Call::EnablePeerAccess;
        let refuse = |code| Err(DriverError::new(call, code));
        process::check().map_err(|code| DriverError::new(call, code))?;
        if peer_ordinal == self.primary.ordinal {
            return refuse(ErrorCode::InvalidValue);
        }
        let peer = match Primary::of(self.cuda, peer_ordinal) {
            Ok(peer) => peer,
            Err(OpenError::Driver { name, number, .. }) => {
                return Err(crate::failure::Failure { number, name }.of(call));
            }
            Err(_) => return refuse(ErrorCode::InvalidValue),
        };
        let can_reach = self.cuda.can_access_peer(peer.device, self.primary.device);
        if !can_reach.map_err(|failure| failure.of(call))? {
            return refuse(ErrorCode::NotSupported);
        }
        self.sharing.let_in(self.cuda, self.primary, peer).map_err(|failure| failure.of(call))
    }

    fn create_memory_pool(&self, config: &MemoryPoolConfig) -> Result<MemoryPool> {
        let call = Call::CreateMemoryPool;
        let location = self.primary.location();
        let created = self.call_pooled(call, |cuda| {
            match self.sharing.create_pool(cuda, location, self.pool_handle, config) {
                Ok(pool) => Ok(Some(pool)),
                Err(PoolRefused::NotShareable) => Ok(None),
                Err(PoolRefused::Driver(failure)) => Err(failure),
            }
        })?;
        created.map(MemoryPool).ok_or(DriverError::new(call, ErrorCode::NotSupported))
    }

    fn destroy_memory_pool(&self, pool: MemoryPool) -> Result<()> {
        let call = Call::DestroyMemoryPool;
        self.knows(call, pool)?;
        self.call(call, |cuda| self.sharing.destroy_pool(cuda, pool.0))
    }

    fn trim_memory_pool(&self, pool: MemoryPool, keep_bytes: u64) -> Result<()> {
        let call = Call::TrimMemoryPool;
        self.knows(call, pool)?;
        self.call(call, |cuda| cuda.trim_memory_pool(pool.0, keep_bytes))
    }

    fn memory_pool_usage(&self, pool: MemoryPool) -> Result<MemoryPoolUsage> {
        let call = Call::MemoryPoolUsage;
        self.knows(call, pool)?;
        self.call(call, |cuda| cuda.memory_pool_usage(pool.0))
    }

    fn malloc_async(&self, pool: MemoryPool, bytes: u64, stream: Stream) -> Result<u64> {
        self.call_pooled(Call::MallocAsync, |cuda| cuda.malloc_async(pool.0, bytes, stream.0))
            .map_err(|error| error.with_figures(bytes, 0))
    }

    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        self.call_pooled(Call::FreeAsync, |cuda| cuda.free_async(address, stream.0))
            .map_err(|error| error.with_figures(0, address))
    }

    fn hold(&self, streams: &[Stream]) -> Result<Hold> {
        self.call_virtual(Call::Hold, |cuda| {
            self.holding.hold(cuda, self.primary, &self.sharing.access(), streams)
        })
    }

    fn let_go(&self, hold: Hold) {
        self.holding.let_go(&hold);
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        self.call_virtual(Call::Copy, |cuda| self.holding.copy(cuda, to, from, bytes))
            .map_err(|error| error.with_figures(bytes, from))
    }

    fn finish_copies(&self) -> Result<()> {
        self.call_virtual(Call::FinishCopies, |cuda| self.holding.finish_copies(cuda))
    }

    fn create_event(&self) -> Result<Event> {
        self.call(Call::CreateEvent, |cuda| cuda.create_event()).map(Event)
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        self.call(Call::DestroyEvent, |cuda| cuda.destroy_event(event.0))
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.call(Call::Record, |cuda| {
            cuda.record(event.0, stream.0).inspect_err(|_| self.primary.wait_out(cuda, stream.0))
        })
    }

    fn query(&self, event: Event) -> Result<bool> {
        self.call(Call::Query, |cuda| cuda.query(event.0))
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.call(Call::Wait, |cuda| cuda.wait(stream.0, event.0))
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        self.call(Call::SynchronizeEvent, |cuda| cuda.synchronize_event(event.0))
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        self.call(Call::SynchronizeStream, |cuda| cuda.synchronize_stream(stream.0))
    }

    fn synchronize_device(&self) -> Result<()> {
        self.call(Call::SynchronizeDevice, |cuda| self.primary.synchronize(cuda))
    }

    fn covers(&self, stream: Stream) -> Option<bool> {
        let told = self.call(Call::StreamUid, |cuda| Ok(self.primary.covers(cuda, stream.0)));
        told.ok().flatten()
    }

    /// Handle 0 and 1 are the legacy default stream, 2 is the calling thread's own default stream.
    fn stream_uid(&self, stream: Stream) -> Result<StreamUid> {
        let uid = self.call(Call::StreamUid, |cuda| self.primary.uid(cuda, stream.0))?;
        uid.ok_or(DriverError::new(Call::StreamUid, ErrorCode::CaptureUnsupported))
    }

    fn capture_status(&self, stream: Stream) -> Result<CaptureStatus> {
        self.call(Call::CaptureStatus, |cuda| cuda.capture_status(stream.0))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        // The mode belongs to the thread, but the driver asks for a current context all the same.
        self.call(Call::ExchangeCaptureMode, |cuda| cuda.exchange(mode))
    }
}
