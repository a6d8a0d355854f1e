//! Who is compared: Drystone itself and models of PyTorch's allocators, ready to replay.
//!
//! Lives here: `drystone`, the library behind the replay engine's trait; `torch`, a model of
//! PyTorch's caching allocator and its expandable segments that makes the same driver calls;
//! `torch_async`, PyTorch over the driver's own memory pool;
//! [`Candidate`], which names everything that can be compared; [`Program`], the kernels around any
//! of them; and `generators` of traces that are hard on all of them. How close the model is to
//! PyTorch itself: `docs/evidence/models.md`.
//!
//! The modules stand bottom first: each uses only those above it.
#![forbid(unsafe_code)]

mod work;

pub mod drystone;
pub mod generators;
pub mod torch;
pub mod torch_async;

mod candidate;
mod program;

pub use candidate::{
    COMPARABLE, Candidate, CandidateError, DRYSTONE_ASYNC, DRYSTONE_MALLOC, DRYSTONE_VMM, NAMES,
    TORCH_ASYNC, TORCH_EXPANDABLE, TORCH_NATIVE,
};
pub use program::{EVENT_LATENCY_NS, Gaps, Program, ideal_makespan_us, work_config};
