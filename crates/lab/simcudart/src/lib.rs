//! `libcudart.so` and `libnvidia-ml.so.1` over the simulated `libcuda.so.1`.
//!
//! Lives here: what a runtime keeps besides the driver, which is little: the device a thread chose,
//! its last error, the names and architectures of kernels. Memory, streams, graphs and clocks are
//! the driver's, and are reached through its C ABI only, as by the real runtime. Names that mean
//! different things in CUDA 12 and 13 are exported with their versions; `link/` says which one each
//! library calls so.

#[cfg(test)]
use simcuda as _;

mod code;
mod context;
mod copy;
mod described;
mod device;
mod driver;
mod entry_point;
mod error;
mod export;
mod function;
mod graph;
mod kernel;
mod memory;
mod nvml;
mod properties;
mod stream;
mod symbol;
mod unsupported;
