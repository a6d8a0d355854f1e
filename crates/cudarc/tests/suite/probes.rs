//! What engines do with a `CudaSlice`: each compiles for ours, and means the same.

use cudarc::driver::{
    CudaSlice, CudaView, CudaViewMut, DeviceRepr, DeviceSlice, LaunchConfig, PushKernelArg,
};
use drystone::Options;
use drystone_cudarc::{Alloc, DeviceAllocator, PooledSlice};

use crate::{kernel, memory, on_a_device};

/// An engine's own element: quantised weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantised {
    scale: half::f16,
    values: [u8; 16],
}

// SAFETY: plain numbers in the layout of C.
unsafe impl DeviceRepr for Quantised {}

/// How many elements a function of another crate sees.
fn seen<T>(slice: &CudaSlice<T>) -> usize {
    slice.len()
}

fn seen_in_view<T>(view: &CudaView<'_, T>) -> usize {
    view.len()
}

fn sixteen_zeros(allocator: &dyn DeviceAllocator) -> PooledSlice<u16> {
    allocator.alloc_zeros(16).unwrap()
}

#[test]
fn a_slice_is_one_of_cudarc_to_whoever_reads() {
    let name = "probes::a_slice_is_one_of_cudarc_to_whoever_reads";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memory = memory(&Options::default());
        let stream = memory.stream();
        let values: Vec<u32> = (0..64).collect();
        let slice = memory.clone_htod(&values).unwrap();
        assert_eq!((seen(&slice), seen_in_view(&slice.slice(8..16))), (64, 8));
        assert_eq!((slice.num_bytes(), slice.ordinal()), (256, 0));
        assert!(slice.try_slice(60..65).is_none());
        let (front, back) = slice.split_at(16);
        assert_eq!((front.len(), stream.clone_dtoh(&back).unwrap()[0]), (16, 16));
        // SAFETY: any bytes are a byte.
        let bytes = unsafe { slice.transmute::<u8>(8) }.unwrap();
        assert_eq!(stream.clone_dtoh(&bytes).unwrap(), [0, 0, 0, 0, 1, 0, 0, 0]);
        stream.context().check_err().unwrap();
    });
}

#[test]
fn a_slice_is_written_as_one_of_cudarc() {
    let name = "probes::a_slice_is_written_as_one_of_cudarc";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memory = memory(&Options::default());
        let stream = memory.stream();
        let mut slice = memory.alloc_zeros::<u32>(64).unwrap();
        let (mut front, mut back): (CudaViewMut<'_, u32>, _) = slice.split_at_mut(32);
        stream.memcpy_htod(&[1; 32], &mut front).unwrap();
        stream.memcpy_dtod(&front, &mut back).unwrap();
        // SAFETY: bytes of numbers.
        let mut bytes = unsafe { slice.transmute_mut::<u8>(256) }.unwrap();
        stream.memcpy_htod(&[2], &mut bytes.slice_mut(4..5)).unwrap();
        assert!(slice.try_slice_mut(64..65).is_none() && slice.try_split_at_mut(65).is_none());
        let back = stream.clone_dtoh(&slice).unwrap();
        assert_eq!((back[0], back[1], back[2], back[63]), (1, 2, 1, 1));
        let (kernel, part) = (kernel(stream), slice.slice(8..16));
        let mut out = slice.try_clone().unwrap();
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&slice).arg(&mut out).arg(&part);
        // SAFETY: the made-up kernel does nothing with its arguments.
        unsafe { launch.launch(LaunchConfig::for_num_elems(64)) }.unwrap();
        stream.context().check_err().unwrap();
    });
}

#[test]
fn copies_stay_in_drystone() {
    on_a_device("probes::copies_stay_in_drystone", "memory:1GiB,backing:true", || {
        let memory = memory(&Options::default());
        let live = || memory.allocator().stats().all.allocations.current;
        let slice = memory.clone_htod(&[7u8; 100]).unwrap();
        let copies =
            [slice.try_clone().unwrap(), memory.clone_dtod(&slice).unwrap(), slice.clone()];
        assert_eq!(live(), 4);
        for copy in &copies {
            assert_eq!(memory.stream().clone_dtoh(copy).unwrap(), [7; 100]);
        }
        let part = memory.clone_dtod(&slice.slice(90..)).unwrap();
        assert_eq!((part.len(), live()), (10, 5));
        // And what cudarc has allocated stays cudarc's, under the same type.
        let other: PooledSlice<u8> = memory.stream().clone_dtod(&slice).unwrap().into();
        let copy = other.try_clone().unwrap();
        assert_eq!(live(), 5);
        assert_eq!(memory.stream().clone_dtoh(&copy).unwrap(), [7; 100]);
        drop((slice, copies, part, other, copy));
        assert_eq!(live(), 0);
        memory.stream().context().check_err().unwrap();
    });
}

#[test]
fn elements_are_whatever_cudarc_takes() {
    let name = "probes::elements_are_whatever_cudarc_takes";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memory = memory(&Options::default());
        let weights = [Quantised { scale: half::f16::ONE, values: [3; 16] }; 5];
        let slice = memory.clone_htod(&weights).unwrap();
        assert_eq!(memory.stream().clone_dtoh(&slice).unwrap(), weights);
        memory.alloc_zeros::<half::bf16>(64).unwrap();
        memory.alloc_zeros::<[f32; 4]>(64).unwrap();
        memory.alloc_zeros::<bool>(64).unwrap();
        assert_eq!(sixteen_zeros(&memory).len(), 16);
        // A block is memory without a type.
        let block = memory.allocate(8 * 18).unwrap();
        // SAFETY: it has room for eight, which are written before anybody reads.
        let mut eight = unsafe { PooledSlice::<Quantised>::over(block, 8) }.unwrap();
        memory.stream().memcpy_htod(&weights, &mut eight).unwrap();
        std::thread::spawn(move || drop(eight)).join().unwrap();
        memory.stream().context().check_err().unwrap();
    });
}
