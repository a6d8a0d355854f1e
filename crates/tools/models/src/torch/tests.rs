//! What PyTorch's own figures do not reach (`tests/agreement.rs`, which holds every other rule
//! against them): which of two equal blocks serves, private pools, captures, single events, the
//! address map, and failures. Worked out by hand from the rules of PyTorch's allocator.

use drystone_driver::{Call, ErrorCode};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};
use drystone_trace::replay::BlockState::{self, Free, Live, Pending};
use drystone_trace::replay::{LayoutSegment, Replayed};

use crate::torch::{Config, Replay};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A device and the allocator on it, with three streams and two pools.
struct Bench {
    device: SimDevice,
    torch: Replay,
}

fn bench_of(text: &str, config: SimConfig) -> Bench {
    let device = SimDevice::new(SimConfig { strict: true, ..config });
    let torch = Replay::new(Config::parse(text).unwrap(), &device, 3, 2);
    Bench { device, torch }
}

fn bench(text: &str, total_bytes: u64) -> Bench {
    bench_of(text, SimConfig { total_bytes, ..SimConfig::default() })
}

impl Bench {
    fn take(&mut self, bytes: u64) -> u64 {
        self.torch.allocate(bytes, 0, 0).unwrap()
    }

    fn reserved(&self) -> u64 {
        let reserved = self.torch.stats().reserved_bytes;
        assert_eq!(reserved, self.device.physical_bytes(), "the allocator's books are right");
        reserved
    }

    fn calls(&self, call: Call) -> u64 {
        self.device.calls_of(call)
    }

    /// Sizes and states of all blocks, by address, one list for each segment.
    fn map(&self) -> Vec<Vec<(u64, BlockState)>> {
        let layout = self.torch.layout().unwrap();
        let blocks = |segment: &LayoutSegment| {
            segment.blocks.iter().map(|block| (block.bytes, block.state)).collect()
        };
        layout.segments.iter().map(blocks).collect()
    }
}

impl Drop for Bench {
    /// However a test goes, no driver call was one a correct caller never makes.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.device.violations(), []);
            assert_eq!(self.torch.failure(), None);
        }
    }
}

#[test]
fn best_fit_takes_the_smallest_and_then_the_lowest() {
    let mut bench = bench("", GIB);
    let blocks: Vec<u64> = [64, 1, 32, 1, 32, 1].map(|kib| bench.take(kib * KIB)).into();
    for index in [4, 0, 2] {
        bench.torch.free(blocks[index]);
    }
    assert_eq!(bench.take(20 * KIB), blocks[2]);
    assert_eq!(bench.take(20 * KIB), blocks[4]);
    // 12 KiB are left behind each of the two; 13 KiB fit the 64 KiB block next.
    assert_eq!(bench.take(12 * KIB), blocks[2] + 20 * KIB);
    assert_eq!(bench.take(13 * KIB), blocks[0]);
}

#[test]
fn a_free_block_serves_its_own_stream_and_pool_only() {
    let mut bench = bench("", GIB);
    let block = bench.take(4 * MIB);
    bench.torch.free(block);
    bench.torch.allocate(4 * MIB, 1, 0).unwrap();
    bench.torch.allocate(4 * MIB, 0, 1).unwrap();
    assert_eq!(bench.reserved(), 60 * MIB);
    assert_eq!(bench.take(4 * MIB), block);
    // Emptying the cache leaves the private pool alone.
    bench.torch.free(block);
    let layout = bench.torch.layout().unwrap();
    let private = layout.segments.iter().find(|segment| segment.pool == 1).unwrap().address;
    bench.torch.free(private);
    bench.torch.empty_cache();
    assert_eq!(bench.reserved(), 40 * MIB);
}

#[test]
fn when_memory_is_short_everything_whole_goes_and_the_request_is_tried_again() {
    let mut bench = bench("", 64 * MIB);
    let block = bench.take(40 * MIB);
    bench.take(MIB);
    bench.torch.free(block);
    bench.take(50 * MIB);
    assert_eq!(bench.torch.stats().num_alloc_retries, 1);
    let refusal = bench.torch.allocate(20 * MIB, 0, 0).unwrap_err();
    assert!(refusal.message.starts_with("CUDA out of memory. Tried to allocate 20971520 bytes"));
    assert_eq!((bench.torch.stats().ooms, bench.calls(Call::Malloc)), (1, 6));
    assert_eq!(bench.calls(Call::MemoryInfo), 1);
}

#[test]
fn a_private_pool_does_not_empty_the_cache() {
    let mut bench = bench("", 64 * MIB);
    let block = bench.take(40 * MIB);
    bench.torch.free(block);
    assert!(bench.torch.allocate(50 * MIB, 0, 1).is_err());
    assert_eq!((bench.torch.stats().num_alloc_retries, bench.reserved()), (0, 40 * MIB));
}

#[test]
fn a_recorded_block_waits_for_its_events_in_order() {
    let config = SimConfig { total_bytes: GIB, event_latency_ns: 100, ..SimConfig::default() };
    let mut bench = bench_of("", config);
    let [first, second] = [0, 1].map(|_| bench.take(2 * MIB));
    bench.torch.record_stream(first, 1);
    bench.torch.record_stream(first, 1);
    bench.torch.record_stream(first, 0); // its own stream: nothing
    bench.torch.record_stream(second, 2);
    bench.torch.free(first);
    bench.torch.advance(50);
    bench.torch.free(second);
    assert_eq!((bench.calls(Call::CreateEvent), bench.calls(Call::Record)), (2, 2));
    assert_eq!(bench.map(), [[(2 * MIB, Pending), (2 * MIB, Pending), (16 * MIB, Free)]]);
    assert_eq!(bench.torch.stats().active_bytes, 4 * MIB);
    assert_eq!(bench.torch.stats().allocated_bytes, 0);
    bench.torch.advance(120);
    assert_ne!(bench.take(2 * MIB), second, "only the first has passed");
    assert_eq!(bench.calls(Call::Query), 2);
    bench.torch.advance(200);
    let last = bench.take(2 * MIB);
    assert_eq!(bench.calls(Call::Query), 3);
    // Both events are used again, none is made.
    bench.torch.record_stream(last, 1);
    bench.torch.record_stream(last, 2);
    bench.torch.free(last);
    assert_eq!((bench.calls(Call::Record), bench.calls(Call::CreateEvent)), (4, 2));
}

#[test]
fn a_capture_puts_off_events_and_gives_nothing_back() {
    let mut bench = bench("", 64 * MIB);
    let [used, cached] = [0, 1].map(|_| bench.take(20 * MIB));
    let stream = bench.device.create_stream();
    bench.torch.record_stream(used, 1);
    bench.torch.free(cached);
    bench.torch.begin_capture(1, 1);
    bench.torch.free(used);
    assert_eq!(bench.calls(Call::Record), 0);
    assert!(bench.map().contains(&vec![(20 * MIB, Pending)]), "{:?}", bench.map());
    // New memory is allowed; none is given back for more, nor when the program asks.
    bench.torch.allocate(20 * MIB, 1, 1).unwrap();
    assert!(bench.torch.allocate(40 * MIB, 0, 0).is_err());
    // PyTorch asks how much there is, which breaks the capture.
    assert_eq!(bench.device.take_violations().len(), 1);
    bench.torch.empty_cache();
    assert_eq!((bench.reserved(), bench.calls(Call::Free)), (60 * MIB, 0));
    bench.torch.end_capture(1, 1);
    bench.device.launch(stream, 1).unwrap();
    // The next request records what was put off, and may give back.
    bench.take(40 * MIB);
    assert_eq!((bench.calls(Call::Record), bench.reserved()), (1, 60 * MIB));
}

#[test]
fn nothing_asked_is_nothing_given() {
    let mut bench = bench("", GIB);
    assert_eq!(bench.torch.allocate(0, 0, 0).unwrap(), 0);
    bench.torch.free(0);
    assert!(bench.torch.allocate(1 << 60, 0, 0).is_err());
    assert!(bench.torch.allocate(1, 3, 0).unwrap_err().message.contains("3 streams"));
    assert!(bench.torch.allocate(1, 0, 2).unwrap_err().message.contains("2 pools"));
    assert_eq!(bench.device.calls(), 0);
}

#[test]
fn a_full_release_unmaps_whole_handles_and_they_can_be_mapped_again() {
    let mut bench = bench("expandable_segments:True", GIB);
    let first = bench.take(50 * MIB);
    bench.take(5 * MIB);
    bench.torch.free(first);
    bench.torch.empty_cache();
    // Handles 0 and 1 are inside the free 50 MiB; half of handle 2 stays with it.
    assert_eq!(bench.reserved(), 20 * MIB);
    assert_eq!(bench.map(), [[(10 * MIB, Free), (5 * MIB, Live), (5 * MIB, Free)]]);
    assert_eq!((bench.calls(Call::Unmap), bench.calls(Call::Release)), (2, 2));
    assert_eq!(bench.calls(Call::SynchronizeStream), 1);
    // 45 MiB fit in front again: the hole of 40 MiB and what is left behind it.
    assert_eq!(bench.take(45 * MIB), first);
    assert_eq!((bench.reserved(), bench.calls(Call::Reserve)), (60 * MIB, 1));
}

#[test]
fn a_failed_mapping_leaves_the_device_as_it_was() {
    for (call, nth) in [(Call::Create, 2), (Call::Map, 1), (Call::Map, 2), (Call::SetAccess, 1)] {
        let mut bench = bench("expandable_segments:True", GIB);
        bench.take(20 * MIB);
        let (mode, code) = (FaultMode::Once, ErrorCode::InvalidHandle);
        bench.device.install_fault(FaultPlan { call, nth, mode, code });
        let refusal = bench.torch.allocate(60 * MIB, 0, 0).unwrap_err();
        assert!(refusal.message.contains(call.cuda_name()), "{refusal}");
        assert_eq!((bench.reserved(), bench.device.live_objects().handles), (20 * MIB, 1));
        bench.take(60 * MIB);
        assert_eq!(bench.reserved(), 80 * MIB);
    }
}

#[test]
fn a_failed_free_is_kept_and_the_replay_goes_on() {
    let device = SimDevice::new(SimConfig::default());
    let mut torch = Replay::new(Config::default(), &device, 1, 1);
    let block = torch.allocate(20 * MIB, 0, 0).unwrap();
    torch.free(block);
    let (mode, code) = (FaultMode::Once, ErrorCode::ContextLost);
    device.install_fault(FaultPlan { call: Call::Free, nth: 1, mode, code });
    torch.empty_cache();
    assert_eq!(torch.failure().map(|error| error.call), Some(Call::Free));
    assert_eq!(torch.allocate(20 * MIB, 0, 0).unwrap(), block);
}
