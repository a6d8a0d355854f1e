//! How a heap behaves, as whoever makes it says.

use crate::policy::{self, CrossStream, Prefer, SegmentKind};

/// How a heap behaves. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// How segments of the default pool are obtained, and of others that do not say.
    pub kind: SegmentKind,
    /// Size of a granule: a power of two, at least the device's granularity.
    pub granule_bytes: u64,
    /// The device's physical memory: how many addresses a mapped segment gets.
    pub device_bytes: u64,
    /// Reserved bytes never pass this.
    pub limit_bytes: u64,
    /// When a free block serves another stream.
    pub cross_stream: CrossStream,
    /// Whether free granules are remapped.
    pub remaps: bool,
    /// How many times a handle must fit into what is left where memory moves, or without room to
    /// spare: [`SPARE_SHARE`](crate::SPARE_SHARE) but in tests.
    pub left_per_handle: u64,
    /// What memory is worth.
    pub prefer: Prefer,
    /// Whether live memory moves by itself where a request would be refused.
    pub moves: bool,
    /// Whether the device has no memory of its own, but the host's: programs that never call the
    /// driver take it and give it back. So the device is looked at before every growth.
    pub is_integrated: bool,
}

impl Config {
    /// A heap without a limit, on a device of so many bytes.
    pub const fn new(kind: SegmentKind, granule_bytes: u64, device_bytes: u64) -> Self {
        Self {
            kind,
            granule_bytes,
            device_bytes,
            limit_bytes: u64::MAX,
            cross_stream: CrossStream::Wait,
            remaps: true,
            left_per_handle: policy::SPARE_SHARE,
            prefer: Prefer::Balanced,
            moves: false,
            is_integrated: false,
        }
    }

    /// The same, on a device whose memory is the host's, or on one that has its own.
    #[must_use]
    pub const fn with_host_memory(mut self, is_integrated: bool) -> Self {
        self.is_integrated = is_integrated;
        self
    }

    /// The same, with another price of memory.
    #[must_use]
    pub const fn with_prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// The same, with a limit of reserved bytes.
    #[must_use]
    pub const fn with_limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// The same, with another rule for when a free block serves another stream.
    #[must_use]
    pub const fn with_cross_stream(mut self, cross_stream: CrossStream) -> Self {
        self.cross_stream = cross_stream;
        self
    }

    /// The same, but memory stays where it was created until it is given back.
    #[must_use]
    pub const fn without_remaps(mut self) -> Self {
        self.remaps = false;
        self
    }

    /// The same, with handles that get small sooner or later.
    #[must_use]
    pub const fn with_left_per_handle(mut self, left_per_handle: u64) -> Self {
        self.left_per_handle = left_per_handle;
        self
    }
}
