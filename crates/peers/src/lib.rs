//! Who is compared: models of PyTorch's allocators, ready to replay.
//!
//! Lives here: `torch`, a model of PyTorch's caching allocator and its expandable segments that
//! makes the same driver calls.
#![forbid(unsafe_code)]

pub mod torch;
