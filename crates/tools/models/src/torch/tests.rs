//! The rules one by one, with figures worked out by hand from the rules of PyTorch's allocator.

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
fn small_requests_share_a_segment_and_split_at_512_bytes() {
    let mut bench = bench("", GIB);
    let first = bench.take(100);
    let second = bench.take(MIB);
    assert_eq!((second - first, bench.reserved()), (512, 2 * MIB));
    assert_eq!(bench.map(), [[(512, Live), (MIB, Live), (MIB - 512, Free)]]);
    // 512 bytes too much for what is left: another segment.
    bench.take(MIB);
    assert_eq!(bench.reserved(), 4 * MIB);
}

#[test]
fn a_large_rest_is_kept_for_others_only_above_1_mib() {
    let mut bench = bench("", GIB);
    bench.take(9 * MIB);
    assert_eq!(bench.map(), [[(9 * MIB, Live), (11 * MIB, Free)]]);
    // The rest would be exactly 1 MiB: the whole block is handed out.
    bench.take(10 * MIB);
    assert_eq!(bench.map(), [[(9 * MIB, Live), (11 * MIB, Live)]]);
    assert_eq!(bench.torch.stats().allocated_bytes, 20 * MIB);
    assert_eq!(bench.torch.stats().requested_bytes, 19 * MIB);
    // Own segments are rounded to 2 MiB, and 1 MiB is not split off either.
    bench.take(11 * MIB);
    assert_eq!(bench.reserved(), 32 * MIB);
}

#[test]
fn frees_merge_with_free_neighbours_of_the_segment_only() {
    let mut bench = bench("", GIB);
    let blocks: Vec<u64> = (0..4).map(|_| bench.take(500 * KIB)).collect();
    let other = bench.take(500 * KIB);
    assert_eq!(bench.reserved(), 4 * MIB);
    bench.torch.free(blocks[0]);
    bench.torch.free(blocks[2]);
    assert_eq!(bench.map()[0].len(), 5);
    bench.torch.free(blocks[1]);
    let segment = bench.map().swap_remove(0);
    assert_eq!(segment, [(1500 * KIB, Free), (500 * KIB, Live), (48 * KIB, Free)]);
    bench.torch.free(blocks[3]);
    bench.torch.free(other);
    assert_eq!(bench.map(), [[(2 * MIB, Free)], [(2 * MIB, Free)]]);
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
fn blocks_at_the_split_limit_serve_only_requests_close_to_them() {
    let mut bench = bench("max_split_size_mb:32", GIB);
    let block = bench.take(64 * MIB);
    bench.torch.free(block);
    // Below the limit, and more than 20 MiB below the block: neither may have it.
    bench.take(12 * MIB);
    let own = bench.take(44 * MIB);
    assert_ne!(own, block);
    assert_eq!(bench.reserved(), (64 + 12 + 44) * MIB);
    // 512 bytes closer it may, and gets it whole.
    assert_eq!(bench.take(44 * MIB + 512), block);
    assert_eq!(bench.torch.stats().allocated_bytes, (64 + 12 + 44) * MIB);
}

#[test]
fn when_memory_is_short_oversize_blocks_go_first() {
    let mut bench = bench("max_split_size_mb:32", 200 * MIB);
    let blocks = [40, 50, 60].map(|mib| bench.take(mib * MIB));
    let small = bench.take(2 * MIB);
    for block in blocks.into_iter().chain([small]) {
        bench.torch.free(block);
    }
    // 170 of 200 MiB are held. No single block has 90 MiB: 60 and 50 MiB go, in one rung.
    bench.take(90 * MIB);
    assert_eq!((bench.reserved(), bench.torch.stats().num_alloc_retries), (150 * MIB, 0));
    assert_eq!(bench.calls(Call::Free), 2);
    // The 40 MiB block alone is not enough, so everything goes.
    bench.take(76 * MIB);
    assert_eq!((bench.reserved(), bench.torch.stats().num_alloc_retries), (166 * MIB, 1));
}

#[test]
fn an_oversize_block_that_is_large_enough_goes_alone() {
    let mut bench = bench("max_split_size_mb:32", 130 * MIB);
    let blocks = [80, 36].map(|mib| bench.take(mib * MIB));
    for block in blocks {
        bench.torch.free(block);
    }
    bench.take(40 * MIB);
    assert_eq!((bench.reserved(), bench.torch.stats().num_alloc_retries), (76 * MIB, 0));
    assert_eq!(bench.take(36 * MIB), blocks[1]);
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
fn the_memory_fraction_refuses_without_a_driver_call() {
    let mut bench = bench("per_process_memory_fraction:0.5", 64 * MIB);
    bench.take(30 * MIB);
    assert!(bench.torch.allocate(4 * MIB, 0, 0).is_err());
    assert_eq!(bench.calls(Call::Malloc), 1);
    bench.take(MIB);
    assert_eq!(bench.reserved(), 32 * MIB);
}

#[test]
fn collection_frees_old_blocks_above_the_threshold() {
    let text = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9";
    let mut bench = bench(text, 1000 * MIB);
    // 900 MiB allowed, collection above 450 MiB.
    let old = bench.take(200 * MIB);
    bench.torch.free(old);
    let young = bench.take(300 * MIB);
    bench.torch.free(young);
    // Ages at the next search: 2 and 1 (the search itself counts). 500 MiB are held, 50 too many:
    // the one of at least average age goes.
    bench.take(310 * MIB);
    assert_eq!((bench.reserved(), bench.calls(Call::Free)), (610 * MIB, 1));
    assert_eq!(bench.take(300 * MIB), young);
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
fn giving_the_cache_back_waits_for_events() {
    let config = SimConfig { total_bytes: GIB, event_latency_ns: 100, ..SimConfig::default() };
    let mut bench = bench_of("", config);
    let block = bench.take(20 * MIB);
    bench.torch.record_stream(block, 1);
    bench.torch.free(block);
    bench.torch.empty_cache();
    assert_eq!((bench.calls(Call::SynchronizeEvent), bench.reserved()), (1, 0));
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
fn an_expandable_segment_grows_by_whole_handles() {
    let mut bench = bench("expandable_segments:True", GIB);
    let first = bench.take(5 * MIB);
    assert_eq!(
        bench.device.bytes_of(Call::Reserve),
        GIB / 8 * 9 / (20 * MIB) * (20 * MIB) + 20 * MIB
    );
    assert_eq!(bench.map(), [[(5 * MIB, Live), (15 * MIB, Free)]]);
    // 15 MiB are free at the end, so 35 MiB need one handle more.
    assert_eq!(bench.take(35 * MIB), first + 5 * MIB);
    assert_eq!((bench.reserved(), bench.calls(Call::Create)), (40 * MIB, 2));
    assert_eq!((bench.calls(Call::Map), bench.calls(Call::SetAccess)), (2, 2));
    bench.take(50 * MIB);
    assert_eq!((bench.calls(Call::Create), bench.calls(Call::SetAccess)), (5, 3));
    // Small requests and other streams have segments of their own.
    bench.take(1);
    bench.torch.allocate(2 * MIB, 1, 0).unwrap();
    assert_eq!((bench.reserved(), bench.calls(Call::Reserve)), ((100 + 2 + 20) * MIB, 3));
}

#[test]
fn an_expandable_block_is_split_to_the_last_512_bytes() {
    let mut bench = bench("expandable_segments:True", GIB);
    bench.take(20 * MIB - 512);
    assert_eq!(bench.map(), [[(20 * MIB - 512, Live), (512, Free)]]);
}

#[test]
fn what_can_still_grow_is_used_last() {
    let mut bench = bench("expandable_segments:True", GIB);
    let first = bench.take(6 * MIB);
    bench.take(9 * MIB);
    bench.torch.free(first);
    // 6 MiB at the start and 5 MiB at the end are free. The end fits 5 MiB exactly, but it could
    // grow, so the start is cut.
    assert_eq!(bench.take(5 * MIB), first);
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
fn an_empty_expandable_segment_gives_its_addresses_back() {
    let mut bench = bench("expandable_segments:True", GIB);
    let block = bench.take(50 * MIB);
    bench.torch.free(block);
    bench.torch.empty_cache();
    assert!(bench.device.live_objects().is_empty());
    bench.take(50 * MIB);
    assert_eq!((bench.calls(Call::Reserve), bench.calls(Call::Unreserve)), (2, 1));
}

#[test]
fn a_mapping_that_finds_no_memory_is_undone_and_tried_after_a_release() {
    let mut bench = bench("expandable_segments:True", 100 * MIB);
    let cached = bench.torch.allocate(40 * MIB, 1, 0).unwrap();
    bench.torch.free(cached);
    // Three handles are free, four are needed: three are made in vain, then stream 1 gives back.
    bench.take(80 * MIB);
    assert_eq!((bench.calls(Call::Create), bench.calls(Call::Release)), (2 + 4 + 4, 3 + 2));
    assert_eq!(bench.torch.stats().num_alloc_retries, 1);
    assert!(bench.torch.allocate(40 * MIB, 0, 0).is_err());
    assert_eq!(bench.reserved(), 80 * MIB);
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
