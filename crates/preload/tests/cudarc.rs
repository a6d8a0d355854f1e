//! An engine on cudarc, which knows nothing of the library that is preloaded to it: the shapes of
//! its batches vary, and its slices come and go on two streams, as in a transformer's layers.
//!
//! The engine is this program, run again with the library and without; on a GPU `cargo xtask gpu`
//! runs it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{array, env};

use common::library;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use drystone_testkit::SimCuda;
use drystone_testkit::{describe, simulated_cuda};

const ENGINE: &str = "DRYSTONE_TEST_ENGINE";
const BATCHES: usize = 40;
const LAYERS: usize = 12;
const WIDTH: usize = 768;
const HEADS: usize = 12;

/// Slices of one batch, and what all slices at once have asked for at most.
struct Engine {
    stream: Arc<CudaStream>,
    asked_bytes: usize,
    peak_bytes: usize,
}

impl Engine {
    fn slice(&mut self, len: usize) -> CudaSlice<f32> {
        self.asked_bytes += 4 * len;
        self.peak_bytes = self.peak_bytes.max(self.asked_bytes);
        self.stream.alloc_zeros(len).unwrap()
    }

    fn drop(&mut self, slice: CudaSlice<f32>) {
        self.asked_bytes -= 4 * slice.len();
    }

    fn layer(&mut self, batch: usize, len: usize, input: CudaSlice<f32>) -> CudaSlice<f32> {
        let wide = batch * len * WIDTH;
        let [query, key, value]: [_; 3] = array::from_fn(|_| self.slice(wide));
        let scores = self.slice(batch * HEADS * len * len);
        self.drop(query);
        self.drop(key);
        let weights = self.slice(batch * HEADS * len * len);
        self.drop(scores);
        let attended = self.slice(wide);
        self.drop(weights);
        self.drop(value);
        self.drop(input);
        let inner = self.slice(4 * wide);
        self.drop(attended);
        let output = self.slice(wide);
        self.drop(inner);
        output
    }
}

/// Pseudorandom shapes, the same in each run.
fn shapes() -> impl Iterator<Item = (usize, usize)> {
    let mut state = 7_u64;
    let mut next = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..BATCHES).map(move |_| (1 + next(16) as usize, 8 + next(300) as usize))
}

/// What the engine does; it prints what it asked for at most, what the device gave at most, and how
/// many allocations reached the driver's pools.
fn run() {
    let context = CudaContext::new(0).unwrap();
    let start = Instant::now();
    let mut engine =
        Engine { stream: context.new_stream().unwrap(), asked_bytes: 0, peak_bytes: 0 };
    let weights: Vec<_> = (0..LAYERS).map(|_| engine.slice(12 * WIDTH * WIDTH)).collect();
    for (batch, len) in shapes() {
        let mut hidden = engine.slice(batch * len * WIDTH);
        for _ in 0..LAYERS {
            hidden = engine.layer(batch, len, hidden);
        }
        // Read on another stream, for which cudarc waits.
        let side = context.new_stream().unwrap();
        side.clone_dtoh(&hidden).unwrap();
        engine.drop(hidden);
    }
    context.synchronize().unwrap();
    let Ok(sim) = SimCuda::find() else {
        tell_of_a_gpu(&context, &engine, start.elapsed());
        return;
    };
    let native = native_allocations(&sim);
    println!("{} {} {native}", engine.peak_bytes, sim.peak_physical_bytes(0));

    // In a capture memory is the graph's.
    // SAFETY: what follows uses one stream.
    unsafe { context.disable_event_tracking() };
    let stream = engine.stream;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    drop(stream.alloc_zeros::<f32>(1 << 20).unwrap());
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    assert_eq!(native_allocations(&sim), native + 1);
    graph.launch().unwrap();
    drop(weights);
    context.check_err().unwrap();
    assert_eq!(sim.violations(0), [""; 0]);
}

/// What can be told where nothing but the time and the whole device's memory can be looked at.
fn tell_of_a_gpu(context: &CudaContext, engine: &Engine, took: Duration) {
    let (free, total) = context.mem_get_info().unwrap();
    let [asked, used] = [engine.peak_bytes, total - free].map(|bytes| bytes >> 20);
    let ms = took.as_secs_f64() * 1e3;
    println!(r#"{{"asked MiB, peak": {asked}, "device in use MiB": {used}, "ms": {ms:.1}}}"#);
}

fn native_allocations(sim: &SimCuda) -> u64 {
    let stats = sim.stats_json();
    let row = stats.lines().find_map(|line| line.trim().strip_prefix("\"cuMemAllocAsync\": {"));
    let calls = row.and_then(|row| row.strip_prefix("\"calls\": ")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// The engine's figures in a process of its own.
fn figures(simulated: &Path, preloaded: Option<&Path>, options: &str) -> [u64; 3] {
    let mut engine = Command::new(env::current_exe().unwrap());
    engine.args(["--exact", "an_engine_on_cudarc_is_served_as_it_is", "--nocapture"]);
    engine.env(ENGINE, "1").env("DRYSTONE_CONF", options).env("LD_LIBRARY_PATH", simulated);
    engine.env("SIMCUDA_CONF", "memory:8GiB,oracle:true,strict:true");
    if let Some(library) = preloaded {
        engine.env("LD_PRELOAD", library);
    }
    let output = engine.output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let numbers = |line: &str| {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        numbers.ok()?.try_into().ok()
    };
    said.lines().find_map(numbers).unwrap()
}

#[test]
fn an_engine_on_cudarc_is_served_as_it_is() {
    if env::var_os(ENGINE).is_some() {
        run();
        return;
    }
    let Some(simulated) = simulated_cuda() else { return };
    let plain = figures(&simulated, None, "");
    let preloaded = figures(&simulated, Some(library()), "");
    let memory = figures(&simulated, Some(library()), "prefer:memory");
    println!("asked, held at most, from the driver's pools:");
    println!("{plain:?} as it is, {preloaded:?} preloaded, {memory:?} with prefer:memory");
    assert!(plain[2] > 3000 && preloaded[2] == 0 && memory[2] == 0);
    assert!(preloaded[0] == plain[0] && memory[0] == plain[0]);
    assert!(preloaded[1] < plain[1]);
    // A handle of 8 MiB is in use in part for each of a few streams.
    assert!(memory[1] < memory[0] + (24 << 20) && memory[1] < preloaded[1], "{memory:?}");
}
