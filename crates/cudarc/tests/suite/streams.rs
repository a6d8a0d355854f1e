//! Streams: cudarc orders them for our slices as for its own; those of others are refused.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};
use drystone::Options;
use drystone_cudarc::{Alloc, DeviceMemory, MemoryError};
use drystone_testkit::SimCuda;

use crate::{MIB, alloc, count, memory, on_a_device};

/// One stream copies what another has filled; then its memory is wanted again.
fn two_streams<S: DevicePtr<f32> + DevicePtrMut<f32>>(
    [a, b]: &[Arc<CudaStream>; 2],
    zeros: impl Fn(&Arc<CudaStream>) -> S,
) -> (u64, u64) {
    let counts = || (count("cuStreamWaitEvent"), count("cuEventRecord"));
    let before = counts();
    let mut out = zeros(b);
    let source = zeros(a);
    b.memcpy_dtod(&source, &mut out).unwrap();
    drop(source);
    drop(zeros(a));
    drop(out);
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn b01_streams_wait_for_each_other_as_with_slices_of_cudarc() {
    let name = "streams::b01_streams_wait_for_each_other_as_with_slices_of_cudarc";
    on_a_device(name, "memory:1GiB", || {
        let context = CudaContext::new(0).unwrap();
        let streams = [context.new_stream().unwrap(), context.new_stream().unwrap()];
        let own = two_streams(&streams, |stream| stream.alloc_zeros::<f32>(MIB).unwrap());
        assert!(own.0 > 10 && own.1 > 3, "{own:?}");
        let device = DeviceMemory::new(&context, &Options::default()).unwrap();
        let memories = streams.each_ref().map(|stream| device.on(stream).unwrap());
        let pooled = two_streams(&streams, |stream| {
            let memory = memories.iter().find(|memory| memory.stream() == stream).unwrap();
            memory.alloc_zeros::<f32>(MIB).unwrap()
        });
        assert_eq!(pooled, own, "waits and records");
        context.check_err().unwrap();
    });
}

#[test]
fn b01_without_tracking_a_noted_use_is_waited_for() {
    let name = "streams::b01_without_tracking_a_noted_use_is_waited_for";
    on_a_device(name, "memory:1GiB", || {
        let own = memory(&Options::default());
        // SAFETY: the streams are ordered below.
        unsafe { own.stream().context().disable_event_tracking() };
        let device = DeviceMemory::new(own.stream().context(), &Options::default()).unwrap();
        let other = device.on(&own.stream().fork().unwrap()).unwrap();
        let foreign = alloc::<u8>(&own, 1);
        assert!(matches!(other.record_stream(&foreign), Err(MemoryError::OtherMemory { .. })));
        let own = device.on(own.stream()).unwrap();
        let shared = alloc::<u8>(&own, 3 * MIB);
        let address = shared.address();
        other.record_stream(&shared).unwrap();
        let sim = SimCuda::find().unwrap();
        sim.launch(0, other.stream().cu_stream().cast(), 5_000).unwrap();
        drop(shared);
        let next = alloc::<u8>(&own, 3 * MIB);
        assert_ne!(next.address(), address, "the other stream is still at work");
        sim.advance_ns(0, 5_000).unwrap();
        drop(next);
        own.allocator().trim().unwrap();
        assert_eq!(sim.violations(0), [""; 0]);
    });
}

#[test]
fn memory_of_a_stream_that_is_gone_serves_the_next() {
    let name = "streams::memory_of_a_stream_that_is_gone_serves_the_next";
    on_a_device(name, "memory:1GiB", || {
        let context = CudaContext::new(0).unwrap();
        let device = DeviceMemory::new(&context, &Options::default()).unwrap();
        for _ in 0..20 {
            let memory = device.on(&context.new_stream().unwrap()).unwrap();
            let again = device.on(memory.stream()).unwrap();
            let slice = memory.alloc_zeros::<u8>(200 * MIB).unwrap();
            drop((memory, slice));
            // One handle less is not the last.
            drop(again.alloc_zeros::<u8>(200 * MIB).unwrap());
            context.synchronize().unwrap();
        }
        let held = device.allocator().stats().all.reserved_bytes.peak;
        assert!(held <= 400 << 20, "{} MiB", held >> 20);
        context.check_err().unwrap();
    });
}

#[test]
fn streams_of_another_device_are_refused() {
    on_a_device("streams::streams_of_another_device_are_refused", "devices:2", || {
        let [first, second] = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let memory = DeviceMemory::new(&first, &Options::default()).unwrap();
        let refused = memory.on(&second.default_stream()).unwrap_err();
        let text = "the stream is one of device 1, the memory one of device 0";
        assert_eq!(refused.to_string(), text);
        // Both default streams have the same handle, and each device has memory of its own (B2).
        let other = DeviceMemory::new(&second, &Options::default()).unwrap();
        let one = memory.on(&first.default_stream()).unwrap().alloc_zeros::<u8>(10).unwrap();
        let of_second = other.on(&second.default_stream()).unwrap();
        assert!(matches!(
            of_second.record_stream(&one),
            Err(MemoryError::OtherMemory { ordinal: 0 })
        ));
        let two = of_second.alloc_zeros::<u8>(10).unwrap();
        drop((one, two));
        assert_eq!(memory.allocator().stats().all.allocations.total, 1);
    });
}
