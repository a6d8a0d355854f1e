//! The contract of `Allocator`, on every source and device. Nothing here depends on the device
//! being simulated: what runs out is the allocator's limit, never the device's memory.

mod capture;
mod limits;
mod pins;
mod pools;
mod pressure;
mod reuse;
mod share;
mod sizes;
mod streams;
mod uses;
mod views;
