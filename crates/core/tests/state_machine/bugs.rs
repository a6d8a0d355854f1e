//! What other allocators got wrong: each test is named after the bug it keeps out. The world
//! checks far more than is asserted here: order, backing, statistics and every invariant, after
//! every step.

mod faults;
mod handles;
mod memory;
mod mesh;
mod moves;
mod order;
mod remap;
mod whole;

use drystone_core::{CrossStream, SegmentKind, StreamId};

use crate::world::{Setup, World};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;
const KINDS: [SegmentKind; 2] = [SegmentKind::Mapped, SegmentKind::Plain];

/// A world with room for this many bytes and as many streams.
fn world<const STREAMS: usize>(
    limit_bytes: u64,
    cross_stream: CrossStream,
) -> (World, [StreamId; STREAMS]) {
    let setup = Setup { limit_bytes, cross_stream, streams: STREAMS, ..Setup::default() };
    let world = World::new(&setup);
    let streams = std::array::from_fn(|at| world.reference.streams[at]);
    (world, streams)
}
