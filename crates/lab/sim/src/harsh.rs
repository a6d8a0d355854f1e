//! [`Harsh`]: rules of the device that a kinder one would not have, each with its source.

/// Which of the harsh rules are in force. `docs/inside/harsh-device.md` says why one is not in
/// [`Harsh::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harsh {
    /// A call with the handle of a stream, an event or a memory pool that is gone is a violation,
    /// and ends the calling thread with a panic that names the call. Real drivers follow such
    /// handles without a look: a segmentation fault in `cuStreamIsCapturing` (driver 590.48.01,
    /// lupinemachines/lupine#441), and in a second `cudaStreamDestroy` (rapidsai/rmm#932).
    pub stale_handles_end: bool,
    /// Attributes of memory pools are neither read nor written by a thread whom a capture forbids
    /// unsafe calls (NVIDIA/cccl#11360, NVIDIA/cuda-python#2834).
    pub pool_attributes_are_illegal: bool,
    /// What a capture does to a call that nobody has published ([`Legality::Unproven`]) is the
    /// worst: it is forbidden as an unsafe call is.
    ///
    /// [`Legality::Unproven`]: crate::Legality::Unproven
    pub unproven_is_illegal: bool,
    /// A copy or a memset on a device that mapped or stream-ordered memory is not open to is
    /// refused. Copies between two devices by `cuMemcpyPeer` are not. PyTorch's notes: without
    /// peer access only those handle memory that is not from `cudaMalloc`
    /// (`CUDACachingAllocator.cpp`, `memcpyAsync`).
    pub closed_memory_is_refused: bool,
    /// Every kernel is launched as programmatic dependent launch does it: it may be on the device
    /// before the one before it on the stream has ended. What that one wrote at one address it
    /// must not read at another: CUDA's programming guide, virtual aliasing support, calls grids
    /// that were present before a write inconsistent with it at another address.
    pub launches_are_early: bool,
}

impl Harsh {
    /// Every rule.
    pub const ALL: Self = Self::all(true);
    /// None of them.
    pub const NONE: Self = Self::all(false);

    const fn all(is_in_force: bool) -> Self {
        Self {
            stale_handles_end: is_in_force,
            pool_attributes_are_illegal: is_in_force,
            unproven_is_illegal: is_in_force,
            closed_memory_is_refused: is_in_force,
            launches_are_early: is_in_force,
        }
    }
}

impl Default for Harsh {
    /// All but one: a remap serves in stream order.
    fn default() -> Self {
        Self { launches_are_early: false, ..Self::ALL }
    }
}
