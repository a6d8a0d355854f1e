//! The functions in whose place ours stand, by CUDA's names. Programs that are linked with the
//! driver find them first; those that look functions up have to be led to them.
//!
//! Invariants: each answers as the driver does wherever it does not serve; none calls anything but
//! `driver`'s functions; no panic leaves one (P5). While the process holds no driver each refuses.

mod address;
mod context;
mod event;
mod ipc;
mod memory;
mod pointer;
mod pool;
mod refused;
mod stream;

use crate::hook::Hook;

/// Every function of ours.
pub fn all() -> impl Iterator<Item = &'static Hook> {
    let memory = [memory::HOOKS, pointer::HOOKS, ipc::HOOKS, pool::HOOKS, refused::HOOKS];
    let others = [address::HOOKS, context::HOOKS, event::HOOKS, stream::HOOKS];
    memory.into_iter().chain(others).flatten()
}
