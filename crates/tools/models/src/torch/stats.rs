//! [`Stats`] and the errors a request can end with: the figures PyTorch itself reports.

use drystone_driver::DriverError;

/// The allocator's figures, under PyTorch's names where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live blocks after rounding, in bytes (`memory_allocated`).
    pub allocated_bytes: u64,
    /// Live and pending blocks after rounding, in bytes.
    pub active_bytes: u64,
    /// What was asked for, of live and pending blocks, in bytes.
    pub requested_bytes: u64,
    /// Held from the device, in bytes (`memory_reserved`).
    pub reserved_bytes: u64,
    /// How often everything cached was given back to serve a request.
    pub num_alloc_retries: u64,
    /// How many requests were refused for want of memory (`num_ooms`).
    pub ooms: u64,
}

/// The figures of a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What the program asked for, in bytes.
    pub requested_bytes: u64,
    /// The device's memory, in bytes.
    pub total_bytes: u64,
    /// Of it free, in bytes.
    pub free_bytes: u64,
    /// What the memory fraction allows, in bytes.
    pub allowed_bytes: Option<u64>,
    /// Live blocks after rounding, in bytes.
    pub allocated_bytes: u64,
    /// Held from the device, in bytes.
    pub reserved_bytes: u64,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CUDA out of memory. Tried to allocate {} bytes: the device has {} bytes, {} of them \
             free",
            self.requested_bytes, self.total_bytes, self.free_bytes
        )?;
        if let Some(allowed) = self.allowed_bytes {
            write!(f, "; the memory fraction allows {allowed} bytes")?;
        }
        write!(
            f,
            "; {} bytes are allocated and {} bytes are reserved but not allocated",
            self.allocated_bytes,
            self.reserved_bytes.saturating_sub(self.allocated_bytes)
        )
    }
}

impl std::error::Error for OutOfMemory {}

/// Why a request was not served.
#[expect(missing_docs, reason = "the text of an error says what each of its parts is")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The driver failed for another reason than memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("CUDA out of memory. Tried to allocate {bytes} bytes: more than any device has")]
    Absurd { bytes: u64 },
    #[error("stream {stream} is unknown: the allocator was made for {streams} streams")]
    UnknownStream { stream: u16, streams: usize },
    #[error("pool {pool} is unknown: the allocator was made for {pools} pools")]
    UnknownPool { pool: u8, pools: usize },
}
