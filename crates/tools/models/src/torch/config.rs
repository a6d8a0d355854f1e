//! What `PYTORCH_CUDA_ALLOC_CONF` says, in PyTorch 2.11's own syntax.
//!
//! Invariant: a `Config` holds only values PyTorch would accept. Unlike PyTorch, numbers must be
//! whole decimal digits (it would read `20x` as 20).

mod keys;
mod settings;
mod tokens;
mod values;

pub use keys::ConfigError;
pub use settings::Config;
pub(super) use values::INTERVALS;

#[cfg(test)]
mod tests;
