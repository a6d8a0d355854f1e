//! The heap from within: what its own state machine test cannot see.

mod allocate_at;
mod runs;
mod slices;
mod windows;
