//! A program over cudarc's safe layer, unchanged: contexts, streams, slices, a kernel.

use crate::program::passes_alone;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

#[test]
fn a_cudarc_program_runs() {
    passes_alone("backing:true,kernel_us:5", || {
        let context = CudaContext::new(0).unwrap();
        assert_eq!(context.compute_capability().unwrap(), (9, 0));
        let stream = context.new_stream().unwrap();
        let sent: Vec<f32> = (0..1000).map(|index| index as f32).collect();
        let device = stream.clone_htod(&sent).unwrap();
        let mut zeroes = stream.alloc_zeros::<f32>(1000).unwrap();
        let module = context.load_module(Ptx::from_src("")).unwrap();
        let kernel = module.load_function("add").unwrap();
        let start = context.new_event(Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT));
        let start = start.unwrap();
        start.record(&stream).unwrap();
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&device).arg(&mut zeroes);
        // SAFETY: the kernel does nothing.
        unsafe { launch.launch(LaunchConfig::for_num_elems(1000)) }.unwrap();
        let flags = Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT);
        let end = stream.record_event(flags).unwrap();
        assert_eq!(start.elapsed_ms(&end).unwrap(), 0.005);
        assert_eq!(stream.clone_dtoh(&device).unwrap(), sent);
        assert_eq!(stream.clone_dtoh(&zeroes).unwrap(), vec![0.0; 1000]);
        stream.synchronize().unwrap();
    });
}
