//! The `drystone` command from outside: what it prints, writes and returns.
//!
//! Lives here: one test binary, a module per concern. Traces are the shipped ones and small ones
//! written on the spot, so nothing else is needed.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests panic like tests

mod answers;
mod bad_input;
mod generated;
mod inputs;
mod measured;
mod recorded;
mod reports;
mod results;
mod swept;
mod tool;
