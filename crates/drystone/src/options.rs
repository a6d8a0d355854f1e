//! Options: what an allocator, or a pool of one, is to be like. Read once, when it is made.
//!
//! `parse`: the same as text.

mod parse;

pub use parse::OptionsError;

use std::time::Duration;

use drystone_core::{CrossStream, Prefer};
use drystone_driver::{DeviceInfo, MemoryPoolConfig};

const MIB: u64 = 1 << 20;

/// How long neighbours are waited for: a hundred times what an idle one takes for a gibibyte.
const NEIGHBOURS_WAIT: Duration = Duration::from_millis(200);

/// What is left to a host at most, if nobody says otherwise: below 8 GiB free a user's guard of
/// DGX Sparks drops caches, and below 12.7 GiB a driver has failed
/// (tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#19, NVIDIA/dgx-spark-playbooks#116).
const HOST_FLOOR_BYTES: u64 = 8 << 30;
/// What part of the memory of a small one, such as a Jetson.
const HOST_FLOOR_SHARE: u64 = 16;

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Virtual memory: physical granules mapped into reserved addresses.
    Vmm,
    /// Plain allocations of the driver (`cudaMalloc`).
    Malloc,
    /// Memory pools of the driver's (`cudaMallocAsync`), which do the caching themselves.
    Async,
}

/// How an allocator behaves.
///
/// ```
/// use drystone::{Backend, Options};
///
/// let options = Options::default().with_backend(Backend::Malloc).with_limit_bytes(20 << 30);
/// assert_eq!("backend:malloc,limit:20GiB".parse(), Ok(options));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Where memory comes from; `None` takes virtual memory where the device has it, else plain
    /// allocations.
    pub backend: Option<Backend>,
    /// Reserved memory never passes this many bytes.
    pub limit_bytes: Option<u64>,
    /// Reserved memory never passes this fraction of the device's memory: above 0, at most 1.
    pub limit_fraction: Option<f64>,
    /// What memory is worth, in time.
    pub prefer: Prefer,
    /// When a free block serves another stream than its own.
    pub cross_stream: CrossStream,
    /// Whether free memory is mapped to other addresses to serve a request. Without, memory stays
    /// at the addresses that it was created for: to find out whether a symptom comes from that.
    pub remaps: bool,
    /// Size of a granule in bytes: a power of two, at least the device's granularity (2 MiB).
    /// Smaller granules hold less unused memory, larger ones cost fewer driver calls. Large blocks
    /// get several at once: up to 128 MiB, and near the end a sixteenth of what is left.
    pub granule_bytes: u64,
    /// Backend `async`: how much unused memory the driver keeps when the program synchronises a
    /// stream, an event or the device. `u64::MAX` keeps all until it is trimmed.
    pub release_threshold_bytes: u64,
    /// Whether memory can be given to other processes: that of the driver's memory pools (backend
    /// `async`; `None` is no), or mapped memory, for which it is how the device is opened
    /// (`CudaOptions::is_shareable`; `None` is where that costs nothing).
    pub is_shareable: Option<bool>,
    /// How long a request that is refused waits for other processes of the same user to give back
    /// what they hold unused; `None` asks nobody, and gives nothing. For allocators of
    /// `drystone-process`, as the libraries and `install` make them: a bare one asks nobody.
    pub neighbours: Option<Duration>,
    /// After how long unused memory goes back to the device by itself; `None` keeps it, and so does
    /// a bare allocator, as with [`neighbours`](Self::neighbours).
    pub idle: Option<Duration>,
    /// On a device whose memory is the host's (DGX Spark, Jetson): what is left to the host, in
    /// bytes. Growth that would leave it less is out of memory. `None` takes 8 GiB, or a sixteenth
    /// of the memory if that is less; 0 leaves nothing.
    pub host_floor_bytes: Option<u64>,
    /// Whether `torch.cuda.mem_get_info` counts as free what neighbours hold unused. For what
    /// stands before PyTorch: [`available`](crate::Allocator::available) counts it always.
    pub counts_neighbours: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: None,
            limit_bytes: None,
            limit_fraction: None,
            prefer: Prefer::Balanced,
            cross_stream: CrossStream::Wait,
            remaps: true,
            granule_bytes: 2 * MIB,
            release_threshold_bytes: u64::MAX,
            is_shareable: None,
            neighbours: Some(NEIGHBOURS_WAIT),
            idle: None,
            host_floor_bytes: None,
            counts_neighbours: false,
        }
    }
}

impl Options {
    /// The same, with [`backend`](Self::backend): where memory comes from.
    #[must_use]
    pub const fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// The same, with [`limit_bytes`](Self::limit_bytes): reserved memory never passes this many
    /// bytes.
    #[must_use]
    pub const fn with_limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = Some(limit_bytes);
        self
    }

    /// The same, with [`limit_fraction`](Self::limit_fraction): reserved memory never passes this
    /// fraction of the device's memory: above 0, at most 1.
    #[must_use]
    pub const fn with_limit_fraction(mut self, limit_fraction: f64) -> Self {
        self.limit_fraction = Some(limit_fraction);
        self
    }

    /// The same, with [`prefer`](Self::prefer): what memory is worth, in time.
    #[must_use]
    pub const fn with_prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// The same, with [`cross_stream`](Self::cross_stream): when a free block serves another stream
    /// than its own.
    #[must_use]
    pub const fn with_cross_stream(mut self, cross_stream: CrossStream) -> Self {
        self.cross_stream = cross_stream;
        self
    }

    /// The same, with [`remaps`](Self::remaps) unset: memory stays at the addresses that it was
    /// created for.
    #[must_use]
    pub const fn without_remaps(mut self) -> Self {
        self.remaps = false;
        self
    }

    /// The same, with [`granule_bytes`](Self::granule_bytes): size of a granule in bytes.
    #[must_use]
    pub const fn with_granule_bytes(mut self, granule_bytes: u64) -> Self {
        self.granule_bytes = granule_bytes;
        self
    }

    /// The same, with [`release_threshold_bytes`](Self::release_threshold_bytes): backend `async`:
    /// how much unused memory the driver keeps.
    #[must_use]
    pub const fn with_release_threshold_bytes(mut self, release_threshold_bytes: u64) -> Self {
        self.release_threshold_bytes = release_threshold_bytes;
        self
    }

    /// The same, with [`is_shareable`](Self::is_shareable): whether memory can be given to other
    /// processes.
    #[must_use]
    pub const fn with_sharing(mut self, is_shareable: bool) -> Self {
        self.is_shareable = Some(is_shareable);
        self
    }

    /// The same, with [`neighbours`](Self::neighbours): how long other processes are waited for.
    #[must_use]
    pub const fn with_neighbours(mut self, wait: Option<Duration>) -> Self {
        self.neighbours = wait;
        self
    }

    /// The same, with [`idle`](Self::idle): after how long unused memory goes back by itself.
    #[must_use]
    pub const fn with_idle(mut self, idle: Option<Duration>) -> Self {
        self.idle = idle;
        self
    }

    /// The same, with [`host_floor_bytes`](Self::host_floor_bytes): what is left to a host whose
    /// memory the device has.
    #[must_use]
    pub const fn with_host_floor_bytes(mut self, host_floor_bytes: Option<u64>) -> Self {
        self.host_floor_bytes = host_floor_bytes;
        self
    }

    /// How the driver runs the memory pools of backend `async`. Freed memory serves other streams
    /// as [`cross_stream`](Self::cross_stream) says, as far as the driver has attributes for it.
    pub(crate) fn memory_pool_config(&self) -> MemoryPoolConfig {
        let may_pass = !matches!(self.cross_stream, CrossStream::Never);
        let may_wait = matches!(self.cross_stream, CrossStream::Wait);
        MemoryPoolConfig::default()
            .with_release_threshold_bytes(self.release_threshold_bytes)
            .with_reuse_after_events(may_pass)
            .with_opportunistic_reuse(may_pass)
            .with_added_dependencies(may_wait)
            .with_export(self.is_shareable.unwrap_or(false))
    }

    /// What is left to the host on a device; nothing where it has memory of its own.
    pub(crate) fn floor_on(&self, info: &DeviceInfo) -> u64 {
        let usual_bytes = HOST_FLOOR_BYTES.min(info.total_bytes / HOST_FLOOR_SHARE);
        if info.is_integrated { self.host_floor_bytes.unwrap_or(usual_bytes) } else { 0 }
    }

    /// The limit of reserved bytes on a device with this much memory.
    pub(crate) fn limit_on(&self, device_bytes: u64) -> u64 {
        let by_fraction = self.limit_fraction.map(|f| (device_bytes as f64 * f) as u64);
        self.limit_bytes.unwrap_or(u64::MAX).min(by_fraction.unwrap_or(u64::MAX))
    }
}

/// What a private pool is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Where its memory comes from; `None` for the allocator's own backend. Plain memory within a
    /// backend of virtual memory is for those who cannot use the latter: handles of the old
    /// inter-process kind, registration with a network card, WSL.
    pub backend: Option<Backend>,
}

impl PoolOptions {
    /// The same, with [`backend`](Self::backend): where its memory comes from.
    #[must_use]
    pub const fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }
}
