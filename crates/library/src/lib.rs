//! `libdrystone.so`: what `drystone-capi` exports, as a library of its own. `build.rs` says how it
//! is linked.

#![forbid(unsafe_code)]

extern crate drystone_capi as _;
