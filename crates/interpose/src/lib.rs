//! Functions that stand instead of the CUDA driver's: whoever asks for memory in stream order
//! by them gets Drystone's; all else is the driver's, with what Drystone holds unused.
//!
//! They carry CUDA's names, and hand every call on until [`serve`] is called, or [`give_back`]
//! where Drystone serves by another way. `drystone-preload` exports them to programs as they are,
//! `drystone_cudarc::install` leads cudarc to them. May change with every version.
//!
//! Bottom first: `driver` (its own functions), `context` (which device a thread works on),
//! `captures`, `device` (opened, or left to the driver), `streams` (where a stream's memory comes
//! from), `order` (the program's own), `pools` (which are stood in for), `memory` (giving and
//! taking), `ipc` (for other processes), `refused` (who got none of the driver), `hook` and `hooks`
//! (the functions).
//!
//! Keeps: nothing of CUDA is loaded from here, and processes without it do not notice; a block is
//! given back in the order of the stream that it is freed on.

mod captures;
mod context;
mod device;
pub mod driver;
mod hook;
mod hooks;
mod ipc;
mod memory;
mod order;
mod pools;
mod refused;
mod streams;

use drystone::Allocator;

pub use driver::{give_back, is_reached_by, is_serving, serve};
pub use hook::Hook;
pub use hooks::all as functions;

/// The allocator that serves a device, opened at the first call. `None`: nothing is served yet, or
/// the device cannot be.
pub fn allocator(ordinal: usize) -> Option<Allocator> {
    driver::serving()?;
    let count = drystone_cuda::device_count().ok()?;
    let ordinal = u32::try_from(ordinal).ok().filter(|&ordinal| ordinal < count)?;
    device::open(ordinal.cast_signed()).map(|device| device.allocator.clone())
}
