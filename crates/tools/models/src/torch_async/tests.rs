//! What is asked of the driver, and what becomes of it where memory is short.

use drystone_driver::Call;
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::replay::Replayed;

use super::Replay;

const MIB: u64 = 1 << 20;

fn bench(total_bytes: u64) -> (SimDevice, Replay) {
    let config = SimConfig { total_bytes, event_latency_ns: 100, ..SimConfig::default() };
    let device = SimDevice::new(SimConfig { strict: true, ..config });
    let replay = Replay::new(&device, 3).unwrap();
    (device, replay)
}

#[test]
fn requests_and_frees_are_the_drivers() {
    let (device, mut torch) = bench(1 << 30);
    let block = torch.allocate(MIB + 1, 0, 0).unwrap();
    let usage = torch.usage();
    assert_eq!((usage.allocated_bytes, usage.reserved_bytes), (MIB + 512, 32 * MIB));
    torch.free(block);
    // A pool of the program's is ignored, and the default pool keeps what it has.
    assert_eq!(torch.allocate(MIB, 0, 1), Ok(block));
    torch.free(block);
    torch.wait_for_device();
    assert_eq!(torch.usage().reserved_bytes, 32 * MIB);
    torch.empty_cache();
    assert_eq!((torch.usage().reserved_bytes, device.physical_bytes()), (0, 0));
    // Growth is priced as plain memory of its size.
    assert!(torch.driver_cost().time_us > device.driver_time_us() + 100.0);
}

#[test]
fn a_block_that_others_use_is_freed_on_a_stream_that_waits_for_all() {
    let (device, mut torch) = bench(64 * MIB);
    let block = torch.allocate(48 * MIB, 0, 0).unwrap();
    torch.record_stream(block, 1);
    torch.record_stream(block, 1);
    torch.record_stream(block, 0);
    torch.launch(1, 1_000_000);
    torch.free(block);
    assert_eq!((device.calls_of(Call::Record), device.calls_of(Call::Wait)), (2, 2));
    // The device has no more: its stream is made to wait for what the other does.
    assert_eq!(torch.allocate(48 * MIB, 0, 0), Ok(block));
    assert_eq!(device.added_waits(), 1);
    torch.free(block);
    torch.advance(2_000_000);
    assert_eq!(torch.allocate(48 * MIB, 2, 0), Ok(block));
    assert_eq!(device.added_waits(), 1, "what has passed serves any stream");
}

#[test]
fn what_is_idle_goes_back_before_a_request_is_refused() {
    let (device, mut torch) = bench(96 * MIB);
    let blocks = [32, 32, 32].map(|mib| torch.allocate(mib * MIB, 0, 0).unwrap());
    torch.free(blocks[0]);
    torch.free(blocks[1]);
    // Segments are not joined, so the pool has no 64 MiB until both are given back.
    torch.allocate(64 * MIB, 0, 0).unwrap();
    let waited = device.calls_of(Call::SynchronizeStream);
    assert_eq!((waited, device.calls_of(Call::TrimMemoryPool)), (1, 1));
    assert!(torch.allocate(1, 0, 0).is_err());
    torch.free(blocks[2]);
    assert!(torch.allocate(1, 0, 0).is_ok());
}

#[test]
fn graphs_share_memory_and_leave_what_is_not_theirs() {
    let (device, mut torch) = bench(1 << 30);
    let outside = torch.allocate(32 * MIB, 0, 0).unwrap();
    let mut kept = Vec::new();
    for mib in [64, 128, 96] {
        torch.begin_capture(1, 1);
        torch.join_capture(2, 1);
        kept.push(torch.allocate(mib * MIB, 1, 1).unwrap());
        let shared = torch.allocate(MIB, 1, 1).unwrap();
        torch.record_stream(shared, 2);
        torch.free(shared);
        if mib == 96 {
            torch.free(outside);
        }
        torch.end_capture(1, 1);
    }
    // The largest graph's, what the two others left allocated, and the block outside of graphs,
    // which the next request frees.
    assert_eq!(torch.usage().reserved_bytes, ((128 + 32) + (64 + 96) + 32) * MIB);
    kept.into_iter().for_each(|block| torch.free(block));
    assert_eq!(torch.usage().allocated_bytes, 0);
    assert_eq!(torch.allocate(32 * MIB, 0, 0), Ok(outside));
    assert_eq!(device.violations(), []);
}
