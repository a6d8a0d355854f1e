//! A living neighbour that writes anything to its slot of a board: no more is given back than a
//! wish of it, as far as units allow, and nothing in it ends who serves.
#![no_main]

use std::sync::Arc;
use std::sync::LazyLock;

use drystone::driver::Stream;
use drystone::{Allocator, Options, StreamId};
use drystone_process::neighbours::fuzzing::Meeting;
use drystone_sim::{SimConfig, SimDevice};
use libfuzzer_sys::fuzz_target;

const DEVICE_BYTES: u64 = 1 << 30;
const UNUSED_BYTES: u64 = 512 << 20;
/// The largest handle that there can be, what others offer counted in: the smallest that is unused
/// may pass a wish.
const UNIT_BYTES: u64 = 128 << 20;

struct World {
    allocator: Allocator,
    stream: StreamId,
    meeting: Meeting,
}

/// Shared by all inputs, as processes are that stay.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let config = SimConfig { total_bytes: DEVICE_BYTES, ..SimConfig::default() };
    let device = Arc::new(SimDevice::new(config));
    let allocator = Allocator::new(device, &Options::default()).unwrap();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let path = std::env::temp_dir().join(format!("drystone-fuzz-{}", std::process::id()));
    let meeting = Meeting::new(&path, &allocator, DEVICE_BYTES).unwrap();
    // Both have it open.
    std::fs::remove_file(path).unwrap();
    World { allocator, stream, meeting }
});

fuzz_target!(|changes: Vec<(u8, u64)>| {
    let World { allocator, stream, meeting } = &*WORLD;
    drop(allocator.allocate(*stream, UNUSED_BYTES).unwrap());
    let held_bytes = || allocator.stats().all.reserved_bytes.current;
    let before_bytes = held_bytes();
    let wished_bytes = meeting.serve(&changes);
    let given_bytes = before_bytes - held_bytes();
    let most_bytes = if wished_bytes == 0 { 0 } else { wished_bytes.saturating_add(UNIT_BYTES) };
    assert!(given_bytes <= most_bytes, "{given_bytes} of {wished_bytes}");
});
