//! The values of a file into a snapshot.
//!
//! Invariants: nothing recurses; what is shared in the file is looked at once (stacks, notes) or
//! counts against a budget that no file written by PyTorch can exhaust, so that a small file
//! cannot unfold into a large snapshot.
//!
//! Below it, bottom first: `fault` (where in a file something is wrong), `plain` and `reader`
//! (looking at values), `stacks`, `segments`, `entries` (the parts of a snapshot).

mod entries;
mod fault;
mod plain;
mod reader;
mod segments;
mod stacks;

use crate::codec::error::{Place, Problem};
use crate::codec::graph::{Graph, Id, Node};
use crate::codec::limits::Limits;
use crate::snapshot::Snapshot;
use fault::{Fault, Read};
use reader::Reader;

/// Reads a snapshot; `root` is its outermost value.
pub(in crate::codec) fn read(
    graph: &Graph<'_>,
    root: Id,
    limits: &Limits,
) -> Result<Snapshot, (Place, Problem)> {
    let mut reader = Reader::new(graph, limits);
    snapshot(&mut reader, root).map_err(Fault::place)?;
    Ok(Snapshot { stacks: reader.stacks.into_stacks(), ..reader.snapshot })
}

fn snapshot(reader: &mut Reader<'_, '_>, root: Id) -> Read<()> {
    // `torch.cuda.memory_snapshot()` returns the list of segments alone.
    if let Node::List(_) = reader.graph.node(root) {
        return reader.segments(root).map_err(|fault| fault.at("segments"));
    }
    for (key, value) in reader.dict(root)? {
        match key {
            b"segments" => reader.segments(value),
            b"device_traces" => reader.device_traces(value),
            b"allocator_settings" => {
                reader.plain.value(value).map(|value| reader.snapshot.settings = value)
            }
            b"external_annotations" => reader.annotations(value),
            _ => Ok(()),
        }
        .map_err(|fault| fault.at(String::from_utf8_lossy(key)))?;
    }
    Ok(())
}
