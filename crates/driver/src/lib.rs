//! What any GPU must offer to Drystone: the [`Driver`] trait and its plain types.
//!
//! Lives here: the contract, and how sizes are read and written (`sizes`), which all crates above
//! share. Implementations: `drystone-sim` (a simulated GPU) and, for real hardware, a crate over
//! CUDA. Keeps no invariant of its own and depends on nothing of Drystone.
//!
//! ```
//! use drystone_driver::{Driver, DriverError};
//!
//! /// Memory that can be mapped again elsewhere: addresses with one granule behind them.
//! fn back(driver: &dyn Driver) -> Result<u64, DriverError> {
//!     let bytes = driver.info().granularity_bytes;
//!     let address = driver.reserve(bytes, bytes)?;
//!     let handle = driver.create(bytes)?;
//!     driver.map(address, bytes, handle)?;
//!     driver.set_access(address, bytes)?;
//!     Ok(address)
//! }
//! ```
#![forbid(unsafe_code)]

mod call;
mod driver;
mod error;
mod relaxed;
pub mod sizes;
mod types;

pub use call::Call;
pub use driver::Driver;
pub use error::{DriverError, ErrorCode};
pub use relaxed::{CaptureModes, Relaxed};
pub use types::{
    CaptureMode, CaptureStatus, Descriptor, DeviceInfo, Event, Handle, Hold, MemoryInfo,
    MemoryPool, MemoryPoolConfig, MemoryPoolUsage, ShareableHandle, Stream, StreamUid,
};
