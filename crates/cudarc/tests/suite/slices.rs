//! Slices: where they go, what they cost, what would fit, what is left.

use std::env;
use std::process::Command;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use drystone::{AllocateError, Backend, Options};
use drystone_cudarc::{Alloc, DeviceMemory, MemoryError};
use drystone_testkit::SimCuda;

use crate::{MIB, alloc, counts, each_source, kernel, memory, on_a_device};

#[test]
fn a_slice_goes_wherever_cudarc_takes_one() {
    let name = "slices::a_slice_goes_wherever_cudarc_takes_one";
    on_a_device(name, "memory:1GiB,backing:true", || {
        each_source(|memory| {
            let stream = memory.stream();
            let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
            let from = memory.clone_htod(&values).unwrap();
            let mut to = memory.alloc_zeros::<f32>(1500).unwrap();
            let middle = from.slice(250..500);
            stream.memcpy_dtod(&middle, &mut to.slice_mut(100..350)).unwrap();
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
fn a_step_asks_only_whether_it_is_captured_once_the_pool_is_warm() {
    let name = "slices::a_step_asks_only_whether_it_is_captured_once_the_pool_is_warm";
    on_a_device(name, "memory:1GiB", || {
        let memory = memory(&Options::default());
        // SAFETY: there is one stream.
        unsafe { memory.stream().context().disable_event_tracking() };
        let step = || {
            let hidden = alloc::<f32>(&memory, 4096);
            let wide = alloc::<f32>(&memory, 5 * MIB);
            let address = wide.address();
            drop((hidden, wide));
            address
        };
        let first = step();
        let others = || {
            let mut counts = counts();
            let captured = counts.remove("cuStreamIsCapturing").unwrap();
            counts.remove("cuCtxGetCurrent");
            (captured, counts)
        };
        let (captured, before) = others();
        for _ in 0..1000 {
            assert_eq!(step(), first, "what is dropped is the next to be handed out");
        }
        assert_eq!(others(), (captured + 4000, before));
    });
}

#[test]
fn what_would_fit_fits_and_what_would_not_says_why() {
    let name = "slices::what_would_fit_fits_and_what_would_not_says_why";
    on_a_device(name, "memory:256MiB", || {
        each_source(|memory| {
            let weights = alloc::<u8>(&memory, 100 * MIB);
            assert!(memory.would_fit(150 << 20) && !memory.would_fit(157 << 20));
            let refused = memory.alloc_zeros::<u8>(157 * MIB).unwrap_err();
            let MemoryError::Allocate(AllocateError::OutOfMemory(error)) = refused else {
                panic!("out of memory is said otherwise");
            };
            assert_eq!((error.requested_bytes, error.device_bytes), (157 << 20, 256 << 20));
            assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 157.00"));
            // It stays usable, and what is dropped can be had again.
            drop(weights);
            assert!(memory.would_fit(256 << 20));
            drop(alloc::<u8>(&memory, 256 * MIB));
            assert!(!memory.would_fit(u64::MAX));
            assert!(memory.alloc_zeros::<u64>(usize::MAX).is_err());
            assert_eq!(memory.alloc_zeros::<f32>(0).unwrap().address(), 0);
            memory.allocator().trim().unwrap();
        });
    });
}

#[test]
fn i15_nothing_is_left_when_the_engine_is_gone() {
    let name = "slices::i15_nothing_is_left_when_the_engine_is_gone";
    on_a_device(name, "memory:1GiB", || {
        let sim = SimCuda::find().unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let before = sim.live_objects(0);
        for backend in [Backend::Vmm, Backend::Malloc, Backend::Async] {
            let options = Options::default().with_backend(backend);
            let memory = DeviceMemory::new(stream.context(), &options).unwrap();
            let slice = memory.on(&stream).unwrap().alloc_zeros::<f32>(3 * MIB).unwrap();
            drop(memory);
            // A slice keeps its allocator.
            assert_ne!(sim.physical_bytes(0), 0);
            drop(slice);
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
    for conf in ["backend:vmm,prefer:memory", "backend:malloc"] {
        let output = run(conf, "300");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{conf}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("room for 17") && said.contains("\n300 tokens; "), "{said}");
    }
    let output = run("backend:async", "1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("vmm and malloc go together, async stands alone"), "{error}");
    let output = run("limit:2500MiB", "1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("raise limit or limit_fraction"), "{error}");
}
