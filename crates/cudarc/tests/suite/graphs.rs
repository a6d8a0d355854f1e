//! Captures: memory that a graph uses serves nobody else while the graph lives.

use std::thread;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use drystone::Options;
use drystone_cudarc::{Alloc, DeviceMemory, Graph, GraphPool, MemoryError, StreamMemory};
use drystone_testkit::SimCuda;

use crate::{MIB, alloc, each_source, memory, on_a_device};

pub(crate) const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
pub(crate) const FLAGS: CUgraphInstantiate_flags =
    CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// As an engine that captures: on one stream, without tracking.
pub(crate) fn untracked(memory: StreamMemory) -> StreamMemory {
    // SAFETY: there is one stream.
    unsafe { memory.stream().context().disable_event_tracking() };
    memory
}

/// A graph that fills scratch which is dropped during the capture, and the scratch's address.
fn fill(memory: &StreamMemory, pool: &GraphPool, len: usize) -> (Graph, u64) {
    let capture = memory.capture(pool, RELAXED).unwrap();
    let scratch = memory.alloc_zeros::<f32>(len).unwrap();
    let address = scratch.address();
    drop(scratch);
    (capture.end(FLAGS).unwrap().unwrap(), address)
}

pub(crate) fn replay(memory: &StreamMemory, graph: &Graph) {
    graph.launch().unwrap();
    memory.stream().synchronize().unwrap();
}

#[test]
fn i11_a_replay_leaves_memory_made_after_the_capture_alone() {
    let name = "graphs::i11_a_replay_leaves_memory_made_after_the_capture_alone";
    on_a_device(name, "memory:1GiB,backing:true", || {
        each_source(|memory| {
            let memory = untracked(memory);
            drop(alloc::<f32>(&memory, MIB)); // warm
            // As cudarc's own programs capture: such memory is the driver's, and the graph's.
            memory.stream().begin_capture(RELAXED).unwrap();
            drop(memory.alloc_zeros::<f32>(MIB).unwrap());
            let graph = memory.stream().end_capture(FLAGS).unwrap().unwrap();
            let ones = memory.clone_htod(&vec![1f32; MIB]).unwrap();
            graph.launch().unwrap();
            memory.stream().synchronize().unwrap();
            assert_eq!(memory.stream().clone_dtoh(&ones).unwrap()[..2], [1.0, 1.0]);
            // In a session: the pool's.
            let (graph, address) = fill(&memory, &pool_of(&memory), MIB);
            let more = memory.clone_htod(&vec![1f32; MIB]).unwrap();
            assert_ne!(more.address(), address);
            replay(&memory, &graph);
            for slice in [ones, more] {
                assert_eq!(memory.stream().clone_dtoh(&slice).unwrap()[..2], [1.0, 1.0]);
            }
            memory.stream().context().check_err().unwrap();
        });
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}

/// A pool of the device that the memory is of.
pub(crate) fn pool_of(memory: &StreamMemory) -> GraphPool {
    memory.device().graph_pool()
}

#[test]
fn i11_what_is_dropped_during_a_capture_lives_as_long_as_the_graph() {
    let name = "graphs::i11_what_is_dropped_during_a_capture_lives_as_long_as_the_graph";
    on_a_device(name, "memory:1GiB,backing:true", || {
        each_source(|memory| {
            let memory = untracked(memory);
            let mut older = alloc::<f32>(&memory, 3 * MIB);
            let address = older.address();
            let capture = memory.capture(&pool_of(&memory), RELAXED).unwrap();
            memory.stream().memset_zeros(&mut older).unwrap();
            drop(older);
            let graph = capture.end(FLAGS).unwrap().unwrap();
            let ones = memory.clone_htod(&vec![1f32; 3 * MIB]).unwrap();
            assert_ne!(ones.address(), address);
            replay(&memory, &graph);
            assert_eq!(memory.stream().clone_dtoh(&ones).unwrap()[..2], [1.0, 1.0]);
            drop(graph);
            drop(ones);
            memory.allocator().trim().unwrap();
            assert_eq!(memory.allocator().stats().all.allocations.current, 0);
            // Without a session nobody knows how long: it stays.
            let mut older = alloc::<f32>(&memory, 3 * MIB);
            memory.stream().begin_capture(RELAXED).unwrap();
            memory.stream().memset_zeros(&mut older).unwrap();
            drop(older);
            memory.stream().end_capture(FLAGS).unwrap();
            assert_eq!(memory.allocator().stats().all.allocations.current, 1);
            memory.stream().context().check_err().unwrap();
        });
    });
}

#[test]
fn an_empty_slice_dropped_during_a_capture_leaves_it_alone() {
    let name = "graphs::an_empty_slice_dropped_during_a_capture_leaves_it_alone";
    on_a_device(name, "memory:1GiB", || {
        let memory = memory(&Options::default());
        let mut empty = memory.alloc_zeros::<f32>(0).unwrap();
        memory.stream().memset_zeros(&mut empty).unwrap(); // noted by an event
        memory.stream().begin_capture(RELAXED).unwrap();
        drop(empty);
        memory.stream().context().check_err().unwrap();
        memory.stream().end_capture(FLAGS).unwrap();
    });
}

#[test]
fn i11_a_graph_holds_what_another_has_made_and_it_uses() {
    let name = "graphs::i11_a_graph_holds_what_another_has_made_and_it_uses";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memory = untracked(memory(&Options::default()));
        let capture = memory.capture(&pool_of(&memory), RELAXED).unwrap();
        let mut result = memory.alloc_zeros::<f32>(8 * MIB).unwrap();
        let first = capture.end(FLAGS).unwrap().unwrap();
        let capture = memory.capture(&pool_of(&memory), RELAXED).unwrap();
        memory.stream().memset_zeros(&mut result).unwrap();
        drop(result);
        let second = capture.end(FLAGS).unwrap().unwrap();
        drop(first);
        memory.allocator().trim().unwrap();
        replay(&memory, &second); // into memory that is still there
        drop(second);
        memory.allocator().trim().unwrap();
        assert_eq!(memory.allocator().stats().all.reserved_bytes.current, 0);
        memory.stream().context().check_err().unwrap();
    });
}

#[test]
fn a_pool_lives_as_long_as_its_last_graph_or_slice() {
    let name = "graphs::a_pool_lives_as_long_as_its_last_graph_or_slice";
    on_a_device(name, "memory:1GiB", || {
        let memory = untracked(memory(&Options::default()));
        let held = || {
            memory.allocator().trim().unwrap();
            memory.allocator().stats().all.reserved_bytes.current >> 20
        };
        let pool = pool_of(&memory);
        let (first, address) = fill(&memory, &pool, 8 * MIB);
        // The second shares what the first leaves free.
        let (second, again) = fill(&memory, &pool, 8 * MIB);
        assert_eq!((again, held()), (address, 32));
        let capture = memory.capture(&pool, RELAXED).unwrap();
        let result = memory.alloc_zeros::<f32>(8 * MIB).unwrap();
        let third = capture.end(FLAGS).unwrap().unwrap();
        drop((pool, first, second));
        replay(&memory, &third);
        assert_eq!(held(), 32);
        drop(third);
        assert_eq!(held(), 32, "the result is still there");
        drop(result);
        assert_eq!(held(), 0);
        memory.stream().context().check_err().unwrap();
    });
}

#[test]
fn i11_nothing_is_trimmed_while_a_stream_is_captured() {
    let name = "graphs::i11_nothing_is_trimmed_while_a_stream_is_captured";
    on_a_device(name, "memory:1GiB", || {
        let memory = untracked(memory(&Options::default()));
        drop(alloc::<u8>(&memory, 100 * MIB));
        let pool = pool_of(&memory);
        thread::scope(|scope| {
            let trims = scope.spawn(|| {
                let trims = (0..200).map(|_| memory.allocator().trim());
                trims.filter(Result::is_ok).count()
            });
            for _ in 0..50 {
                let capture = memory.capture(&pool, GLOBAL).unwrap();
                drop(memory.alloc_zeros::<f32>(MIB).unwrap());
                assert!(capture.end(FLAGS).unwrap().is_some(), "the capture is whole");
            }
            trims.join().unwrap();
        });
        let capture = memory.capture(&pool, GLOBAL).unwrap();
        assert!(memory.allocator().trim().is_err());
        drop(capture);
        memory.allocator().trim().unwrap();
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}

#[test]
fn a_capture_that_fails_or_is_abandoned_is_over() {
    let name = "graphs::a_capture_that_fails_or_is_abandoned_is_over";
    on_a_device(name, "memory:1GiB,strict:false", || {
        let tracked = memory(&Options::default());
        let pool = pool_of(&tracked);
        let refused = tracked.capture(&pool, RELAXED);
        assert!(matches!(refused, Err(MemoryError::TracksEvents)));
        let memory = untracked(tracked);
        let other = DeviceMemory::new(memory.stream().context(), &Options::default()).unwrap();
        let refused = memory.capture(&other.graph_pool(), RELAXED);
        assert!(matches!(refused, Err(MemoryError::OtherMemory { ordinal: 0 })));

        let kept = alloc::<u8>(&memory, 3 * MIB);
        let capture = memory.capture(&pool, RELAXED).unwrap();
        assert!(matches!(memory.capture(&pool, RELAXED), Err(MemoryError::Captured)));
        drop(kept);
        drop(memory.alloc_zeros::<u8>(MIB).unwrap());
        drop(capture);
        assert_eq!(memory.allocator().stats().all.allocations.current, 0, "abandoned");

        let capture = memory.capture(&pool, GLOBAL).unwrap();
        let inside = memory.alloc_zeros::<u8>(MIB).unwrap();
        // Not allowed: the capture is broken.
        assert!(memory.stream().synchronize().is_err());
        assert!(capture.end(FLAGS).is_err());
        drop(inside);
        let (graph, _) = fill(&memory, &pool, MIB);
        replay(&memory, &graph);
        // The default stream cannot be captured.
        let context = CudaContext::new(0).unwrap();
        // SAFETY: as above.
        unsafe { context.disable_event_tracking() };
        let device = DeviceMemory::new(&context, &Options::default()).unwrap();
        let default = device.on(&context.default_stream()).unwrap();
        assert!(default.capture(&device.graph_pool(), RELAXED).is_err());
        drop(default.alloc_zeros::<u8>(MIB).unwrap());
        context.check_err().unwrap();
    });
}
