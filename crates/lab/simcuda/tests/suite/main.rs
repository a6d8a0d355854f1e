//! The simulated driver as programs meet it: through cudarc's own bindings, loaded by name.
//!
//! Each test is a program of its own with its own settings: it starts this binary again for one
//! test alone. Without `DRYSTONE_SIMCUDA`, the folder of the built library, tests skip.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod context;
mod contexts;
mod copies;
mod document;
mod ending;
mod harsh;
mod legality;
mod memory;
mod program;
mod safe;
mod share;
mod shared;
mod speed;
mod streams;
