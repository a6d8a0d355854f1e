//! [`Call`]: the name of every method of [`Driver`](crate::Driver), as data.
//!
//! Cost tables, call counters, fault plans and errors all speak of calls by this type.

/// One method of [`Driver`](crate::Driver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// [`Driver::memory_info`](crate::Driver::memory_info)
    MemoryInfo,
    /// [`Driver::reserve`](crate::Driver::reserve)
    Reserve,
    /// [`Driver::unreserve`](crate::Driver::unreserve)
    Unreserve,
    /// [`Driver::create`](crate::Driver::create)
    Create,
    /// [`Driver::create_on_host`](crate::Driver::create_on_host)
    CreateOnHost,
    /// [`Driver::release`](crate::Driver::release)
    Release,
    /// [`Driver::map`](crate::Driver::map)
    Map,
    /// [`Driver::set_access`](crate::Driver::set_access)
    SetAccess,
    /// [`Driver::unmap`](crate::Driver::unmap)
    Unmap,
    /// [`Driver::export`](crate::Driver::export)
    Export,
    /// [`Driver::import`](crate::Driver::import)
    Import,
    /// [`Driver::malloc`](crate::Driver::malloc)
    Malloc,
    /// [`Driver::free`](crate::Driver::free)
    Free,
    /// [`Driver::create_memory_pool`](crate::Driver::create_memory_pool)
    CreateMemoryPool,
    /// [`Driver::destroy_memory_pool`](crate::Driver::destroy_memory_pool)
    DestroyMemoryPool,
    /// [`Driver::trim_memory_pool`](crate::Driver::trim_memory_pool)
    TrimMemoryPool,
    /// [`Driver::memory_pool_usage`](crate::Driver::memory_pool_usage)
    MemoryPoolUsage,
    /// [`Driver::malloc_async`](crate::Driver::malloc_async)
    MallocAsync,
    /// [`Driver::free_async`](crate::Driver::free_async)
    FreeAsync,
    /// [`Driver::create_event`](crate::Driver::create_event)
    CreateEvent,
    /// [`Driver::destroy_event`](crate::Driver::destroy_event)
    DestroyEvent,
    /// [`Driver::record`](crate::Driver::record)
    Record,
    /// [`Driver::query`](crate::Driver::query)
    Query,
    /// [`Driver::wait`](crate::Driver::wait)
    Wait,
    /// [`Driver::synchronize_event`](crate::Driver::synchronize_event)
    SynchronizeEvent,
    /// [`Driver::synchronize_stream`](crate::Driver::synchronize_stream)
    SynchronizeStream,
    /// [`Driver::synchronize_device`](crate::Driver::synchronize_device)
    SynchronizeDevice,
    /// [`Driver::stream_uid`](crate::Driver::stream_uid)
    StreamUid,
    /// [`Driver::capture_status`](crate::Driver::capture_status)
    CaptureStatus,
    /// [`Driver::exchange_capture_mode`](crate::Driver::exchange_capture_mode)
    ExchangeCaptureMode,
    /// [`Driver::enable_peer_access`](crate::Driver::enable_peer_access)
    EnablePeerAccess,
    /// [`Driver::hold`](crate::Driver::hold), with the [`let_go`](crate::Driver::let_go) after it
    Hold,
    /// [`Driver::copy`](crate::Driver::copy)
    Copy,
    /// [`Driver::finish_copies`](crate::Driver::finish_copies)
    FinishCopies,
}

impl Call {
    /// Every call, in declaration order: `Call::ALL[call as usize] == call`.
    pub const ALL: [Call; 34] = [
        Call::MemoryInfo,
        Call::Reserve,
        Call::Unreserve,
        Call::Create,
        Call::CreateOnHost,
        Call::Release,
        Call::Map,
        Call::SetAccess,
        Call::Unmap,
        Call::Export,
        Call::Import,
        Call::Malloc,
        Call::Free,
        Call::CreateMemoryPool,
        Call::DestroyMemoryPool,
        Call::TrimMemoryPool,
        Call::MemoryPoolUsage,
        Call::MallocAsync,
        Call::FreeAsync,
        Call::CreateEvent,
        Call::DestroyEvent,
        Call::Record,
        Call::Query,
        Call::Wait,
        Call::SynchronizeEvent,
        Call::SynchronizeStream,
        Call::SynchronizeDevice,
        Call::StreamUid,
        Call::CaptureStatus,
        Call::ExchangeCaptureMode,
        Call::EnablePeerAccess,
        Call::Hold,
        Call::Copy,
        Call::FinishCopies,
    ];

    /// The CUDA function behind the call, for messages and reports.
    pub const fn cuda_name(self) -> &'static str {
        match self {
            Call::MemoryInfo => "cuMemGetInfo",
            Call::Reserve => "cuMemAddressReserve",
            Call::Unreserve => "cuMemAddressFree",
            Call::Create | Call::CreateOnHost => "cuMemCreate",
            Call::Release => "cuMemRelease",
            Call::Map => "cuMemMap",
            Call::SetAccess => "cuMemSetAccess",
            Call::Unmap => "cuMemUnmap",
            Call::Export => "cuMemExportToShareableHandle",
            Call::Import => "cuMemImportFromShareableHandle",
            Call::Malloc => "cudaMalloc",
            Call::Free => "cudaFree",
            Call::CreateMemoryPool => "cuMemPoolCreate",
            Call::DestroyMemoryPool => "cuMemPoolDestroy",
            Call::TrimMemoryPool => "cuMemPoolTrimTo",
            Call::MemoryPoolUsage => "cuMemPoolGetAttribute",
            Call::MallocAsync => "cudaMallocAsync",
            Call::FreeAsync => "cudaFreeAsync",
            Call::CreateEvent => "cudaEventCreate",
            Call::DestroyEvent => "cudaEventDestroy",
            Call::Record => "cudaEventRecord",
            Call::Query => "cudaEventQuery",
            Call::Wait => "cudaStreamWaitEvent",
            Call::SynchronizeEvent => "cudaEventSynchronize",
            Call::SynchronizeStream => "cudaStreamSynchronize",
            Call::SynchronizeDevice => "cudaDeviceSynchronize",
            Call::StreamUid => "cuStreamGetId",
            Call::CaptureStatus => "cudaStreamIsCapturing",
            Call::ExchangeCaptureMode => "cudaThreadExchangeStreamCaptureMode",
            Call::EnablePeerAccess => "cuCtxEnablePeerAccess",
            Call::Hold => "cuStreamBatchMemOp",
            Call::Copy => "cuMemcpyAsync",
            Call::FinishCopies => "cuStreamSynchronize",
        }
    }

    /// Whether the call only asks something (device, context and capture queries). Such calls are
    /// left out of call counts: they cost nanoseconds and every program makes them.
    pub const fn is_query(self) -> bool {
        matches!(
            self,
            Call::MemoryInfo
                | Call::MemoryPoolUsage
                | Call::StreamUid
                | Call::CaptureStatus
                | Call::ExchangeCaptureMode
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn all_lists_every_call_at_its_own_index() {
        for (index, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, index);
        }
        assert_eq!(Call::ALL.len(), Call::FinishCopies as usize + 1);
    }
}
