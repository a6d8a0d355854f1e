//! Every call against a device: the simulated one, a real one, or none, and then each test skips.
//!
//! Each test is a process of its own, with a device of its own where it is simulated: contexts,
//! captures and process exit belong to whole threads and processes. `SIMCUDA_CONF` asks for what
//! the test needs. What a call did is looked at through the driver itself, past the crate.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod contexts;
mod endings;
mod faults;
mod memory;
mod moves;
mod peers;
mod pools;
mod raw;
mod scenario;
mod streams;
