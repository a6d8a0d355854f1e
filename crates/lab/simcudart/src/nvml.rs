//! NVML: what monitoring programs, and PyTorch when memory is short, ask of devices.
//!
//! `session` begins and ends it and says how calls end, `answers` tells of a device, `find` which
//! one is meant. Numbers are those of the simulated driver; asking never makes a context.

mod answers;
mod find;
mod records;
mod session;
