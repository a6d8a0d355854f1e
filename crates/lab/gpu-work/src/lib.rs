//! What tests and measurements do on a GPU beside allocating, as a program around an allocator
//! does it: streams, captures, kernels that take their time, patterns in memory, exit and forks.
//!
//! Works on real and simulated devices alike. Handles are passed on to CUDA as they are: one that
//! was destroyed must not be used again. Every call leaves the thread's current context as it was,
//! but [`Gpu::make_current`].
//!
//! Lives here, bottom first: `cuda` (the calls), `gpu`, `kernels`, `process`.

mod cuda;
mod gpu;
mod kernels;
mod process;

pub use cuda::Failed;
pub use gpu::{Gpu, Graph, Mark};
pub use kernels::Kernels;
pub use process::{at_exit, forked_child_succeeds};
