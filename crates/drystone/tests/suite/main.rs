//! Every test of the library that needs a device, in one binary.
//!
//! `device` says what a test device can do: the simulated one (`sim`), one through cudarc on the
//! simulated libcuda (`simcuda`), and a GPU (`gpu`). `setup` lists the backends and devices a test
//! runs on, `program` is the program around an allocator and tells the device's oracle of every
//! block. On top: `behaviour` (the contract, on any device), `on_remap` (of failures), `ending`
//! (what only a simulated device can be made to do), `cuda` (contexts, threads, exit and forks),
//! `faults` (each driver call fails once), `seeds` (random), `sharing` (between streams),
//! `mutants` and `move_mutants` (the oracle catches what it must), `moves`, `chaos`
//! (all at once, on a device that fails at random), `contexts` (that the program made),
//! `callbacks` (code of the program within the library), `giving_back` (to who was refused),
//! `handed_over` (between processes), `growable` (in place), `handles` (of programs that hold
//! much), `host` (its memory), `passing` (streams that may vanish), `price`, `questions` (about
//! streams), `ranks`, `addresses`, `backends`, `threads`, `whole`, `traces` (of programs). Names
//! cite invariants (`i14_`), promises (`p4_`) and others' bugs they guard against (`b29_`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod altered;
mod device;
mod gpu;
mod growable;
mod handles;
mod program;
mod setup;
mod sim;
mod simcuda;

mod addresses;
mod backends;
mod behaviour;
mod by_host;
mod callbacks;
mod chaos;
mod contexts;
mod cuda;
mod ending;
mod faults;
mod giving_back;
mod handed_over;
mod host;
mod meshes;
mod move_mutants;
mod moves;
mod mutants;
mod on_remap;
mod passing;
mod price;
mod questions;
mod ranks;
mod seeds;
mod sharing;
mod threads;
mod traces;
mod whole;
