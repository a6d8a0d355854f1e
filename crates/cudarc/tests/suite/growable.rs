//! Memory that grows in place: graphs replay over it meanwhile, and cudarc orders its uses.

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{DeviceSlice, LaunchConfig, PushKernelArg};
use drystone::Options;
use drystone_cudarc::{Alloc, Growable, StreamMemory};
use drystone_testkit::SimCuda;

use crate::{MIB, count, kernel, memory, on_a_device};

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const FLAGS: CUgraphInstantiate_flags =
    CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// As an engine that captures: on one stream, without tracking.
fn untracked(memory: StreamMemory) -> StreamMemory {
    // SAFETY: there is one stream.
    unsafe { memory.stream().context().disable_event_tracking() };
    memory
}

fn grow(cache: &mut Growable<f32>, len: usize) {
    // SAFETY: numbers, which may hold any bytes.
    unsafe { cache.grow_to(len) }.unwrap();
}

#[test]
fn graphs_replay_over_what_grows() {
    on_a_device("growable::graphs_replay_over_what_grows", "memory:1GiB,backing:true", || {
        let memory = untracked(memory(&Options::default()));
        let stream = memory.stream().clone();
        let mut out = memory.alloc_zeros::<f32>(MIB).unwrap();
        let mut cache = memory.reserve::<f32>(200 * MIB).unwrap();
        assert_eq!((cache.len(), cache.try_slice(..1).is_none()), (0, true));
        cache.grow_zeros_to(MIB).unwrap();
        let address = cache.address();
        let capture = memory.capture(&memory.device().graph_pool(), RELAXED).unwrap();
        stream.memcpy_dtod(&cache.slice(..MIB), &mut out).unwrap();
        // Also by growth within the capture.
        grow(&mut cache, 3 * MIB);
        let graph = capture.end(FLAGS).unwrap().unwrap();
        for round in 1..6 {
            grow(&mut cache, (3 + 20 * round) * MIB);
            let value = vec![round as f32; MIB];
            stream.memcpy_htod(&value, &mut cache.slice_mut(..MIB)).unwrap();
            graph.launch().unwrap();
            assert_eq!(stream.clone_dtoh(&out).unwrap(), value);
            let last = cache.len() - 1;
            assert!(
                cache.try_slice(last..=last).is_some() && cache.try_slice(last + 2..).is_none()
            );
        }
        cache.shrink_to(MIB).unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&out).unwrap()[..2], [5.0, 5.0]);
        assert_eq!((cache.address(), cache.as_view().len()), (address, MIB));
        drop((graph, cache, out));
        memory.allocator().trim().unwrap();
        assert_eq!(memory.allocator().stats().all.reserved_bytes.current, 0);
        stream.context().check_err().unwrap();
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}

#[test]
fn from_1_to_64_gib_while_graphs_replay_nothing_is_copied() {
    let name = "growable::from_1_to_64_gib_while_graphs_replay_nothing_is_copied";
    on_a_device(name, "memory:80GiB", || {
        const GIB: usize = 1 << 30;
        let memory = untracked(memory(&Options::default()));
        let stream = memory.stream().clone();
        let function = kernel(&stream);
        let mut cache = memory.reserve::<u8>(64 * GIB).unwrap();
        // SAFETY: numbers, which may hold any bytes.
        unsafe { cache.grow_to(GIB) }.unwrap();
        let address = cache.address();
        let capture = memory.capture(&memory.device().graph_pool(), RELAXED).unwrap();
        let front = cache.slice(..GIB);
        // SAFETY: a kernel that the simulated driver makes up.
        unsafe {
            stream.launch_builder(&function).arg(&front).launch(LaunchConfig::for_num_elems(1))
        }
        .unwrap();
        let graph = capture.end(FLAGS).unwrap().unwrap();
        let calls = || ["cuMemCreate", "cuMemMap", "cuMemSetAccess"].map(count);
        let copies = || count("cuMemcpyAsync") + count("cuMemcpyDtoDAsync_v2");
        let (before, copied) = (calls(), copies());
        for gibibytes in 2..=64 {
            // SAFETY: as above.
            unsafe { cache.grow_to(gibibytes * GIB) }.unwrap();
            graph.launch().unwrap();
        }
        let [creates, maps, accesses] = calls();
        let made = [creates - before[0], maps - before[1], accesses - before[2]];
        println!("63 growths: {} creates, {} maps, {} accesses", made[0], made[1], made[2]);
        assert_eq!((made[0], made[2], copies()), (made[1], 63, copied));
        assert_eq!((cache.address(), cache.len()), (address, 64 * GIB));
        stream.synchronize().unwrap();
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}

#[test]
fn memory_counts_under_its_tag() {
    on_a_device("growable::memory_counts_under_its_tag", "memory:1GiB", || {
        let memory = memory(&Options::default());
        let weights = memory.tagged("weights").alloc_zeros::<u8>(5 * MIB + 1).unwrap();
        let copy = weights.clone();
        let mut cache = memory.tagged("kv").reserve::<u8>(64 * MIB).unwrap();
        cache.grow_zeros_to(9 * MIB).unwrap();
        let untagged = memory.alloc_zeros::<u8>(MIB).unwrap();
        let mib = MIB as u64;
        let stats = || memory.allocator().tag_stats().into_iter().map(|tag| (tag.name, tag.bytes));
        let expected = [("weights", 2 * (5 * mib + 512)), ("kv", 10 * mib)];
        assert!(stats().eq(expected.map(|(name, bytes)| (name.to_owned(), bytes))));
        drop((weights, copy, cache, untagged));
        assert!(stats().all(|(_, bytes)| bytes == 0));
        assert_eq!(memory.allocator().tag_stats()[1].peak_bytes, 10 * mib);
    });
}

#[test]
fn b01_what_is_given_up_waits_for_uses_that_cudarc_noted() {
    let name = "growable::b01_what_is_given_up_waits_for_uses_that_cudarc_noted";
    on_a_device(name, "memory:1GiB", || {
        let memory = memory(&Options::default());
        let other = memory.device().on(&memory.stream().fork().unwrap()).unwrap();
        let mut cache = memory.reserve::<f32>(64 * MIB).unwrap();
        cache.grow_zeros_to(8 * MIB).unwrap();
        let copy = other.clone_dtod(&cache.as_view()).unwrap();
        let waits = count("cuStreamWaitEvent");
        cache.shrink_to(MIB).unwrap();
        assert!(count("cuStreamWaitEvent") > waits, "given up without a wait");
        cache.grow_zeros_to(8 * MIB).unwrap();
        drop((copy, cache));
        memory.allocator().trim().unwrap();
        assert_eq!(memory.allocator().stats().all.reserved_bytes.current, 0);
        memory.stream().context().check_err().unwrap();
    });
}

#[test]
fn i11_what_is_dropped_during_a_capture_lives_as_long_as_the_graph() {
    let name = "growable::i11_what_is_dropped_during_a_capture_lives_as_long_as_the_graph";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memory = untracked(memory(&Options::default()));
        let other = memory.device().on(&memory.stream().fork().unwrap()).unwrap();
        let held = || {
            memory.stream().context().synchronize().unwrap();
            memory.allocator().trim().unwrap();
            memory.allocator().stats().all.reserved_bytes.current >> 20
        };
        // Of the captured stream, and of one that is not.
        for owner in [&memory, &other] {
            let mut cache = owner.reserve::<f32>(64 * MIB).unwrap();
            cache.grow_zeros_to(3 * MIB).unwrap();
            cache.record_stream(&memory).unwrap();
            owner.stream().synchronize().unwrap();
            let capture = memory.capture(&memory.device().graph_pool(), RELAXED).unwrap();
            memory.stream().memset_zeros(&mut cache.as_view_mut()).unwrap();
            drop(cache);
            let graph = capture.end(FLAGS).unwrap().unwrap();
            assert_eq!(held(), 12);
            graph.launch().unwrap();
            drop(graph);
            assert_eq!(held(), 0);
        }
        memory.stream().context().check_err().unwrap();
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}
