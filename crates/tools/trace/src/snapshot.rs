//! PyTorch's memory snapshots as plain data: what `torch.cuda.memory._snapshot()` returns.
//!
//! Below it, bottom first: `stacks` (shared stacks of frames), `parts` (the snapshot and what it is
//! made of), `marks` (annotations that tell more), `recording` (what a trace keeps of one). Reading
//! and writing are `codec`'s.
//! Invariant: what a reader takes in, a writer gives back, except top-level keys other than those
//! that a [`Snapshot`] has a field for.

mod marks;
mod parts;
#[cfg(feature = "analysis")]
mod recording;
mod stacks;

pub use marks::Mark;
pub use parts::{Action, Block, BlockState, Entry, PoolId, Segment, Snapshot};
#[cfg(feature = "analysis")]
pub use recording::{Recording, ReservedPoint};
pub use stacks::{DistinctStacks, Frame, StackId, Stacks};
