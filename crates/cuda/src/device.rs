//! [`CudaDevice`]: one GPU. Opening it, and what it turns out to be able to do.

use std::fmt;

use drystone_driver::{
    Call, DeviceInfo, DriverError, ErrorCode, MemoryPool, Relaxed, ShareableHandle,
};

use crate::calls::{Attribute, Cuda};
use crate::failure::Failure;
use crate::holding::Holding;
use crate::host_memory::HostMemory;
use crate::open_error::OpenError;
use crate::primary::Primary;
use crate::process;
use crate::properties::{Access, PhysicalMemory, handle_bit};
use crate::sharing::Sharing;
use crate::trial_memory::{Leftovers, TrialMemory};

/// The granularity said of a device without virtual memory, where nothing is mapped.
const USUAL_GRANULARITY_BYTES: u64 = 2 << 20;

/// CUDA 12.1, which is driver 530.
const SHARED_AT_NO_COST: u32 = 12_010;

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// Whether mapped memory can be given to other processes, where the device's can be at all.
    /// `None`: from CUDA 12.1 on. Memory that nobody shares costs no more for it, but drivers
    /// before that were slower with it (pytorch#130890).
    pub is_shareable: Option<bool>,
}

/// One GPU, through its primary context.
///
/// Any thread may call it; whatever context is current there stays current. Several for the same
/// ordinal share the context. Nothing is released when it is dropped: the primary context stays for
/// the life of the process, and memory, events and pools are the caller's to give back.
///
/// Streams and events are passed on to the driver, which does not check them: one that was
/// destroyed must not be used again.
///
/// ```no_run
/// use drystone_cuda::{CudaDevice, CudaOptions};
/// use drystone_driver::Driver;
///
/// let device = CudaDevice::open(0, &CudaOptions::default())?;
/// println!("{} bytes in all", device.info().total_bytes);
/// # Ok::<(), drystone_cuda::OpenError>(())
/// ```
pub struct CudaDevice {
    pub(crate) cuda: &'static Cuda,
    pub(crate) primary: &'static Primary,
    pub(crate) info: DeviceInfo,
    /// What physical memory is made with.
    pub(crate) memory: PhysicalMemory,
    /// The handle that memory pools of this device can be shared by.
    pub(crate) pool_handle: ShareableHandle,
    pub(crate) sharing: Sharing,
    pub(crate) holding: Holding,
    /// Of a device that has the host's memory.
    pub(crate) host: Option<HostMemory>,
}

/// How many devices the driver sees.
pub fn device_count() -> Result<u32, OpenError> {
    match Cuda::load() {
        Ok(cuda) => cuda.device_count().map_err(|failure| failure.at_open("cuDeviceGetCount")),
        // A driver without a device does not even initialise.
        Err(OpenError::NoDevice) => Ok(0),
        Err(error) => Err(error),
    }
}

impl CudaDevice {
    /// Opens a device: makes its primary context, if nobody did yet, and finds out what it can do.
    ///
    /// Memory of one granule is made, mapped, opened and taken back to try what the driver only
    /// promises: virtual memory at all, sharing, and access by network cards. What else
    /// could not be tried, for lack of memory, is not offered. A capture that is under way is not
    /// broken.
    pub fn open(ordinal: u32, options: &CudaOptions) -> Result<CudaDevice, OpenError> {
        let cuda = Cuda::load()?;
        let primary = Primary::of(cuda, ordinal)?;
        let _current = primary.enter(cuda).map_err(|failure| failure.at_open("cuCtxSetCurrent"))?;
        // Captures forbid some of what follows to a thread that is not.
        let _relaxed = Relaxed::enter(cuda)
            .map_err(|failure| failure.at_open("cuThreadExchangeStreamCaptureMode"))?;
        let device = primary.device;
        let has = |attribute| cuda.attribute(device, attribute) != 0;
        let total_bytes =
            cuda.total_bytes(device).map_err(|failure| failure.at_open("cuDeviceTotalMem"))?;
        let has_async_malloc = cuda.has_memory_pools && has(Attribute::MemoryPools);

        let location = primary.location();
        let handle = ShareableHandle::None;
        let plain =
            PhysicalMemory { ordinal: location, is_of_host: false, handle, is_rdma_capable: false };
        let is_promised = cuda.has_virtual_memory && has(Attribute::VirtualMemory);
        let has_virtual_memory = is_promised && has_handles(cuda, &primary.leftovers, plain);
        let works =
            |memory| has_virtual_memory && try_out(cuda, &primary.leftovers, memory).is_ok();
        let fabric = PhysicalMemory { handle: ShareableHandle::Fabric, ..plain };
        let posix_fd = PhysicalMemory { handle: ShareableHandle::PosixFd, ..plain };
        let shareable_handle = if has(Attribute::FabricHandle) && works(fabric) {
            ShareableHandle::Fabric
        } else if has(Attribute::PosixFdHandle) && works(posix_fd) {
            ShareableHandle::PosixFd
        } else {
            ShareableHandle::None
        };
        let is_shared = options.is_shareable.unwrap_or(cuda.version >= SHARED_AT_NO_COST);
        let handle = if is_shared { shareable_handle } else { handle };
        let rdma = PhysicalMemory { handle, is_rdma_capable: true, ..plain };
        // Under WSL the driver promises it, creates and maps such memory, and refuses access to it.
        let has_gpu_direct_rdma = has(Attribute::GpuDirectRdma) && works(rdma);
        let memory = PhysicalMemory { is_rdma_capable: has_gpu_direct_rdma, ..rdma };

        let granularity_bytes = match has_virtual_memory {
            true => cuda
                .granularity_bytes(memory)
                .map_err(|failure| failure.at_open("cuMemGetAllocationGranularity"))?,
            false => USUAL_GRANULARITY_BYTES,
        };
        let pool_handles = cuda.attribute(device, Attribute::MemoryPoolHandles).cast_unsigned();
        let mut info = DeviceInfo::new(ordinal, total_bytes, granularity_bytes);
        info.uuid = cuda.uuid(device);
        info.has_virtual_memory = has_virtual_memory;
        info.makes_no_handle = is_promised && !has_virtual_memory;
        info.has_async_malloc = has_async_malloc;
        info.has_gpu_direct_rdma = has_gpu_direct_rdma;
        info.is_integrated = has(Attribute::Integrated);
        info.shareable_handle = shareable_handle;
        let pool_handle = pool_handle(shareable_handle, pool_handles);
        let (sharing, holding) = (Sharing::new(location), Holding::new(memory));
        let host = info.is_integrated.then(HostMemory::of_environment);
        Ok(CudaDevice { cuda, primary, info, memory, pool_handle, sharing, holding, host })
    }

    /// Makes a call with the device's context current, unless the process may not call any more.
    pub(crate) fn call<R>(
        &self,
        call: Call,
        work: impl FnOnce(&Cuda) -> Result<R, Failure>,
    ) -> Result<R, DriverError> {
        let may_call = process::check().and_then(|()| self.primary.refuse_reset());
        may_call.map_err(|code| DriverError::new(call, code))?;
        let done = self.primary.enter(self.cuda).and_then(|_current| work(self.cuda));
        done.map_err(|failure| failure.of(call))
    }

    /// The same for a call that only devices with virtual memory have.
    pub(crate) fn call_virtual<R>(
        &self,
        call: Call,
        work: impl FnOnce(&Cuda) -> Result<R, Failure>,
    ) -> Result<R, DriverError> {
        self.supports(call, self.info.has_virtual_memory)?;
        self.call(call, work)
    }

    /// The same for a call that only devices with memory pools have.
    pub(crate) fn call_pooled<R>(
        &self,
        call: Call,
        work: impl FnOnce(&Cuda) -> Result<R, Failure>,
    ) -> Result<R, DriverError> {
        self.supports(call, self.info.has_async_malloc)?;
        self.call(call, work)
    }

    /// Memory goes back, so what trials left may go with it. What is refused once more stays.
    pub(crate) fn offer_leftovers(&self, cuda: &Cuda) {
        let _ = self.primary.leftovers.offer_again(cuda);
    }

    /// Refuses what the device has not; how the process ends goes before.
    pub(crate) fn supports(&self, call: Call, has: bool) -> Result<(), DriverError> {
        process::check().map_err(|code| DriverError::new(call, code))?;
        if has { Ok(()) } else { Err(DriverError::new(call, ErrorCode::NotSupported)) }
    }

    /// Refuses a pool that was not made here, which the driver might take for one.
    pub(crate) fn knows(&self, call: Call, pool: MemoryPool) -> Result<(), DriverError> {
        self.supports(call, self.info.has_async_malloc)?;
        let is_known = self.sharing.has_pool(pool.0);
        if is_known { Ok(()) } else { Err(DriverError::new(call, ErrorCode::InvalidHandle)) }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Makes such memory, as little as can be, and does with it all that is ever done.
fn try_out(cuda: &Cuda, leftovers: &Leftovers, memory: PhysicalMemory) -> Result<(), Failure> {
    let mut trial = TrialMemory::default();
    let access = [Access::of(memory.ordinal)];
    let tried = trial.make(cuda, memory).and_then(|()| trial.map(cuda, &access));
    // Nobody was told of it, so nobody uses it.
    tried.and(leftovers.give_back(cuda, trial))
}

/// How much plain memory a device has that is not full: far more than the driver may have left over
/// of what it took for others.
const PLENTY_BYTES: u64 = 64 << 20;

/// Whether virtual memory works. A device that is full is no worse than others; one that has plenty
/// of plain memory and no handle has no large pages, and may never have any (DGX Spark, as its host
/// keeps files in memory).
fn has_handles(cuda: &Cuda, leftovers: &Leftovers, memory: PhysicalMemory) -> bool {
    let is_refused = |failure: &Failure| failure.code() == ErrorCode::OutOfMemory;
    match try_out(cuda, leftovers, memory) {
        Ok(()) => true,
        Err(failure) if !is_refused(&failure) => false,
        Err(_) => {
            let plain = cuda.malloc(PLENTY_BYTES).and_then(|address| cuda.free(address));
            // Others may have gone meanwhile.
            plain.is_err() || try_out(cuda, leftovers, memory).is_ok()
        }
    }
}

/// The best handle that pools can be shared by, no better than the device's.
fn pool_handle(best: ShareableHandle, supported: u32) -> ShareableHandle {
    let candidates = match best {
        ShareableHandle::Fabric => &[ShareableHandle::Fabric, ShareableHandle::PosixFd][..],
        ShareableHandle::PosixFd => &[ShareableHandle::PosixFd],
        ShareableHandle::None => &[],
    };
    let is_supported = |handle: &ShareableHandle| supported & handle_bit(*handle) != 0;
    candidates.iter().copied().find(is_supported).unwrap_or(ShareableHandle::None)
}

#[cfg(test)]
mod tests {
    use drystone_driver::ShareableHandle::{Fabric, None, PosixFd};

    use super::pool_handle;

    #[test]
    fn a_pool_is_shared_by_the_best_handle_that_both_device_and_pools_have() {
        assert_eq!(pool_handle(Fabric, 1 | 8), Fabric);
        assert_eq!(pool_handle(Fabric, 1), PosixFd);
        assert_eq!(pool_handle(PosixFd, 1 | 8), PosixFd);
        assert_eq!(pool_handle(PosixFd, 8), None);
        assert_eq!(pool_handle(Fabric, 0), None);
        assert_eq!(pool_handle(None, 1 | 8), None);
    }
}
