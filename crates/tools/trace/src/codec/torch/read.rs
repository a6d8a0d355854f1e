//! The values of a file into a snapshot.
//!
//! Invariants: nothing recurses; what is shared in the file is looked at once (stacks, notes) or
//! counts against a budget that no file written by PyTorch can exhaust, so that a small file
//! cannot unfold into a large snapshot.
//!
//! Below it, bottom first: `fault` (where in a file something is wrong), `plain` and `reader`
//! (looking at values), `stacks`, `segments`, `entries` (the parts of a snapshot), `whole`.

mod entries;
mod fault;
mod plain;
mod reader;
mod segments;
mod stacks;
mod whole;

pub(in crate::codec) use whole::read;
