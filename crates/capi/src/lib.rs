//! `libdrystone.so`: Drystone for C, C++ and PyTorch.
//!
//! Every exported function is `extern "C"`, begins with `drystone_`, and is described in C's terms,
//! since the committed header `include/drystone.h` is made of these comments.
//!
//! Keeps two promises: a wrong argument is refused with a typed error and changes nothing (P3); no
//! panic crosses into C (P5). Bottom first: `status` and `last_error` (how a call ends), `barrier`
//! (what surrounds each), `process`, `record`, `pools`, `counted`, `device`, `stream_owner`,
//! `streams`, `registry` (devices by ordinal), `free` (what is wrong with a free), `report` and
//! `snapshot`; then what is exported: `plugin` (PyTorch's functions), `torch` (those that throw),
//! `memory`, `growable`, `share`, `control`, `statistics`, `pool_stream_stats`, `layout`,
//! `memory_provider`, `about`.

/// What a library serves by that is preloaded to programs. Not for others: it may change with every
/// version.
#[doc(hidden)]
pub mod shared {
    pub use crate::barrier::barrier;
    pub use crate::device::Device;
    pub use crate::free::owner;
    pub use crate::process::check;
    pub use crate::registry::{find, forget, get, in_use};
    pub use crate::report::report;
    pub use crate::status::{Failure, Status};
}

mod about;
mod barrier;
mod control;
mod counted;
mod device;
mod free;
mod growable;
mod last_error;
mod layout;
mod memory;
mod memory_provider;
mod out;
mod pins;
mod plugin;
mod pool_stream_stats;
mod pools;
mod process;
mod record;
mod registry;
mod report;
mod share;
mod shortage;
mod snapshot;
mod statistics;
mod status;
mod stream_owner;
mod streams;
mod torch;

#[cfg(test)]
mod tests;
