//! What a process has one of, whoever asks for memory in it: its devices, each opened at its first
//! use, the options they are opened with, and how calls of foreign code end.
//!
//! For the libraries that foreign code calls: C's, PyTorch's, and what stands before the driver.
//! A Rust program makes a `drystone::Allocator` of its own. May change with every version.
//!
//! Keeps: no lock is taken in a forked child (B56); no panic leaves a barrier (P5). Bottom first:
//! `by_address` (few things), `status` and `last_error` (how a call ends), `barrier` (what
//! surrounds each), `state`, `record`, `pools`, `counted`, `registering`, `thread` (of our own),
//! `descriptors` (from process to process), `neighbours` (other processes), `pressure` (of the
//! host), `device`, `streams`, `registry` (devices by ordinal), `registered` (memory that libraries
//! know), `events` (the program's), `free` (what is wrong with a free), `report`.

pub mod barrier;
pub mod by_address;
mod counted;
pub mod descriptors;
pub mod device;
pub mod events;
pub mod free;
pub mod last_error;
pub mod neighbours;
pub mod pools;
mod pressure;
mod record;
pub mod registered;
pub mod registering;
pub mod registry;
pub mod report;
mod state;
pub mod status;
pub mod streams;
mod thread;

pub use state::{check, takes_frees};
