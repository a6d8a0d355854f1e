//! [`Driver`] for [`SimDevice`]: each method names its call and its figures, nothing more.

use crate::GRANULARITY_BYTES;
use crate::device::SimDevice;
use crate::refuse::refuse;
use crate::state::Life;
use crate::stream::Context;
use drystone_driver::{
    Call, CaptureMode, CaptureStatus, Descriptor, DeviceInfo, Driver, DriverError, ErrorCode,
    Event, Handle, Hold, MemoryInfo, MemoryPool, MemoryPoolConfig, MemoryPoolUsage,
    ShareableHandle, Stream, StreamUid,
};

type Result<T> = std::result::Result<T, DriverError>;

/// Methods whose part behind the lock has their own name, with the figures of the call.
macro_rules! calls {
    ($($call:ident($bytes:expr, $address:expr):
       $name:ident($($arg:ident: $type:ty),*) -> $of:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> Result<$of> {
            self.call(Call::$call, $bytes, $address, |state| state.$name($($arg),*))
        }
    )*};
}

impl Driver for SimDevice {
    calls! {
        Release(0, 0): release(handle: Handle) -> ();
        Unmap(bytes, address): unmap(address: u64, bytes: u64) -> ();
        CreateMemoryPool(0, 0): create_memory_pool(config: &MemoryPoolConfig) -> MemoryPool;
        DestroyMemoryPool(0, 0): destroy_memory_pool(pool: MemoryPool) -> ();
        TrimMemoryPool(0, 0): trim_memory_pool(pool: MemoryPool, keep_bytes: u64) -> ();
        MemoryPoolUsage(0, 0): memory_pool_usage(pool: MemoryPool) -> MemoryPoolUsage;
        MallocAsync(bytes, 0): malloc_async(pool: MemoryPool, bytes: u64, stream: Stream) -> u64;
        FreeAsync(0, address): free_async(address: u64, stream: Stream) -> ();
        Copy(0, from): copy(to: u64, from: u64, bytes: u64) -> ();
        FinishCopies(0, 0): finish_copies() -> ();
        Query(0, 0): query(event: Event) -> bool;
        Wait(0, 0): wait(stream: Stream, event: Event) -> ();
        SynchronizeEvent(0, 0): synchronize_event(event: Event) -> ();
        StreamUid(0, 0): stream_uid(stream: Stream) -> StreamUid;
        CaptureStatus(0, 0): capture_status(stream: Stream) -> CaptureStatus;
    }

    fn info(&self) -> DeviceInfo {
        let config = self.config();
        let mut info = DeviceInfo::new(config.ordinal, config.total_bytes, GRANULARITY_BYTES);
        info.has_virtual_memory = config.has_virtual_memory;
        info.has_async_malloc = config.has_async_malloc;
        info.is_integrated = config.host.is_some();
        if config.is_shareable {
            info.shareable_handle = ShareableHandle::PosixFd;
        }
        info
    }

    fn check_context(&self) -> Result<()> {
        let life = &mut self.inner.state.lock().life;
        if !matches!(life, Life::Reset { .. }) {
            return Ok(());
        }
        *life = Life::Reset { is_known: true };
        Err(DriverError::new(Call::CaptureStatus, ErrorCode::DeviceReset))
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.call(Call::MemoryInfo, 0, 0, |state| {
            state.clock.advance_by(state.config.memory_info_ns);
            state.look_at_exports();
            let free_bytes = state.memory.supply.free_bytes()?;
            Ok(MemoryInfo::new(free_bytes, state.config.total_bytes))
        })
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        self.call(Call::Reserve, bytes, 0, |state| {
            state.check_virtual_memory()?;
            state.memory.vm.reserve(&mut state.memory.supply, bytes, alignment)
        })
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::Unreserve, bytes, address, |state| {
            state.memory.vm.unreserve(&mut state.memory.supply, address, bytes)
        })
    }

    fn create(&self, bytes: u64) -> Result<Handle> {
        self.call(Call::Create, bytes, 0, |state| {
            state.check_virtual_memory()?;
            state.look_at_exports();
            state.memory.vm.create(&mut state.memory.supply, bytes)
        })
    }

    fn create_on_host(&self, bytes: u64) -> Result<Handle> {
        self.call(Call::CreateOnHost, bytes, 0, |state| {
            state.check_virtual_memory()?;
            // Of an integrated device it would be the same memory.
            refuse(
                ErrorCode::NotSupported,
                !state.config.has_host_handles || state.config.host.is_some(),
            )?;
            state.memory.vm.host_handle(&mut state.memory.supply, bytes)
        })
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<()> {
        self.call(Call::Map, bytes, address, |state| state.memory.vm.map(address, bytes, handle))
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::SetAccess, bytes, address, |state| {
            state.memory.vm.set_access(address, bytes, state.peers.len() as u32)
        })
    }

    fn export(&self, handle: Handle) -> Result<Descriptor> {
        self.call(Call::Export, 0, 0, |state| {
            state.check_sharing()?;
            state.memory.vm.export(&state.memory.supply, handle)
        })
    }

    fn import(&self, descriptor: &Descriptor) -> Result<Handle> {
        self.call(Call::Import, 0, 0, |state| {
            state.check_sharing()?;
            state.look_at_exports();
            state.memory.vm.import(&mut state.memory.supply, descriptor)
        })
    }

    fn malloc(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Malloc, bytes, 0, |state| state.malloc(bytes, Context::PRIMARY))
    }

    fn free(&self, address: u64) -> Result<()> {
        self.wait_for_kernels(None, "cuMemFree");
        self.call(Call::Free, 0, address, |state| state.free(address))
    }

    fn enable_peer_access(&self, peer_ordinal: u32) -> Result<()> {
        self.call(Call::EnablePeerAccess, 0, 0, |state| {
            refuse(ErrorCode::InvalidValue, peer_ordinal == state.config.ordinal)?;
            refuse(
                ErrorCode::NotSupported,
                !state.config.has_peers || !state.config.peers.contains(&peer_ordinal),
            )?;
            if !state.peers.contains(&peer_ordinal) {
                state.peers.push(peer_ordinal);
            }
            Ok(())
        })
    }

    fn hold(&self, streams: &[Stream]) -> Result<Hold> {
        let hold = self.call(Call::Hold, 0, 0, |state| state.hold(streams))?;
        let held = [&[Stream::DEFAULT], streams].concat();
        self.come_to_a_stop(hold, &held).map_err(|code| DriverError::new(Call::Hold, code))
    }

    fn let_go(&self, hold: Hold) {
        self.inner.state.lock().let_go(&hold);
        self.inner.let_go.notify_all();
    }

    fn create_event(&self) -> Result<Event> {
        self.call(Call::CreateEvent, 0, 0, |state| Ok(state.events.create()))
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        self.call(Call::DestroyEvent, 0, 0, |state| state.events.destroy(event))
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.call(Call::Record, 0, 0, |state| {
            if state.streams.get(stream)?.context == Context::PRIMARY {
                return state.record(event, stream);
            }
            state.synchronize_stream(stream)?;
            Err(ErrorCode::OtherContext)
        })
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        self.wait_for_kernels(Some(&[stream]), "cuStreamSynchronize");
        self.call(Call::SynchronizeStream, 0, 0, |state| state.synchronize_stream(stream))
    }

    fn synchronize_device(&self) -> Result<()> {
        self.synchronize_context(Context::PRIMARY)
    }

    fn covers(&self, stream: Stream) -> Option<bool> {
        let mut state = self.inner.state.lock();
        match state.streams.get(stream) {
            // Drivers before 12.5 refuse the question.
            Ok(queue) if queue.capture.is_some() => None,
            Ok(queue) => Some(queue.context == Context::PRIMARY),
            Err(code) => {
                state.note_refusal(Call::StreamUid, code);
                None
            }
        }
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.call(Call::ExchangeCaptureMode, 0, 0, |state| Ok(state.captures.exchange_mode(mode)))
    }
}

impl SimDevice {
    /// Blocks the host until a context is idle: the others of the device are not waited for. It
    /// counts as the trait's wait, which is for the primary one.
    /// Errors: `CaptureUnsupported`.
    pub fn synchronize_context(&self, context: Context) -> Result<()> {
        self.wait_for_kernels(None, "cuCtxSynchronize");
        self.call(Call::SynchronizeDevice, 0, 0, |state| state.synchronize_context(context))
    }

    /// Marks the point that a stream of any context has reached, by an event of that. It counts as
    /// the trait's call.
    /// Errors: as the trait's.
    pub fn record_on(&self, event: Event, stream: Stream) -> Result<()> {
        self.call(Call::Record, 0, 0, |state| state.record(event, stream))
    }

    /// Allocates plain memory of a context, which ends with it. It counts as the trait's call.
    /// Errors: as the trait's.
    pub fn malloc_of(&self, context: Context, bytes: u64) -> Result<u64> {
        self.call(Call::Malloc, bytes, 0, |state| state.malloc(bytes, context))
    }

    /// The driver's id of a stream, as `cuStreamGetId` has it. It counts as the trait's question.
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    pub fn stream_id(&self, stream: Stream) -> Result<u64> {
        self.call(Call::StreamUid, 0, 0, |state| Ok(state.stream_id(stream)?.0))
    }
}
