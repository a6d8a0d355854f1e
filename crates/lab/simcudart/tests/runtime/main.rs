//! The linked `libcudart.so.13` and `.12`, called as programs call them.
//!
//! They are looked for in the folder that `DRYSTONE_SIMCUDA` names, as `cargo xtask test` sets it;
//! without it these tests say that they skip.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking")]

mod calls;
mod library;
mod nvml;
mod versions;
