//! PyTorch's caching allocator, as of version 2.11: a model that makes the same driver calls.
//!
//! Both of its kinds: segments from `cudaMalloc`, and expandable segments. Lives here, bottom
//! first: `config` (`PYTORCH_CUDA_ALLOC_CONF`), `rounding`, `stats`; as plain data `pool_id`,
//! `expandable`, `block`, `block_pool`, `events`; `allocator` (its state); as methods of that
//! `mapping`, `free`, `release`, `ladder` (a request), `layout`; and `replayed` (the model behind
//! the replay engine's trait).
//!
//! Keeps: given the same requests and the same answers of the driver, it asks the driver for the
//! same things in the same order as PyTorch. `docs/evidence/models.md` says how that was checked
//! and what is left out.

mod allocator;
mod block;
mod block_pool;
mod config;
mod events;
mod expandable;
mod free;
mod ladder;
mod layout;
mod mapping;
mod pool_id;
mod release;
mod replayed;
mod rounding;
mod stats;

pub use allocator::Allocator;
pub use config::{Config, ConfigError};
pub use replayed::Replay;
pub use stats::{OutOfMemory, RequestError, Stats};

#[cfg(test)]
mod tests;
