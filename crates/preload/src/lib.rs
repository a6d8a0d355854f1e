//! `libdrystone_preload.so`: programs that it is preloaded to get Drystone's memory where they ask
//! the CUDA driver for some in stream order, themselves or through the runtime; all else is the
//! driver's. It has the C interface of `libdrystone.so`, too, so that they can be looked into.
//!
//! Bottom first: `driver` (the driver's own functions), `context` (which device a thread works on),
//! `captures`, `device` (opened, or left to the driver), `streams` (where a stream's memory comes
//! from), `pools` (which are stood in for), `memory` (giving and taking), `hook` and `hooks` (the
//! functions by CUDA's names), `lookup` (how programs find ours that look for the driver's).
//!
//! Keeps: nothing of CUDA is loaded from here, and processes without it do not notice; a block is
//! given back in the order of the stream that it is freed on.

extern crate drystone_capi as _;

mod captures;
mod context;
mod device;
mod driver;
mod hook;
mod hooks;
mod lookup;
mod memory;
mod pools;
mod streams;
