//! Safe calls that mean harm: drops on other threads, while a panic unwinds and never, growables
//! that shrink while another stream reads them, one pool for graphs of several streams.
//!
//! What each slice contains is known, and looked at from either stream.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::{mem, thread};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DeviceSlice};
use drystone::{Options, Prefer};
use drystone_cudarc::{
    Alloc, DeviceMemory, Graph, Growable, MemoryError, PooledSlice, StreamMemory,
};
use drystone_testkit::SimCuda;

use crate::random::Random;
use crate::{MIB, memory, on_a_device};

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const FLAGS: CUgraphInstantiate_flags =
    CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
/// So small that requests are refused, and memory is remapped.
const TIGHT: &str = "memory:64MiB,backing:true,oracle:true,kernel_us:50,check_kernel_us:200";
const SEEDS: u64 = 4;

/// A slice, and what all of it contains.
type Known = (PooledSlice<u32>, u32);

fn contains<S: DevicePtr<u32>>(stream: &Arc<CudaStream>, slice: &S, value: u32) {
    let found = stream.clone_dtoh(slice).unwrap();
    assert!(found.iter().all(|&one| one == value), "{:?} is not {value}", found.first());
}

/// Ends a slice's life in one of the ways that safe code has.
fn end(slice: PooledSlice<u32>, random: &mut Random) {
    match random.below(16) {
        0..=3 => thread::spawn(|| drop(slice)).join().unwrap(),
        4..=6 => {
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _slice = slice;
                resume_unwind(Box::new("on purpose"));
            }));
            assert!(unwound.is_err());
        }
        7 if slice.num_bytes() < MIB => mem::forget(slice),
        _ => drop(slice),
    }
}

/// One call of a growable's, and a look at what it contains afterwards.
fn grow_or_shrink(
    cache: &mut Growable<u32>,
    random: &mut Random,
    streams: &[Arc<CudaStream>; 2],
    value: u32,
) {
    let len = random.below(2 * MIB);
    let reader = &streams[random.below(2)];
    if len < cache.len() {
        // Read elsewhere up to now.
        let view = cache.slice(..);
        drop(reader.clone_dtoh(&view).unwrap());
        cache.shrink_to(len).unwrap();
    } else if cache.grow_zeros_to(len).is_err() {
        return; // Out of memory: there are as many as before.
    }
    let len = cache.len();
    streams[random.below(2)].memcpy_htod(&vec![value; len], &mut cache.slice_mut(..)).unwrap();
    contains(reader, &cache.slice(..), value);
}

/// A program of random safe calls on two streams, with cudarc's tracking.
fn run(seed: u64, prefer: Prefer) {
    println!("seed {seed}, {prefer:?}");
    let mut random = Random(seed);
    let context = CudaContext::new(0).unwrap();
    let streams = [(); 2].map(|()| context.new_stream().unwrap());
    let device = DeviceMemory::new(&context, &Options::default().with_prefer(prefer)).unwrap();
    let memories = streams.each_ref().map(|stream| device.on(stream).unwrap());
    let mut cache = memories[0].reserve::<u32>(2 * MIB).unwrap();
    let mut live: Vec<Known> = Vec::new();
    for value in 1..250 {
        let at = random.below(2);
        let stream = &streams[at];
        let found = random.below(live.len().max(1));
        match random.below(10) {
            0..=2 => {
                let values = vec![value; 1 + random.below(MIB)];
                live.extend(memories[at].clone_htod(&values).ok().map(|slice| (slice, value)));
            }
            3 if !live.is_empty() => {
                let copy = memories[at].clone_dtod(&live[found].0).ok();
                let value = live[found].1;
                live.extend(copy.map(|slice| (slice, value)));
            }
            4 if !live.is_empty() => end(live.swap_remove(found).0, &mut random),
            5 if !live.is_empty() => {
                let (slice, contents) = &mut live[found];
                let (front, back) = (vec![value; slice.len() / 2], slice.len().div_ceil(2));
                let (mut first, mut second) = slice.split_at_mut(front.len());
                stream.memcpy_htod(&front, &mut first).unwrap();
                streams[1 - at].memcpy_htod(&vec![value; back], &mut second).unwrap();
                *contents = value;
            }
            6 => grow_or_shrink(&mut cache, &mut random, &streams, value),
            7 if random.below(4) == 0 => drop(device.allocator().trim().unwrap()),
            7 => SimCuda::find().unwrap().advance_ns(0, 100_000).unwrap(),
            8 => {
                // A stream that ends before its memory does.
                let fork = stream.fork().unwrap();
                let made = device.on(&fork).unwrap().clone_htod(&vec![value; random.below(MIB)]);
                live.extend(made.ok().map(|slice| (slice, value)));
            }
            _ if !live.is_empty() => contains(stream, &live[found].0, live[found].1),
            _ => {}
        }
    }
    live.iter().for_each(|(slice, value)| contains(&streams[0], slice, *value));
    context.check_err().unwrap();
    drop((cache, live));
    // What was forgotten keeps its allocator.
    device.allocator().trim().unwrap();
    assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0], "seed {seed}");
}

#[test]
fn i11_safe_calls_on_two_streams_corrupt_nothing() {
    on_a_device("hostile::i11_safe_calls_on_two_streams_corrupt_nothing", TIGHT, || {
        for seed in 0..SEEDS {
            for prefer in [Prefer::default(), Prefer::Memory] {
                run(seed, prefer);
            }
        }
    });
}

/// A capture in which slices of before are dropped, here and elsewhere; it may be left by a panic.
fn capture(
    memory: &StreamMemory,
    pool: &drystone_cudarc::GraphPool,
    random: &mut Random,
    live: &mut Vec<Known>,
) -> Option<Graph> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let session = memory.capture(pool, RELAXED).unwrap();
        for _ in 0..random.below(4) {
            if let Ok(scratch) = memory.alloc_zeros::<u32>(1 + random.below(MIB)) {
                end(scratch, random);
            }
        }
        if !live.is_empty() {
            let mut older = live.swap_remove(random.below(live.len())).0;
            memory.stream().memset_zeros(&mut older).unwrap();
            end(older, random);
        }
        if random.below(4) == 0 {
            resume_unwind(Box::new("on purpose"));
        }
        session.end(FLAGS).unwrap()
    }));
    result.ok().flatten()
}

#[test]
fn i11_graphs_that_share_a_pool_leave_all_other_memory_alone() {
    let name = "hostile::i11_graphs_that_share_a_pool_leave_all_other_memory_alone";
    on_a_device(name, "memory:256MiB,backing:true", || {
        for seed in 0..SEEDS {
            println!("seed {seed}");
            let memory = memory(&Options::default());
            // SAFETY: there is one stream.
            unsafe { memory.stream().context().disable_event_tracking() };
            let mut random = Random(seed);
            let pool = memory.device().graph_pool();
            let (mut live, mut graphs): (Vec<Known>, Vec<Graph>) = Default::default();
            for value in 1..120 {
                match random.below(6) {
                    0 | 1 => {
                        let made = memory.clone_htod(&vec![value; 1 + random.below(MIB)]);
                        live.extend(made.ok().map(|slice| (slice, value)));
                    }
                    2 if !live.is_empty() => {
                        end(live.swap_remove(random.below(live.len())).0, &mut random);
                    }
                    3 => graphs.extend(capture(&memory, &pool, &mut random, &mut live)),
                    4 if !graphs.is_empty() => {
                        drop(graphs.swap_remove(random.below(graphs.len())));
                    }
                    _ => {
                        graphs.iter().for_each(|graph| graph.launch().unwrap());
                        let stream = memory.stream();
                        live.iter().for_each(|(slice, value)| contains(stream, slice, *value));
                    }
                }
            }
            memory.stream().context().check_err().unwrap();
            drop((live, graphs, pool));
            memory.allocator().trim().unwrap();
        }
    });
}

#[test]
fn i11_graphs_of_two_streams_share_no_scratch() {
    // Room for the scratch of one.
    on_a_device("hostile::i11_graphs_of_two_streams_share_no_scratch", "memory:48MiB", || {
        let first = memory(&Options::default().with_prefer(Prefer::Memory));
        // SAFETY: nothing is used on both streams.
        unsafe { first.stream().context().disable_event_tracking() };
        let second = first.device().on(&first.stream().fork().unwrap()).unwrap();
        let pool = first.device().graph_pool();
        let scratch = |memory: &StreamMemory| {
            let session = memory.capture(&pool, RELAXED)?;
            let address = memory.alloc_zeros::<u32>(8 * MIB)?.address();
            Ok::<_, MemoryError>((session.end(FLAGS)?.unwrap(), address))
        };
        let (graph, address) = scratch(&first).unwrap();
        graph.launch().unwrap();
        first.stream().synchronize().unwrap();
        // Launches on two streams wait for nobody: it may not have what is idle at the moment.
        let refused = scratch(&second).map(|(_, other)| other);
        assert!(matches!(refused, Err(MemoryError::Allocate(_))), "{refused:?}");
        assert_eq!(scratch(&first).unwrap().1, address);
    });
}
