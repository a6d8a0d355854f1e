//! `libcuda.so.1` without a GPU: the CUDA driver API, in C, over the simulated device of
//! `drystone-sim`.
//!
//! Lives here: the ABI (`abi`, `status`, `api`), the process and its devices (`process`, `device`,
//! `config`, `fault`, `violation`, `stats`, `backing`), and one module for each part of the API.
//! Every exported function is defined by the macro in `api`, which counts it, lets planned faults
//! strike, stops panics at the boundary and lists the function for `cuGetProcAddress`.
//! Keeps: no argument crashes the library; a handle that is stale, foreign or of another kind is
//! refused; a call that fails has changed nothing.

#[macro_use]
mod api;

mod abi;
mod attribute;
mod backing;
mod capture;
mod config;
mod context;
mod control;
mod copy;
mod device;
mod device_query;
mod event;
mod fault;
mod graph;
mod graph_build;
mod graph_query;
mod handle;
mod host;
mod ipc;
mod launch;
mod library;
mod memory;
mod module;
mod pointer;
mod pool;
mod pool_share;
mod proc_address;
mod process;
mod set;
mod stats;
mod status;
mod stream;
mod stream_wait;
mod violation;
mod virtual_memory;
mod virtual_share;
