//! Memory embedded in cudarc programs, on the simulated libcuda; skipped where that is not built.
//!
//! Each test is a process of its own: what it needs of the device is asked for before the driver
//! is first called. The example an engine would copy is run here, too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::process::Command;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg, sys};
use drystone::embed::{Buffer, DeviceMemory, EmbedError, StreamMemory};
use drystone::{AllocateError, Backend, Options};
use drystone_testkit::SimCuda;

const MIB: usize = 1 << 20;
const CHILD: &str = "DRYSTONE_EMBED_TEST";
const PASSED: &str = "the test has run";

/// Runs a test's body in a process whose device is as `conf` says.
fn on_a_device(name: &str, conf: &str, body: fn()) {
    if env::var_os(CHILD).is_some() {
        body();
        println!("{PASSED}");
        return;
    }
    if env::var_os("DRYSTONE_SIMCUDA").is_none() {
        eprintln!("{name} skipped: no simulated libcuda; `cargo xtask test` builds it");
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let output = child.env("SIMCUDA_CONF", format!("strict:true,{conf}")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(PASSED), "{name}: {said}\n{errors}");
}

fn memory(options: &Options) -> StreamMemory {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    DeviceMemory::new(stream.context(), options).unwrap().on(&stream).unwrap()
}

fn each_source(test: impl Fn(StreamMemory)) {
    for backend in [Backend::Vmm, Backend::Malloc, Backend::Async] {
        test(memory(&Options::default().with_backend(backend)));
    }
}

/// A kernel of a module that the simulated driver makes up.
fn kernel(stream: &Arc<CudaStream>) -> CudaFunction {
    let module = stream.context().load_module(cudarc::nvrtc::Ptx::from_src(".version 8.0"));
    module.unwrap().load_function("add").unwrap()
}

#[test]
fn a_buffer_goes_wherever_cudarc_takes_a_slice() {
    on_a_device("a_buffer_goes_wherever_cudarc_takes_a_slice", "memory:1GiB,backing:true", || {
        each_source(|memory| {
            let stream = memory.stream();
            let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
            let from = memory.copied(&values).unwrap();
            let mut to = memory.zeros::<f32>(1500).unwrap();
            let middle = from.slice(250..500).unwrap();
            stream.memcpy_dtod(&middle, &mut to.slice_mut(100..350).unwrap()).unwrap();
            let back = stream.clone_dtoh(&to).unwrap();
            assert_eq!(back.len(), 1500);
            assert_eq!((back[99], back[100], back[349], back[350]), (0.0, 250.0, 499.0, 0.0));
            let (kernel, len) = (kernel(stream), 1000u32);
            let mut launch = stream.launch_builder(&kernel);
            launch.arg(&from).arg(&mut to).arg(&len);
            // SAFETY: the made-up kernel does nothing with its arguments.
            unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }.unwrap();
            stream.context().check_err().unwrap();
        });
    });
}

#[test]
fn a_step_makes_no_driver_call_and_no_event_once_the_pool_is_warm() {
    let name = "a_step_makes_no_driver_call_and_no_event_once_the_pool_is_warm";
    on_a_device(name, "memory:1GiB", || {
        let sim = SimCuda::find().unwrap();
        let memory = memory(&Options::default());
        let step = || {
            let hidden = memory.uninitialised::<f32>(4096).unwrap();
            let wide: Buffer<f32> = memory.uninitialised(5 * MIB).unwrap();
            let address = wide.address();
            drop((hidden, wide));
            address
        };
        let first = step();
        let before = sim.calls(0);
        for _ in 0..1000 {
            assert_eq!(step(), first, "what is dropped is the next to be handed out");
        }
        assert_eq!(sim.calls(0), before);
    });
}

#[test]
fn i11_buffers_come_and_go_while_the_stream_is_captured() {
    on_a_device("i11_buffers_come_and_go_while_the_stream_is_captured", "memory:1GiB", || {
        each_source(|memory| {
            let stream = memory.stream();
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            stream.begin_capture(mode).unwrap();
            let kept = memory.zeros::<f32>(3 * MIB).unwrap();
            drop(memory.uninitialised::<u8>(700).unwrap());
            let flags =
                sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).unwrap();
            assert!(graph.is_some(), "the capture is whole");
            graph.unwrap().launch().unwrap();
            stream.synchronize().unwrap();
            drop(kept);
        });
        assert_eq!(SimCuda::find().unwrap().violations(0), [""; 0]);
    });
}

#[test]
fn b01_a_buffer_may_be_used_on_another_stream_that_is_noted() {
    on_a_device("b01_a_buffer_may_be_used_on_another_stream_that_is_noted", "memory:1GiB", || {
        let own = memory(&Options::default());
        let other = own.stream().fork().unwrap();
        let device = DeviceMemory::new(own.stream().context(), &Options::default()).unwrap();
        let (own, other) = (device.on(own.stream()).unwrap(), device.on(&other).unwrap());
        let shared = own.uninitialised::<u8>(3 * MIB).unwrap();
        let address = shared.address();
        other.record_stream(&shared).unwrap();
        let sim = SimCuda::find().unwrap();
        sim.launch(0, other.stream().cu_stream().cast(), 5_000).unwrap();
        drop(shared);
        let next = own.uninitialised::<u8>(3 * MIB).unwrap();
        assert_ne!(next.address(), address, "the other stream is still at work");
        sim.advance_ns(0, 5_000).unwrap();
        drop(next);
        own.allocator().trim().unwrap();
        assert_eq!(sim.violations(0), [""; 0]);
    });
}

#[test]
fn what_would_fit_fits_and_what_would_not_says_why() {
    on_a_device("what_would_fit_fits_and_what_would_not_says_why", "memory:256MiB", || {
        each_source(|memory| {
            let weights = memory.uninitialised::<u8>(100 * MIB).unwrap();
            assert!(memory.would_fit(150 << 20) && !memory.would_fit(157 << 20));
            let EmbedError::Allocate(AllocateError::OutOfMemory(error)) =
                memory.uninitialised::<u8>(157 * MIB).unwrap_err()
            else {
                panic!("out of memory is said otherwise");
            };
            assert_eq!((error.requested_bytes, error.device_bytes), (157 << 20, 256 << 20));
            assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 157.00"));
            // It stays usable, and what is dropped can be had again.
            drop(weights);
            assert!(memory.would_fit(256 << 20));
            drop(memory.uninitialised::<u8>(256 * MIB).unwrap());
            assert!(!memory.would_fit(u64::MAX));
            assert!(memory.uninitialised::<u64>(usize::MAX).is_err());
            assert_eq!(memory.zeros::<f32>(0).unwrap().address(), 0);
            memory.allocator().trim().unwrap();
        });
    });
}

#[test]
fn streams_of_another_device_are_refused() {
    on_a_device("streams_of_another_device_are_refused", "devices:2", || {
        let [first, second] = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let memory = DeviceMemory::new(&first, &Options::default()).unwrap();
        let refused = memory.on(&second.default_stream()).unwrap_err();
        let text = "the stream is one of device 1, the memory one of device 0";
        assert_eq!(refused.to_string(), text);
        // Both default streams have the same handle, and each device has memory of its own (B2).
        let other = DeviceMemory::new(&second, &Options::default()).unwrap();
        let one = memory.on(&first.default_stream()).unwrap().zeros::<u8>(10).unwrap();
        let two = other.on(&second.default_stream()).unwrap().zeros::<u8>(10).unwrap();
        drop((one, two));
        assert_eq!(memory.allocator().stats().all.allocations.total, 1);
    });
}

#[test]
fn i15_nothing_is_left_when_the_engine_is_gone() {
    on_a_device("i15_nothing_is_left_when_the_engine_is_gone", "memory:1GiB", || {
        let sim = SimCuda::find().unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let before = sim.live_objects(0);
        for backend in [Backend::Vmm, Backend::Malloc, Backend::Async] {
            let options = Options::default().with_backend(backend);
            let memory = DeviceMemory::new(stream.context(), &options).unwrap();
            let buffer = memory.on(&stream).unwrap().zeros::<f32>(3 * MIB).unwrap();
            drop(memory);
            // A buffer keeps its allocator.
            assert_ne!(sim.physical_bytes(0), 0);
            drop(buffer);
            assert_eq!((sim.physical_bytes(0), sim.live_objects(0)), (0, before.clone()));
        }
    });
}

#[test]
fn the_example_runs_on_every_source_and_says_what_is_wrong() {
    let Some(libraries) = env::var_os("DRYSTONE_SIMCUDA") else {
        eprintln!("the example skipped: no simulated libcuda; `cargo xtask test` builds it");
        return;
    };
    // Beside the folder of this test's executable.
    let folder = env::current_exe().unwrap().parent().unwrap().with_file_name("examples");
    let run = |conf: &str, steps: &str| {
        let mut example = Command::new(folder.join("inference"));
        example.arg(steps).env("LD_LIBRARY_PATH", &libraries).env("DRYSTONE_CONF", conf);
        example.env("SIMCUDA_CONF", "strict:true,memory:8GiB").output().unwrap()
    };
    for conf in ["backend:vmm,prefer:memory", "backend:malloc", "backend:async"] {
        let output = run(conf, "300");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{conf}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("room for 17408 tokens\n300 tokens; 3072 MiB of weights"), "{said}");
    }
    let output = run("limit:2500MiB", "1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("raise limit or limit_fraction"), "{error}");
}
