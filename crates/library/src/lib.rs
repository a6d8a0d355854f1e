//! `libdrystone.so`: what `drystone-capi` exports, as a library of its own. `build.rs` says how
//! cargo links it. `cargo xtask capi` links the one that is shipped for C, whose symbols have
//! versions (`libdrystone.ld`); `install/` has what build systems are reported it.

#![forbid(unsafe_code)]

extern crate drystone_capi as _;
