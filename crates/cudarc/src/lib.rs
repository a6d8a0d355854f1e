//! Drystone's memory for engines built on cudarc.
//!
//! [`DeviceMemory`] is the allocator of a device, [`StreamMemory`] allocates on one of the engine's
//! streams, by cudarc's names. A [`PooledSlice`] is a cudarc `CudaSlice` whose memory is
//! Drystone's: it goes wherever cudarc or a library over it takes one, and cudarc orders streams
//! and notes uses as it does for its own. Dropping it frees into the pool, in the order of its
//! stream.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use drystone::Options;
//! use drystone_cudarc::{Alloc, DeviceMemory};
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let memory = DeviceMemory::new(stream.context(), &Options::default())?;
//! let memory = memory.on(&stream)?;
//! let weights = memory.clone_htod(&[1.0f32; 1024])?;
//! let mut scratch = memory.alloc_zeros::<f32>(4096)?;
//! stream.memcpy_dtod(&weights, &mut scratch)?;
//! assert!(memory.budget()?.would_fit(1 << 30));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An engine that is to stay as it is calls [`install`] first: from then on cudarc's own slices
//! come from Drystone.
//!
//! Modules, bottom first: `error` · `lane` (a device, its streams and their captures) · `uses` (who
//! owns what while a stream is captured) · `block` (memory) · `slice` (typed) · `alloc` (the
//! traits) · `device`, `graph` and `growable` (what the program holds); `install` stands alone.

mod alloc;
mod block;
mod device;
mod error;
mod graph;
mod growable;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod install;
mod lane;
mod slice;
mod uses;

pub use alloc::{Alloc, DeviceAllocator};
pub use block::Block;
pub use device::{DeviceMemory, StreamMemory};
pub use drystone_cuda::device_count;
pub use error::MemoryError;
pub use graph::{Capture, Graph, GraphPool};
pub use growable::Growable;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use install::{InstallError, install, installed};
pub use slice::PooledSlice;
