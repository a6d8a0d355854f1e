//! A real GPU behind the driver trait, with the types of cudarc.
//!
//! [`CudaDevice`] implements [`Driver`](drystone_driver::Driver). Builds with no CUDA installed and
//! finds the driver when the program runs: every symbol is looked up before cudarc is called, which
//! would panic over a missing one.
//!
//! Keeps three promises: no CUDA call is made once process exit began or in a forked child (P6);
//! the calling thread's current context is after every call what it was before; nothing panics.
//! Bottom first: `process`, `failure`, `calls` (the only one that calls cudarc's functions),
//! `current`, `gate`, `trial_memory`, `primary`, `sharing`, `trial`, `holding`, `host_memory`,
//! `device`, `driver`.

mod calls;
mod current;
mod device;
mod driver;
mod failure;
mod gate;
mod holding;
mod host_memory;
mod open_error;
mod primary;
mod process;
mod properties;
mod sharing;
mod trial;
mod trial_memory;

pub use device::{CudaDevice, CudaOptions, device_count};
pub use open_error::OpenError;
pub use process::{ProcessState, process_state};
