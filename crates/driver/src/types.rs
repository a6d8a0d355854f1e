//! Plain types that cross the [`Driver`](crate::Driver) boundary.
//!
//! Handle values ([`Stream`], [`Event`], [`Handle`]) are the driver's own: after a destroy the
//! driver may hand the same value out again. Nothing above the driver may use them as identities;
//! [`StreamUid`] is the identity of a stream. Addresses and sizes are plain `u64`, in bytes.

/// A stream handle as the device's API passes it around. Values are recycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

impl Stream {
    /// The default stream every context has from the start.
    pub const DEFAULT: Stream = Stream(0);
    /// The calling thread's own default stream: one value, another stream in each thread.
    pub const PER_THREAD: Stream = Stream(2);

    /// Whether this is [`DEFAULT`](Self::DEFAULT), which CUDA gives another name, too
    /// (`cudaStreamLegacy`, 1).
    #[inline]
    pub const fn is_default(self) -> bool {
        self.0 <= 1
    }
}

/// The identity of a stream: never used twice in one process (`cuStreamGetId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamUid(pub u64);

/// An event handle. Values are recycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// A physical memory handle made by [`Driver::create`](crate::Driver::create). Values are recycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// Streams that were brought to a stop by [`Driver::hold`](crate::Driver::hold).
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the streams stand still until they are let go"]
pub struct Hold(pub u64);

/// A stream-ordered memory pool of the driver, made by
/// [`Driver::create_memory_pool`](crate::Driver::create_memory_pool). Values are recycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryPool(pub u64);

/// How the driver runs a memory pool (`CUmemPool_attribute`, `CUmemPoolProps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPoolConfig {
    /// Idle memory up to this many bytes is kept when a stream, an event or the device is
    /// synchronised (`RELEASE_THRESHOLD`).
    pub release_threshold_bytes: u64,
    /// Memory freed on a stream serves another that waits for it already
    /// (`REUSE_FOLLOW_EVENT_DEPENDENCIES`).
    pub reuse_follows_events: bool,
    /// Memory whose free has completed serves any stream (`REUSE_ALLOW_OPPORTUNISTIC`).
    pub reuse_is_opportunistic: bool,
    /// The driver may make one stream wait for another to reuse memory
    /// (`REUSE_ALLOW_INTERNAL_DEPENDENCIES`).
    pub reuse_adds_dependencies: bool,
    /// Other processes may import the pool, by the device's [`ShareableHandle`].
    pub is_exportable: bool,
}

impl Default for MemoryPoolConfig {
    /// The driver's own defaults: nothing idle is kept, every way of reuse is allowed.
    fn default() -> Self {
        Self {
            release_threshold_bytes: 0,
            reuse_follows_events: true,
            reuse_is_opportunistic: true,
            reuse_adds_dependencies: true,
            is_exportable: false,
        }
    }
}

impl MemoryPoolConfig {
    /// The same, keeping so many idle bytes.
    #[must_use]
    pub const fn with_release_threshold_bytes(mut self, bytes: u64) -> Self {
        self.release_threshold_bytes = bytes;
        self
    }

    /// The same, with [`reuse_follows_events`](Self::reuse_follows_events) or without.
    #[must_use]
    pub const fn with_reuse_after_events(mut self, is_allowed: bool) -> Self {
        self.reuse_follows_events = is_allowed;
        self
    }

    /// The same, with [`reuse_is_opportunistic`](Self::reuse_is_opportunistic) or without.
    #[must_use]
    pub const fn with_opportunistic_reuse(mut self, is_allowed: bool) -> Self {
        self.reuse_is_opportunistic = is_allowed;
        self
    }

    /// The same, with [`reuse_adds_dependencies`](Self::reuse_adds_dependencies) or without.
    #[must_use]
    pub const fn with_added_dependencies(mut self, is_allowed: bool) -> Self {
        self.reuse_adds_dependencies = is_allowed;
        self
    }

    /// The same, for other processes to import or not.
    #[must_use]
    pub const fn with_export(mut self, is_exportable: bool) -> Self {
        self.is_exportable = is_exportable;
        self
    }
}

/// What the driver counts for a memory pool, in bytes (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT` and
/// its kin).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPoolUsage {
    /// Physical memory of the pool.
    pub reserved_bytes: u64,
    /// Its peak since the pool was made.
    pub reserved_peak_bytes: u64,
    /// Memory handed out.
    pub used_bytes: u64,
    /// Its peak since the pool was made.
    pub used_peak_bytes: u64,
}

/// How memory of a device can be given to another process, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareableHandle {
    /// Over NVLink fabric, to other nodes, too.
    Fabric,
    /// As a file descriptor.
    PosixFd,
    /// Not at all.
    None,
}

/// What other processes know physical memory by: the operating system's own, closed when dropped.
#[cfg(unix)]
pub type Descriptor = std::os::fd::OwnedFd;
/// What other processes know physical memory by: the operating system's own, closed when dropped.
#[cfg(windows)]
pub type Descriptor = std::os::windows::io::OwnedHandle;

/// What a device can do. Fixed for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's ordinal.
    pub ordinal: u32,
    /// What the device is known by to every process of the machine, or the part of it that this
    /// process has (MIG); zeros where the driver does not say.
    pub uuid: [u8; 16],
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// Smallest physical handle and alignment of mappings, in bytes; a power of two.
    pub granularity_bytes: u64,
    /// Whether virtual memory management (reserve, create, map) works on this device.
    pub has_virtual_memory: bool,
    /// Whether stream-ordered allocation works on this device.
    pub has_async_malloc: bool,
    /// Whether network cards may reach mapped memory (GPUDirect RDMA).
    pub has_gpu_direct_rdma: bool,
    /// Whether it has no memory of its own, but the host's (`CU_DEVICE_ATTRIBUTE_INTEGRATED`:
    /// DGX Spark, Jetson). A Grace Hopper has its own, and says no.
    pub is_integrated: bool,
    /// How its memory can be given to another process.
    pub shareable_handle: ShareableHandle,
    /// Whether the driver promises virtual memory, and made none of it when it was tried.
    pub makes_no_handle: bool,
}

impl DeviceInfo {
    /// A device that can do nothing but allocate. What more it can do, is to be set.
    pub const fn new(ordinal: u32, total_bytes: u64, granularity_bytes: u64) -> Self {
        Self {
            ordinal,
            uuid: [0; 16],
            total_bytes,
            granularity_bytes,
            has_virtual_memory: false,
            makes_no_handle: false,
            has_async_malloc: false,
            has_gpu_direct_rdma: false,
            is_integrated: false,
            shareable_handle: ShareableHandle::None,
        }
    }
}

/// How much physical memory the device has at this moment, over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Free physical memory, in bytes.
    pub free_bytes: u64,
    /// Physical memory, in bytes.
    pub total_bytes: u64,
}

impl MemoryInfo {
    /// So much free of so much.
    pub const fn new(free_bytes: u64, total_bytes: u64) -> Self {
        Self { free_bytes, total_bytes }
    }
}

/// Whether work queued on a stream runs or is being recorded into a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// No capture: work runs.
    None,
    /// Work is recorded into a graph and does not run.
    Active,
    /// A capture was broken by an illegal call and must be ended.
    Invalidated,
}

/// Which calls a capture forbids, and to whom. A capture begins in one of these modes, and a
/// thread can exchange its own (`cudaThreadExchangeStreamCaptureMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CaptureMode {
    /// Unsafe calls are refused in every thread.
    Global,
    /// Unsafe calls are refused in the capturing thread only.
    ThreadLocal,
    /// Nothing is refused.
    Relaxed,
}

impl CaptureMode {
    /// The mode with CUDA's number; `as u32` gives that.
    pub const fn numbered(number: u32) -> Self {
        match number {
            1 => Self::ThreadLocal,
            2 => Self::Relaxed,
            _ => Self::Global,
        }
    }
}
