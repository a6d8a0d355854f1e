//! What tests and measurements need around an allocator.
//!
//! Lives here: `gpu` (what a program does on a GPU beside allocating, real or simulated), `simcuda`
//! (what a test asks of the simulated driver it runs on), `process` (exit and forks), `library`
//! (what a file has). None uses another. `c/` has what tests in C share.

mod gpu;
mod library;
mod process;
mod simcuda;

pub use gpu::{Failed, Gpu, Graph, Kernels, Mark};
pub use library::{compile_c, describe, is_self_contained, offered_by, simulated_cuda};
pub use process::{at_exit, forked_child_succeeds};
pub use simcuda::{NotSimulated, Refused, SimCuda, StreamHandle};
