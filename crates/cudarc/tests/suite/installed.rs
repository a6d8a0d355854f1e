//! Programs that know cudarc alone, after `install`.

use std::ptr;
use std::sync::{Arc, Barrier};
use std::thread;

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, result};
use drystone::Options;
use drystone_cudarc::{InstallError, install, installed};
use drystone_testkit::SimCuda;
use libloading::os::unix::Library;

use crate::{MIB, count, counts, on_a_device};

fn zeros(stream: &Arc<CudaStream>, len: usize) -> CudaSlice<f32> {
    stream.alloc_zeros(len).unwrap()
}

fn address(slice: &CudaSlice<f32>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

#[test]
fn slices_of_cudarc_come_from_drystone_and_a_hit_asks_nothing() {
    let name = "installed::slices_of_cudarc_come_from_drystone_and_a_hit_asks_nothing";
    on_a_device(name, "memory:1GiB,backing:true", || {
        install(&Options::default()).unwrap();
        // Limits and callbacks may be set before anything is served.
        assert!(installed(0).is_some() && installed(1).is_none());
        let context = CudaContext::new(0).unwrap();
        // SAFETY: there is one stream.
        unsafe { context.disable_event_tracking() };
        let own = context.per_thread_stream();
        for stream in [context.default_stream(), context.new_stream().unwrap(), own] {
            as_it_is(&stream);
        }
    });
}

/// A program's steps, which make no call of the driver once the pool is warm.
fn as_it_is(stream: &Arc<CudaStream>) {
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let slice = stream.clone_htod(&values).unwrap();
    assert_eq!(stream.clone_dtoh(&slice.try_clone().unwrap()).unwrap(), values);
    let mut wide = zeros(stream, 5 * MIB);
    let other = |name: &String| name != "cuCtxGetCurrent";
    let before: Vec<_> = counts().into_iter().filter(|(name, _)| other(name)).collect();
    for _ in 0..100 {
        let first = address(&wide);
        drop(wide);
        // SAFETY: nobody reads it.
        wide = unsafe { stream.alloc(5 * MIB) }.unwrap();
        assert_eq!(address(&wide), first);
    }
    let after: Vec<_> = counts().into_iter().filter(|(name, _)| other(name)).collect();
    assert_eq!(after, before, "no call of the driver");
    assert_eq!((count("cuMemAllocAsync"), count("cuMemFreeAsync")), (0, 0));
    let all = installed(0).unwrap().stats().all;
    assert_eq!((all.allocations.current, all.allocations.total % 103), (2, 0));
    drop((slice, wide));
    installed(0).unwrap().trim().unwrap();
    assert_eq!(SimCuda::find().unwrap().physical_bytes(0), 0);
    stream.context().check_err().unwrap();
}

#[test]
fn b01_streams_of_a_program_as_it_is_stay_ordered() {
    let name = "installed::b01_streams_of_a_program_as_it_is_stay_ordered";
    on_a_device(name, "memory:1GiB,oracle:true", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        let sim = SimCuda::find().unwrap();
        for _ in 0..20 {
            // Also the default stream, and those that come and go.
            let streams = [
                context.default_stream(),
                context.new_stream().unwrap(),
                context.per_thread_stream(),
            ];
            for (at, a) in streams.iter().enumerate() {
                let b = &streams[(at + 1) % 3];
                let mut out = zeros(b, MIB);
                let source = zeros(a, MIB);
                b.memcpy_dtod(&source, &mut out).unwrap();
                sim.launch(0, b.cu_stream().cast(), 50_000).unwrap();
                drop(source);
                drop(zeros(a, MIB));
            }
            let streams = streams.map(|stream| thread::spawn(move || drop(zeros(&stream, MIB))));
            let _ = streams.map(|thread| thread.join().unwrap());
        }
        context.synchronize().unwrap();
        let held = installed(0).unwrap().stats().all.reserved_bytes.peak;
        assert!(held < 200 << 20, "{} MiB", held >> 20);
        assert_eq!(sim.violations(0), [""; 0]);
        context.check_err().unwrap();
    });
}

#[test]
fn i11_in_a_capture_memory_is_the_graphs() {
    let name = "installed::i11_in_a_capture_memory_is_the_graphs";
    on_a_device(name, "memory:1GiB,backing:true,strict:false", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        // SAFETY: there is one stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let mut older = zeros(&stream, MIB);
        drop(zeros(&stream, MIB)); // warm
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        drop(zeros(&stream, MIB));
        stream.memset_zeros(&mut older).unwrap();
        drop(older);
        assert!(context.check_err().is_err(), "refused, as of the driver's own memory");
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().unwrap();
        let ones = [(); 3].map(|()| stream.clone_htod(&vec![1f32; MIB]).unwrap());
        graph.launch().unwrap();
        for ones in ones {
            assert_eq!(stream.clone_dtoh(&ones).unwrap()[..2], [1.0, 1.0]);
        }
        let questions = count("cuStreamIsCapturing");
        drop(zeros(&stream, MIB));
        assert_eq!(count("cuStreamIsCapturing"), questions, "no capture is under way");
        context.check_err().unwrap();
    });
}

/// Threads' own streams have one handle: the end of one's capture, or of none, is not another's.
#[test]
fn b04_threads_capture_their_own_streams() {
    let name = "installed::b04_threads_capture_their_own_streams";
    on_a_device(name, "memory:1GiB,strict:false", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        let (mode, flags) = (
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
        );
        let own = context.per_thread_stream();
        drop(zeros(&own, MIB));
        let turn = Barrier::new(2);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                context.bind_to_thread().unwrap();
                let own = context.per_thread_stream();
                own.begin_capture(mode).unwrap();
                turn.wait();
                turn.wait();
                drop(zeros(&own, MIB));
                drop(own.end_capture(flags).unwrap());
            });
            turn.wait();
            own.begin_capture(mode).unwrap();
            assert!(own.begin_capture(mode).is_err());
            own.context().check_err().unwrap();
            let _ = own.end_capture(flags).unwrap();
            assert!(own.end_capture(flags).is_err(), "none is under way");
            let (calls, served) = (count("cuMemAllocAsync"), total());
            turn.wait();
            other.join().unwrap();
            assert_eq!((count("cuMemAllocAsync"), total()), (calls + 1, served), "the graph's");
        });
        // None is under way: nobody is asked.
        let questions = count("cuStreamIsCapturing");
        drop(zeros(&own, MIB));
        assert_eq!(count("cuStreamIsCapturing"), questions);
    });
}

/// How many blocks Drystone has given.
fn total() -> u64 {
    installed(0).unwrap().stats().all.allocations.total
}

#[test]
fn no_place_for_an_address_is_the_drivers_to_refuse() {
    let name = "installed::no_place_for_an_address_is_the_drivers_to_refuse";
    on_a_device(name, "memory:1GiB,strict:false", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        drop(zeros(&stream, MIB));
        let served = total();
        // SAFETY: refused.
        let refused = unsafe { sys::cuMemAllocAsync(ptr::null_mut(), MIB, stream.cu_stream()) };
        assert_eq!((refused as u32, total()), (1, served), "an invalid value, and nothing is lost");
    });
}

#[test]
fn after_the_first_use_of_cuda_it_is_too_late() {
    let name = "installed::after_the_first_use_of_cuda_it_is_too_late";
    on_a_device(name, "memory:1GiB,strict:false", || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        assert!(matches!(install(&Options::default()), Err(InstallError::TooLate)));
        drop(zeros(&stream, MIB));
        assert!(installed(0).is_none());
        assert_eq!(count("cuMemAllocAsync"), 1);
        stream.context().check_err().unwrap();
    });
}

#[test]
fn memory_that_runs_out_is_said_as_the_driver_says_it() {
    let name = "installed::memory_that_runs_out_is_said_as_the_driver_says_it";
    on_a_device(name, "memory:256MiB,devices:2,strict:false", || {
        install(&Options::default()).unwrap();
        assert!(matches!(install(&Options::default()), Err(InstallError::Twice)));
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        for (ordinal, context) in contexts.iter().enumerate() {
            let stream = context.new_stream().unwrap();
            let weights = zeros(&stream, 32 * MIB);
            let refused = stream.alloc_zeros::<f32>(40 * MIB).unwrap_err();
            assert_eq!(refused.0 as u32, 2, "out of memory");
            drop(weights);
            drop(zeros(&stream, 63 * MIB));
            // Freed by the other call, which waits.
            let address = zeros(&stream, MIB).leak();
            context.bind_to_thread().unwrap();
            // SAFETY: nobody else has it.
            unsafe { result::free_sync(address) }.unwrap();
            // SAFETY: refused, as the driver would.
            assert!(unsafe { result::free_sync(address) }.is_err());
            let all = installed(ordinal).unwrap().stats().all;
            assert_eq!((all.allocations.current, all.allocations.total), (0, 3));
        }
        assert!(installed(2).is_none());
    });
}

/// The driver's own functions of streams, past cudarc, as the CUDA runtime calls them.
struct Unseen {
    create: unsafe extern "C" fn(*mut sys::CUstream, u32) -> u32,
    destroy: unsafe extern "C" fn(sys::CUstream) -> u32,
}

impl Unseen {
    fn find() -> Self {
        // SAFETY: the driver is loaded already.
        let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
        // SAFETY: the function of this name has this type.
        let create = unsafe { driver.get(b"cuStreamCreate") }.unwrap();
        // SAFETY: as above.
        let destroy = unsafe { driver.get(b"cuStreamDestroy_v2") }.unwrap();
        Self { create: *create, destroy: *destroy }
    }

    /// A stream with the handle of one that is no more.
    fn create(&self, handle: usize) -> sys::CUstream {
        let mut stream = ptr::null_mut();
        // SAFETY: there is room for a handle.
        assert_eq!(unsafe { (self.create)(&raw mut stream, 1) }, 0);
        assert_eq!(stream.addr(), handle, "the driver gives handles out again");
        stream
    }

    fn destroy(&self, stream: sys::CUstream) {
        // SAFETY: it is there, and nobody uses it.
        assert_eq!(unsafe { (self.destroy)(stream) }, 0);
    }
}

/// After a stream whose end was seen: its handle, which comes again past cudarc.
fn handle_of_before(context: &Arc<CudaContext>) -> usize {
    let seen = context.new_stream().unwrap();
    drop(zeros(&seen, MIB));
    seen.cu_stream().addr()
}

#[test]
fn b02_a_handle_of_before_that_comes_unseen_is_served() {
    let name = "installed::b02_a_handle_of_before_that_comes_unseen_is_served";
    on_a_device(name, "memory:1GiB,strict:false", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        let handle = handle_of_before(&context);
        let unseen = Unseen::find();
        let stream = unseen.create(handle);
        // Whether streams can be held was tried out with the first request.
        let before = count("cuStreamSynchronize");
        // SAFETY: given back below.
        let block = unsafe { result::malloc_async(stream, MIB) }.unwrap();
        // SAFETY: from above.
        unsafe { result::free_async(block, stream) }.unwrap();
        assert_eq!((count("cuMemAllocAsync"), count("cuStreamSynchronize")), (0, before));
        unseen.destroy(stream);
    });
}

#[test]
fn b02_a_handle_of_before_that_comes_and_goes_unseen_is_a_new_stream() {
    let name = "installed::b02_a_handle_of_before_that_comes_and_goes_unseen_is_a_new_stream";
    on_a_device(name, "memory:1GiB,oracle:true,strict:false", || {
        install(&Options::default()).unwrap();
        let context = CudaContext::new(0).unwrap();
        let handle = handle_of_before(&context);
        let unseen = Unseen::find();
        let sim = SimCuda::find().unwrap();
        // A thread that has met none.
        let come_and_go = move || {
            context.bind_to_thread().unwrap();
            for _ in 0..3 {
                let stream = unseen.create(handle);
                // SAFETY: given back below.
                let block = unsafe { result::malloc_async(stream, MIB) }.unwrap();
                sim.check_alloc(0, block, MIB as u64, stream.cast()).unwrap();
                sim.launch(0, stream.cast(), 50_000_000).unwrap();
                sim.check_use(0, block, stream.cast()).unwrap();
                sim.check_free(0, block).unwrap();
                // SAFETY: from above.
                unsafe { result::free_async(block, stream) }.unwrap();
                unseen.destroy(stream);
            }
            assert_eq!(sim.violations(0), [""; 0]);
        };
        thread::spawn(come_and_go).join().unwrap();
    });
}

/// B22: a stream that another library has made, past cudarc, is captured by cudarc's functions.
#[test]
fn b22_a_capture_of_a_stream_of_others_is_not_broken_by_a_lack_of_memory() {
    let name = "installed::b22_a_capture_of_a_stream_of_others_is_not_broken_by_a_lack_of_memory";
    on_a_device(name, "memory:1GiB,strict:false", || {
        type Create = unsafe extern "C" fn(*mut sys::CUstream, u32) -> sys::CUresult;
        const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        install(&Options::default().with_backend(drystone::Backend::Malloc)).unwrap();
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the streams share nothing.
        unsafe { context.disable_event_tracking() };
        let [other, third] = [context.new_stream().unwrap(), context.new_stream().unwrap()];
        let (mut theirs, mut block, mut graph) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the driver, which is loaded.
        let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
        // SAFETY: its signature.
        let create = unsafe { driver.get::<Create>(b"cuStreamCreate\0") }.unwrap();
        // SAFETY: as the runtime calls it; there is room for what is written.
        unsafe { create(&raw mut theirs, 1) }.result().unwrap();
        // SAFETY: the same.
        unsafe { sys::cuMemAllocAsync(&raw mut block, MIB, theirs) }.result().unwrap();
        drop(zeros(&other, 175 * MIB));
        assert!(total() > 1, "served");
        SimCuda::find().unwrap().launch(0, other.cu_stream().cast(), 1_000_000).unwrap();
        // SAFETY: the stream is there.
        unsafe { sys::cuStreamBeginCapture_v2(theirs, RELAXED) }.result().unwrap();
        let asked = third.alloc_zeros::<f32>(200 * MIB).map(drop);
        // SAFETY: as above.
        let ended = unsafe { sys::cuStreamEndCapture(theirs, &raw mut graph) }.result();
        assert!(ended.is_ok(), "the capture is broken: {ended:?}; the request: {asked:?}");
    });
}
