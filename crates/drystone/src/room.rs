//! Rooms: over which books an allocator stands, chosen when it is made, and pools that differ.
//!
//! Keeps: what is built, the device can do; a pool has a backend that its allocator's room has.

use std::sync::Arc;

use drystone_core::{AsyncPools, Config, HELD_PER_HANDLE, Heap, PoolId, SegmentKind};
use drystone_driver::{DeviceInfo, Driver, ShareableHandle};

use crate::allocator::Allocator;
use crate::device::Device;
use crate::error::BuildError;
use crate::execute::Handles;
use crate::options::{Backend, Options};

/// Who keeps the books.
#[derive(Clone)]
pub(crate) enum Room {
    /// A heap: sources `vmm` and `malloc`.
    Heap(Arc<Device<Heap>>),
    /// A ledger of what the driver's memory pools hand out: backend `async`.
    AsyncPools(Arc<Device<AsyncPools>>),
}

/// The same for both rooms.
macro_rules! in_room {
    ($allocator:expr, $device:ident => $body:expr) => {
        match &$allocator.room {
            $crate::room::Room::Heap($device) => $body,
            $crate::room::Room::AsyncPools($device) => $body,
        }
    };
}
pub(crate) use in_room;

/// What a private pool is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Where its memory comes from; `None` for the allocator's own backend. Plain memory within a
    /// backend of virtual memory is for those who cannot use the latter: handles of the old
    /// inter-process kind, registration with a network card, WSL.
    pub backend: Option<Backend>,
}

impl Allocator {
    /// An allocator that takes its memory from this device.
    ///
    /// # Errors
    /// The options ask for what the device has not.
    pub fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Self, BuildError> {
        options.check()?;
        let info = driver.info();
        let limit_bytes = options.limit_on(info.total_bytes);
        let backend = options.backend.unwrap_or(match info.has_virtual_memory {
            true => Backend::Vmm,
            false => Backend::Malloc,
        });
        let kind = match backend {
            Backend::Vmm => SegmentKind::Mapped,
            Backend::Malloc => SegmentKind::Plain,
            Backend::Async => {
                check_memory_pools(&info, options)?;
                let handles = Handles::with_config(options.memory_pool_config());
                let device = Device::new(driver, AsyncPools::new(limit_bytes), handles);
                return Ok(Self { room: Room::AsyncPools(Arc::new(device)) });
            }
        };
        if kind == SegmentKind::Mapped {
            check_virtual_memory(&info, options.granule_bytes)?;
        }
        let heap = Heap::new(Config {
            kind,
            granule_bytes: options.granule_bytes,
            device_bytes: info.total_bytes,
            limit_bytes,
            cross_stream: options.cross_stream,
            held_per_handle: HELD_PER_HANDLE,
        });
        let device = Device::new(driver, heap, Handles::default());
        Ok(Self { room: Room::Heap(Arc::new(device)) })
    }

    /// Adds a private pool that differs from the allocator.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolOptions, Backend};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let plain = PoolOptions { backend: Some(Backend::Malloc) };
    /// let pool = allocator.add_pool_with(&plain)?;
    /// let block = allocator.allocate_raw(pool, stream, 8 << 20)?;
    /// assert_eq!(device.live_objects().plain_allocations, 1); // from cudaMalloc
    /// allocator.free(block.address)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The device, or the allocator's own backend, has no room for such a pool.
    pub fn add_pool_with(&self, options: &PoolOptions) -> Result<PoolId, BuildError> {
        let Some(backend) = options.backend else {
            return Ok(self.add_pool());
        };
        let device = match (&self.room, backend) {
            (Room::Heap(device), Backend::Vmm | Backend::Malloc) => device,
            (Room::AsyncPools(_), Backend::Async) => return Ok(self.add_pool()),
            (_, pool) => return Err(BuildError::OtherBackend { pool, allocator: self.backend() }),
        };
        let mut heap = device.books.lock();
        if backend == Backend::Malloc {
            return Ok(heap.add_pool_of(SegmentKind::Plain));
        }
        check_virtual_memory(&device.driver.info(), heap.config().granule_bytes)?;
        Ok(heap.add_pool_of(SegmentKind::Mapped))
    }

    /// Where memory comes from, but for pools that say otherwise.
    pub fn backend(&self) -> Backend {
        match &self.room {
            Room::AsyncPools(_) => Backend::Async,
            Room::Heap(device) => match device.books.lock().config().kind {
                SegmentKind::Mapped => Backend::Vmm,
                SegmentKind::Plain => Backend::Malloc,
            },
        }
    }
}

fn check_virtual_memory(info: &DeviceInfo, granule_bytes: u64) -> Result<(), BuildError> {
    let (ordinal, granularity_bytes) = (info.ordinal, info.granularity_bytes);
    if !info.has_virtual_memory {
        return Err(BuildError::NoVirtualMemory { ordinal });
    }
    if granule_bytes < granularity_bytes {
        return Err(BuildError::GranuleTooSmall { granule_bytes, granularity_bytes });
    }
    Ok(())
}

fn check_memory_pools(info: &DeviceInfo, options: &Options) -> Result<(), BuildError> {
    if !info.has_async_malloc {
        return Err(BuildError::NoMemoryPools { ordinal: info.ordinal });
    }
    if options.is_shareable && info.shareable_handle == ShareableHandle::None {
        return Err(BuildError::NotShareable { ordinal: info.ordinal });
    }
    Ok(())
}
