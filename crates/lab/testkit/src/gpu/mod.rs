//! What a program does on a GPU beside allocating: streams, captures, kernels that take their time,
//! patterns in memory.
//!
//! Works on real and simulated devices alike. Handles are passed on to CUDA as they are: one that
//! was destroyed must not be used again. Every call leaves the thread's current context as it was,
//! but [`Gpu::make_current`]. What fails does so with the error of CUDA.
//!
//! Lives here, bottom first: `cuda` (the calls), `device`, `kernels`.

mod cuda;
mod device;
mod kernels;

pub use cuda::Failed;
pub use device::{Gpu, Graph, Mark};
pub use kernels::Kernels;
