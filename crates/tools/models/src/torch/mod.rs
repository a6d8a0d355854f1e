//! PyTorch's caching allocator, as of version 2.11: a model that makes the same driver calls.
//!
//! Both of its kinds: segments from `cudaMalloc`, and expandable segments. Lives here, bottom
//! first: `tokens` and `config` (`PYTORCH_CUDA_ALLOC_CONF`), `rounding`, `block`, `block_pool`,
//! `events`, `expandable`, `release`, `gc`, `allocator` (the request ladder), `layout`, and
//! `replayed` (the model behind the replay engine's trait).
//!
//! Keeps: given the same requests and the same answers of the driver, it asks the driver for the
//! same things in the same order as PyTorch. `docs/models.md` says how that was checked and what is
//! left out.

mod allocator;
mod block;
mod block_pool;
mod config;
mod events;
mod expandable;
mod gc;
mod layout;
mod release;
mod replayed;
mod rounding;
mod stats;
mod tokens;

pub use allocator::Allocator;
pub use config::{Config, ConfigError};
pub use replayed::Replay;
pub use stats::{OutOfMemory, RequestError, Stats};

#[cfg(test)]
mod allocator_tests;
