//! What any GPU must offer to Drystone: the [`Driver`] trait and its plain types.
//!
//! Lives here: the contract only. Implementations: `drystone-sim` (a simulated GPU) and, for real
//! hardware, a crate over CUDA. Keeps no invariant of its own and depends on nothing of Drystone.
#![forbid(unsafe_code)]

mod call;
mod driver;
mod error;
mod types;

pub use call::Call;
pub use driver::Driver;
pub use error::{DriverError, ErrorCode};
pub use types::{
    CaptureMode, CaptureStatus, DeviceInfo, Event, Handle, MemoryInfo, MemoryPool,
    MemoryPoolConfig, MemoryPoolUsage, ShareableHandle, Stream, StreamUid,
};
