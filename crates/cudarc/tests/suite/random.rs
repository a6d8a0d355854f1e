//! Safe programs, made up: streams that share slices under the oracle, graphs that replay over
//! memory whose contents are known.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};
use drystone::{Backend, Options, Prefer};
use drystone_cudarc::{Alloc, DeviceMemory, Graph, PooledSlice, StreamMemory, install};
use drystone_testkit::SimCuda;

use crate::{MIB, memory, on_a_device};

/// Numbers that look random, the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Slices come and go on two streams, and each stream uses those of the other.
///
/// Of reads cudarc notes the last alone: one on another stream than that before is made a write.
fn share<S: DevicePtr<u8> + DevicePtrMut<u8>>(
    seed: u64,
    streams: &[Arc<CudaStream>; 2],
    alloc: impl Fn(usize, usize) -> S,
) {
    let sim = SimCuda::find().unwrap();
    let mut random = Random(seed);
    let mut live: Vec<(S, u64, Option<usize>)> = Vec::new();
    // The oracle has every stream that used it use it once more, which cudarc is to note.
    let free = |(mut slice, address, _): (S, u64, Option<usize>)| {
        let other = usize::from(slice.stream() == &streams[0]);
        let (_, guard) = slice.device_ptr_mut(&streams[other]);
        sim.check_free(0, address).unwrap();
        drop(guard);
        drop(slice);
    };
    for _ in 0..400 {
        let at = random.below(2);
        let stream = &streams[at];
        let handle = stream.cu_stream().cast();
        match random.below(5) {
            0 | 1 if live.len() < 12 => {
                let len = 1 + random.below(40 * MIB);
                let mut slice = alloc(at, len);
                let (address, guard) = slice.device_ptr_mut(stream);
                sim.check_alloc(0, address, len as u64, handle).unwrap();
                drop(guard);
                live.push((slice, address, None));
            }
            0..=2 if !live.is_empty() => free(live.swap_remove(random.below(live.len()))),
            _ if !live.is_empty() => {
                let found = random.below(live.len());
                let (slice, address, reader) = &mut live[found];
                let is_read = random.below(2) == 0 && reader.is_none_or(|reader| reader == at);
                *reader = is_read.then_some(at);
                let (_, guard) = match is_read {
                    true => slice.device_ptr(stream),
                    false => slice.device_ptr_mut(stream),
                };
                sim.check_use(0, *address, handle).unwrap();
                drop(guard);
            }
            _ => sim.advance_ns(0, 100_000).unwrap(),
        }
    }
    live.into_iter().for_each(free);
    streams[0].context().check_err().unwrap();
    assert_eq!(sim.violations(0), [""; 0]);
}

const SHARED: &str = "memory:1GiB,oracle:true,kernel_us:50,check_kernel_us:200";

fn two_streams() -> [Arc<CudaStream>; 2] {
    let context = CudaContext::new(0).unwrap();
    [(); 2].map(|()| context.new_stream().unwrap())
}

#[test]
fn b01_slices_of_ours_that_streams_share_are_never_reused_early() {
    let name = "random::b01_slices_of_ours_that_streams_share_are_never_reused_early";
    on_a_device(name, SHARED, || {
        for prefer in [Prefer::default(), Prefer::Memory] {
            let streams = two_streams();
            let options = Options::default().with_prefer(prefer);
            let device = DeviceMemory::new(streams[0].context(), &options).unwrap();
            let memories = streams.each_ref().map(|stream| device.on(stream).unwrap());
            for seed in 0..5 {
                share(seed, &streams, |at, len| memories[at].alloc_zeros::<u8>(len).unwrap());
            }
        }
    });
}

#[test]
fn b01_slices_of_cudarc_that_streams_share_are_never_reused_early() {
    let name = "random::b01_slices_of_cudarc_that_streams_share_are_never_reused_early";
    on_a_device(name, SHARED, || {
        install(&Options::default().with_prefer(Prefer::Memory)).unwrap();
        for seed in 0..10 {
            let streams = two_streams();
            share(seed, &streams, |at, len| streams[at].alloc_zeros::<u8>(len).unwrap());
        }
    });
}

/// A slice, and what all of it is to contain.
type Known = (PooledSlice<u32>, u32);

/// A graph that fills with zeros: scratch, an older slice, and a slice that outlives the capture.
fn capture(memory: &StreamMemory, random: &mut Random, live: &mut Vec<Known>) -> Graph {
    let pool = memory.device().graph_pool();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let session = memory.capture(&pool, mode).unwrap();
    for _ in 0..random.below(4) {
        drop(memory.alloc_zeros::<u32>(1 + random.below(MIB)).unwrap());
    }
    if !live.is_empty() && random.below(2) == 0 {
        let mut older = live.swap_remove(random.below(live.len())).0;
        memory.stream().memset_zeros(&mut older).unwrap();
    }
    let result = memory.alloc_zeros::<u32>(1 + random.below(MIB)).unwrap();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = session.end(flags).unwrap().unwrap();
    graph.launch().unwrap();
    live.push((result, 0));
    graph
}

#[test]
fn i11_replays_change_nothing_but_what_is_theirs() {
    let name = "random::i11_replays_change_nothing_but_what_is_theirs";
    on_a_device(name, "memory:1GiB,backing:true", || {
        // With the driver's own pools, what a capture asks for ends with its graph.
        for backend in [Backend::Vmm, Backend::Malloc] {
            let memory = memory(&Options::default().with_backend(backend));
            // SAFETY: there is one stream.
            unsafe { memory.stream().context().disable_event_tracking() };
            let mut random = Random(1);
            let (mut live, mut graphs): (Vec<Known>, Vec<Graph>) = Default::default();
            for value in 1..150 {
                match random.below(6) {
                    0 | 1 => {
                        let values = vec![value; 1 + random.below(MIB)];
                        live.push((memory.clone_htod(&values).unwrap(), value));
                    }
                    2 if !live.is_empty() => drop(live.swap_remove(random.below(live.len()))),
                    3 if graphs.len() < 5 => {
                        graphs.push(capture(&memory, &mut random, &mut live));
                    }
                    3 => drop(graphs.swap_remove(random.below(graphs.len()))),
                    4 if random.below(4) == 0 => drop(memory.allocator().trim().unwrap()),
                    _ if !graphs.is_empty() => {
                        graphs[random.below(graphs.len())].launch().unwrap();
                        for (slice, value) in &live {
                            let found = memory.stream().clone_dtoh(slice).unwrap();
                            assert!(found.iter().all(|one| one == value), "not {value}");
                        }
                    }
                    _ => {}
                }
            }
            memory.stream().context().check_err().unwrap();
        }
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}
