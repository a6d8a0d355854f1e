//! How an inference engine on cudarc takes its memory from Drystone: weights, a key-value cache
//! that is sized from what is left and grows with the conversation, scratch for each step.
//!
//! Runs on any device, and on the simulated libcuda with no GPU at all: `docs/rust.md`.

use std::error::Error;
use std::process::ExitCode;

use cudarc::driver::CudaContext;
use drystone::Options;
use drystone_cudarc::{Alloc, DeviceMemory, PooledSlice, StreamMemory, device_count};

const LAYERS: usize = 16;
const HIDDEN: usize = 2048;
const VOCABULARY: usize = 32_000;
/// Tokens whose keys and values one more piece of the cache holds.
const CACHE_STEP: usize = 256;

struct Layer {
    weights: PooledSlice<f32>,
    /// Keys and values, in pieces that never move: growing adds one and copies nothing.
    cache: Vec<PooledSlice<f32>>,
}

struct Engine {
    memory: StreamMemory,
    embedding: PooledSlice<f32>,
    layers: Vec<Layer>,
    tokens: usize,
}

impl Engine {
    fn load(memory: &StreamMemory) -> Result<Self, Box<dyn Error>> {
        // A loader needs room to convert in; it is unused afterwards.
        let staging = memory.alloc_zeros::<f32>(VOCABULARY * HIDDEN)?;
        let layer = || -> Result<Layer, Box<dyn Error>> {
            Ok(Layer { weights: memory.alloc_zeros(12 * HIDDEN * HIDDEN)?, cache: Vec::new() })
        };
        let layers = (0..LAYERS).map(|_| layer()).collect::<Result<_, _>>()?;
        let embedding = memory.alloc_zeros(VOCABULARY * HIDDEN)?;
        drop(staging);
        // What loading alone needed goes back to the device, for whoever else is on it.
        let given_back = memory.allocator().trim()?;
        println!("loaded; {} MiB of staging given back", given_back >> 20);
        Ok(Self { memory: memory.clone(), embedding, layers, tokens: 0 })
    }

    const fn cache_step_bytes() -> u64 {
        (LAYERS * 2 * CACHE_STEP * HIDDEN * size_of::<f32>()) as u64
    }

    /// How many tokens the cache may hold, with a tenth of the memory left for scratch.
    fn token_capacity(&self) -> Result<usize, Box<dyn Error>> {
        let bytes = self.memory.budget()?.total_bytes() / 10 * 9;
        Ok(self.tokens + (bytes / Self::cache_step_bytes()) as usize * CACHE_STEP)
    }

    /// One token: scratch that lives as long as the step, one more row in the cache.
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        if self.tokens.is_multiple_of(CACHE_STEP) {
            if !self.memory.would_fit(Self::cache_step_bytes()) {
                return Err(format!("the cache is full at {} tokens", self.tokens).into());
            }
            for layer in &mut self.layers {
                layer.cache.push(self.memory.alloc_zeros(2 * CACHE_STEP * HIDDEN)?);
            }
        }
        let stream = self.memory.stream();
        let row = self.tokens % CACHE_STEP;
        let mut hidden = self.memory.alloc_zeros::<f32>(HIDDEN)?;
        let token = self.embedding.slice(..HIDDEN);
        stream.memcpy_dtod(&token, &mut hidden)?;
        for layer in &mut self.layers {
            // A real engine launches kernels with these buffers as arguments.
            let scratch = self.memory.alloc_zeros::<f32>(4 * HIDDEN)?;
            let result = scratch.slice(..HIDDEN);
            let piece = layer.cache.last_mut().ok_or("the layer has no cache")?;
            let rows = row * HIDDEN..(row + 1) * HIDDEN;
            let mut key = piece.slice_mut(rows);
            stream.memcpy_dtod(&result, &mut key)?;
        }
        self.tokens += 1;
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

    let weights: usize = engine.layers.iter().map(|layer| layer.weights.num_bytes()).sum();
    let all = memory.allocator().stats().all;
    println!(
        "{} tokens; {} MiB of weights, {} MiB in use, {} MiB held, {} MiB at most",
        engine.tokens,
        weights >> 20,
        all.allocated_bytes.current >> 20,
        all.reserved_bytes.current >> 20,
        all.reserved_bytes.peak >> 20,
    );
    Ok(())
}
