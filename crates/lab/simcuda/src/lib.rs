//! `libcuda.so.1` without a GPU: the CUDA driver API, in C, over the simulated device of
//! `drystone-sim`.
//!
//! Lives here, bottom first; a module uses only those above it:
//! - `status`, `abi`, `handle`, `config`, `visible`: what crosses the C boundary, and the settings
//! - `violation`, `backing`, `tables`, `device`: a device and what the API keeps beside it
//! - `process`, `context`, `attribute`, `fault`: the devices of the process, and which is current
//! - `machine`: those of the machine, as NVML asks
//! - `entry`: the macro that defines exported functions. It counts calls, lets planned faults
//!   strike, stops panics at the boundary, and lists the functions for `cuGetProcAddress`
//! - `capture`, `opened`, `effect`, `queue`: what functions of several kinds do
//! - `api`, with `stats`: the functions themselves; `control`: those that no CUDA has
//!
//! Keeps: no argument crashes the library; a handle that is stale, foreign or of another kind is
//! refused; a call that fails has changed nothing.

#[macro_use]
mod entry;

mod abi;
mod api;
mod attribute;
mod backing;
mod capture;
mod config;
mod context;
mod control;
mod device;
mod driver_room;
mod effect;
mod fault;
mod handle;
mod machine;
mod opened;
mod process;
mod queue;
mod stats;
mod status;
mod tables;
mod violation;
mod visible;
