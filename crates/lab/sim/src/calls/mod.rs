//! The calls, each as a method of [`State`](crate::state::State).
//!
//! Lives here, bottom first: `pools` (stream-ordered memory), `streams`, `events`, `captures`,
//! `memory` (virtual and plain), `moves` (held streams and copies), `checks` (what the oracle is
//! told).
//! Invariant: a call that is refused has changed nothing but broken captures.

mod captures;
mod checks;
mod events;
mod memory;
mod moves;
mod pools;
mod streams;
