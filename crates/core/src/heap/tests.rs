//! The heap from within: what its own state machine test cannot see.

mod allocate_at;
mod growing;
mod runs;
mod slices;
mod trail;
mod windows;
