//! Replay: drives any allocator with a trace.
//!
//! Below it, bottom first: `layout` (an address map as plain data), `replayed` (the trait an
//! allocator implements), `captures`, `engine` (the loop), `curve` (memory over time), `clock`,
//! `measure` (a run and its figures), `record` (a run as a snapshot).
//! Invariant: what an allocator is asked depends on the trace and its own answers only, so a run
//! repeats itself exactly.

mod captures;
mod clock;
mod curve;
mod engine;
mod layout;
mod measure;
mod record;
#[cfg(test)]
mod reference;
mod replayed;

pub use crate::metrics::{DeviceTime, DriverCost, Remaps};
pub use curve::{Curve, CurvePoint};
pub use engine::{completes, layout_at};
pub use layout::{BlockState, Layout, LayoutBlock, LayoutSegment};
pub use measure::{Options, Outcome, run};
pub use record::record;
pub use replayed::{Refusal, Replayed, Usage};
