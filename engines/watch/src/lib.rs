//! What an engine asks for, told to the simulated device's oracle.
//!
//! The engine's calls of `cuMemAllocAsync` and `cuMemFreeAsync` come here first, and go on to whom
//! they were meant for: the driver, or Drystone in its place. The oracle then pretends a kernel on
//! the stream after each allocation and before each free. Nothing of the engine is changed for it:
//! the linker puts `__wrap_NAME` where `NAME` was called (`build.rs` of each engine). An engine
//! that is linked with the driver calls the two functions by name (`linked`); one that looks them
//! up calls `dlsym` (`found`).

mod calls;
mod device;
#[cfg(not(feature = "linked"))]
mod found;
#[cfg(feature = "linked")]
mod linked;
mod lookup;

pub use calls::report;
#[cfg(not(feature = "linked"))]
pub use found::drystone_is_here;
