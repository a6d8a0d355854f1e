//! The heap against a slow reference and a fake device that checks every step it is asked to do.
//!
//! `transition`, `runs`: random operations from random starts. `bugs`: what other allocators got
//! wrong. `world`: the program; `reference` and `pool_streams`: what it knows; `device` and
//! `clocks`: what the heap acts on.
//! A failing run of random operations prints its smallest form and a seed; the seed is kept in
//! `proptest-regressions/` and tried first from then on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bugs;
mod clocks;
mod device;
mod pool_streams;
mod reference;
mod runs;
mod transition;
mod world;
