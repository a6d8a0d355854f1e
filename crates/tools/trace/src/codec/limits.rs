//! Limits on what a reader takes in.
//!
//! Invariant: a reader's memory is bounded by these figures and by the size of its input, whatever
//! the input claims about itself. The defaults are far above every recording known.

/// How much a reader takes before it gives up with a clear error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of one trace.
    pub events: u64,
    /// Bytes of a file after decompression, which are read as they stream by.
    pub decoded_bytes: u64,
    /// Bytes of a snapshot after decompression, which is held in memory whole while it is read.
    /// Never above 4 GiB.
    pub snapshot_bytes: u64,
}

/// Largest size of one request, in bytes: device addresses have 48 bits.
pub const MAX_REQUEST_BYTES: u64 = 1 << 48;

/// Largest snapshot, in bytes: positions in it are kept in 32 bits.
pub(super) const MAX_SNAPSHOT_BYTES: u64 = u32::MAX as u64 - 1;

impl Default for Limits {
    fn default() -> Self {
        Self { events: 1 << 31, decoded_bytes: 1 << 38, snapshot_bytes: 1 << 31 }
    }
}
