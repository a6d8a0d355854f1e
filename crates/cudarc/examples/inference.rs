//! How an inference engine on cudarc takes its memory from Drystone: weights, a key-value cache
//! that grows with the conversation without being moved or copied, scratch for each step.
//!
//! Runs on any device, and on the simulated libcuda with no GPU at all: `docs/use/rust.md`.

use std::error::Error;
use std::process::ExitCode;

use cudarc::driver::{CudaContext, DeviceSlice};
use drystone::Options;
use drystone_cudarc::{Alloc, DeviceMemory, Growable, PooledSlice, StreamMemory, device_count};

const LAYERS: usize = 16;
const HIDDEN: usize = 2048;
const VOCABULARY: usize = 32_000;
/// Keys and values of one token, in all layers.
const ROW: usize = LAYERS * 2 * HIDDEN;
/// The longest conversation.
const TOKENS_MAX: usize = 1 << 20;

struct Engine {
    memory: StreamMemory,
    embedding: PooledSlice<f32>,
    layers: Vec<PooledSlice<f32>>,
    /// A row for each token, one after the other at an address that stays: kernels and graphs may
    /// keep it. Memory is behind the rows that there are.
    cache: Growable<f32>,
}

impl Engine {
    fn load(memory: &StreamMemory) -> Result<Self, Box<dyn Error>> {
        // A loader needs room to convert in; it is unused afterwards.
        let staging = memory.alloc_zeros::<f32>(VOCABULARY * HIDDEN)?;
        let weights = memory.tagged("weights");
        let layer = || weights.alloc_zeros(12 * HIDDEN * HIDDEN);
        let layers = (0..LAYERS).map(|_| layer()).collect::<Result<_, _>>()?;
        let embedding = weights.alloc_zeros(VOCABULARY * HIDDEN)?;
        // Addresses alone: what the loader needed will be mapped there.
        let cache = memory.tagged("kv").reserve(TOKENS_MAX * ROW)?;
        drop(staging);
        Ok(Self { memory: memory.clone(), embedding, layers, cache })
    }

    fn tokens(&self) -> usize {
        self.cache.len() / ROW
    }

    /// How many tokens the cache may hold, with a tenth of the memory left for scratch.
    fn token_capacity(&self) -> Result<usize, Box<dyn Error>> {
        let bytes = self.memory.budget()?.total_bytes() / 10 * 9;
        Ok(self.tokens() + bytes as usize / (ROW * size_of::<f32>()))
    }

    /// One token: scratch that lives as long as the step, one more row in the cache.
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        let start = self.cache.len();
        // SAFETY: each layer writes its part of the row before anybody reads it.
        unsafe { self.cache.grow_to(start + ROW) }?;
        let stream = self.memory.stream();
        let mut hidden = self.memory.alloc_zeros::<f32>(HIDDEN)?;
        let token = self.embedding.slice(..HIDDEN);
        stream.memcpy_dtod(&token, &mut hidden)?;
        for (layer, weights) in self.layers.iter().enumerate() {
            // A real engine launches kernels with these slices as arguments.
            let mut scratch = self.memory.alloc_zeros::<f32>(4 * HIDDEN)?;
            stream.memcpy_dtod(&weights.slice(..4 * HIDDEN), &mut scratch)?;
            let result = scratch.slice(..2 * HIDDEN);
            let at = start + layer * 2 * HIDDEN;
            let mut row = self.cache.slice_mut(at..at + 2 * HIDDEN);
            stream.memcpy_dtod(&result, &mut row)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inference: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let steps: usize = std::env::args().nth(1).map_or(Ok(1000), |steps| steps.parse())?;
    // Asked first: without a driver cudarc panics, and this says what to do.
    if device_count()? == 0 {
        return Err("the driver sees no device".into());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let options = Options::from_env()?;
    let memory = DeviceMemory::new(&context, &options)?.on(&stream)?;

    let mut engine = Engine::load(&memory)?;
    println!("room for {} tokens", engine.token_capacity()?);
    for _ in 0..steps {
        engine.step()?;
    }
    stream.synchronize()?;

    let all = memory.allocator().stats().all;
    println!(
        "{} tokens; {} MiB in use, {} MiB held, {} MiB at most",
        engine.tokens(),
        all.allocated_bytes.current >> 20,
        all.reserved_bytes.current >> 20,
        all.reserved_bytes.peak >> 20,
    );
    for tag in memory.allocator().tag_stats() {
        println!("{}: {} MiB, {} MiB at most", tag.name, tag.bytes >> 20, tag.peak_bytes >> 20);
    }
    drop(engine);
    Ok(())
}
