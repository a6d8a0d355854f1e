//! `libdrystone.so`: Drystone for C, C++ and PyTorch.
//!
//! Every exported function is `extern "C"`, begins with `drystone_`, and is described in C's terms,
//! since the committed header `include/drystone.h` is made of these comments.
//!
//! Keeps two promises: a wrong argument is refused with a typed error and changes nothing (P3); no
//! panic crosses into C (P5). What holds for every way into a process, devices first, is of
//! `drystone-process`. Bottom first: `streams` (their type), `stream_owner`, `filter` (PyTorch's,
//! in C++), `out`, `snapshot`; then what is exported: `plugin` (PyTorch's functions), `torch`
//! (those that throw), `memory`, `growable`, `share`, `control`, `events`, `tags`, `statistics`,
//! `pool_stream_stats`, `layout`, `memory_provider`, `about`.

mod about;
mod control;
mod events;
mod filter;
mod growable;
mod holders;
mod layout;
mod memory;
mod memory_provider;
mod out;
mod pins;
mod plugin;
mod pool_stream_stats;
mod share;
mod shortage;
mod snapshot;
mod statistics;
mod stream_owner;
mod streams;
mod tags;
mod torch;

use drystone_process as process;
#[cfg(not(test))]
use drystone_process::registry;
use drystone_process::{barrier, device, free, last_error, report, status};

#[cfg(test)]
use tests::registry;

#[cfg(test)]
mod tests;
