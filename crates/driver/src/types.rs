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

/// What a device can do. Fixed for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's ordinal.
    pub ordinal: u32,
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// Smallest physical handle and alignment of mappings, in bytes; a power of two.
    pub granularity_bytes: u64,
    /// Whether virtual memory management (reserve, create, map) works on this device.
    pub has_virtual_memory: bool,
    /// Whether stream-ordered allocation works on this device.
    pub has_async_malloc: bool,
}

/// How much physical memory the device has at this moment, over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free physical memory, in bytes.
    pub free_bytes: u64,
    /// Physical memory, in bytes.
    pub total_bytes: u64,
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
pub enum CaptureMode {
    /// Unsafe calls are refused in every thread.
    Global,
    /// Unsafe calls are refused in the capturing thread only.
    ThreadLocal,
    /// Nothing is refused.
    Relaxed,
}
