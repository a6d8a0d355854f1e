//! `libdrystone.so`: what `drystone-capi` exports, as a library of its own. `build.rs` says how it
//! is linked.

extern crate drystone_capi as _;
