//! A transformer that serves prompts of any length: weights, caches of keys and values that grow,
//! and temporaries whose sizes follow the length.
//!
//! The shapes are those of Llama-3-8B in bfloat16.

use std::collections::VecDeque;

use drystone_sim::Rng;

use super::recorder::{Block, NoRoom, Recorder};

const LAYERS: usize = 32;
const HIDDEN: u64 = 4096;
/// Of keys, and of values: 8 heads of 128.
const KEYS: u64 = 1024;
const MLP: u64 = 14_336;
const VOCABULARY: u64 = 128_256;
const ELEMENT_BYTES: u64 = 2;
/// Shortest and longest prompt, in tokens.
const PROMPT: (u64, u64) = (64, 8192);
/// Tokens made for each prompt.
const ANSWER: u64 = 4;
/// Requests that keep their cache beside the one under way, at most.
const KEPT: u64 = 3;

/// Keys and values of each layer.
type Cache = Vec<(Block, Block)>;

const fn tokens_bytes(tokens: u64, width: u64) -> u64 {
    tokens * width * ELEMENT_BYTES
}

pub(super) fn run(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    let mut caches: VecDeque<Cache> = VecDeque::new();
    while !recorder.is_over() {
        let tokens = PROMPT.0 + rng.up_to(PROMPT.1 - PROMPT.0);
        let kept = rng.up_to(KEPT);
        while caches.len() as u64 > kept || recorder.room() < most_bytes(tokens) {
            let Some(oldest) = caches.pop_front() else { break };
            for (keys, values) in oldest {
                recorder.free(keys);
                recorder.free(values);
            }
        }
        let mut cache = Vec::with_capacity(LAYERS);
        pass(recorder, tokens, |recorder| {
            let keys = recorder.allocate(tokens_bytes(tokens, KEYS), 0)?;
            let values = recorder.allocate(tokens_bytes(tokens, KEYS), 0)?;
            cache.push((keys, values));
            Ok(())
        })?;
        for more in 1..=ANSWER {
            let mut layers = cache.iter_mut();
            pass(recorder, 1, |recorder| {
                let Some((keys, values)) = layers.next() else { return Ok(()) };
                grow(recorder, keys, tokens + more)?;
                grow(recorder, values, tokens + more)
            })?;
        }
        caches.push_back(cache);
        recorder.iteration();
    }
    Ok(())
}

/// Live to the end of the program.
fn load_weights(recorder: &mut Recorder) -> Result<(), NoRoom> {
    let mut load = |rows, columns| recorder.allocate(tokens_bytes(rows, columns), 0).map(drop);
    load(VOCABULARY, HIDDEN)?;
    load(VOCABULARY, HIDDEN)?;
    for _ in 0..LAYERS {
        for rows in [HIDDEN, KEYS, KEYS, HIDDEN, MLP, MLP, MLP] {
            load(rows, HIDDEN)?;
        }
    }
    Ok(())
}

/// What one request asks for beyond what is live, at most.
const fn most_bytes(tokens: u64) -> u64 {
    let caches = 2 * LAYERS as u64 * tokens_bytes(tokens + ANSWER, KEYS);
    let temporaries = tokens_bytes(tokens, 4 * HIDDEN + 3 * MLP + VOCABULARY / tokens);
    caches + temporaries + tokens_bytes(tokens + ANSWER, KEYS)
}

/// One pass of `tokens` through all layers; `keep` does what a layer does to the cache.
fn pass(
    recorder: &mut Recorder,
    tokens: u64,
    mut keep: impl FnMut(&mut Recorder) -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    let mut hidden = recorder.allocate(tokens_bytes(tokens, HIDDEN), 0)?;
    for _ in 0..LAYERS {
        let normed = recorder.allocate(tokens_bytes(tokens, HIDDEN), 0)?;
        let queries = recorder.allocate(tokens_bytes(tokens, HIDDEN), 0)?;
        keep(recorder)?;
        recorder.free(normed);
        let attended = recorder.allocate(tokens_bytes(tokens, HIDDEN), 0)?;
        recorder.free(queries);
        hidden = add(recorder, hidden, tokens)?;
        recorder.free(attended);

        let gate = recorder.allocate(tokens_bytes(tokens, MLP), 0)?;
        let up = recorder.allocate(tokens_bytes(tokens, MLP), 0)?;
        let product = recorder.allocate(tokens_bytes(tokens, MLP), 0)?;
        recorder.free(gate);
        recorder.free(up);
        hidden = add(recorder, hidden, tokens)?;
        recorder.free(product);
    }
    recorder.use_briefly(tokens_bytes(1, VOCABULARY), 0)?;
    recorder.free(hidden);
    Ok(())
}

/// A new block of hidden states in place of the old one.
fn add(recorder: &mut Recorder, hidden: Block, tokens: u64) -> Result<Block, NoRoom> {
    let sum = recorder.allocate(tokens_bytes(tokens, HIDDEN), 0)?;
    recorder.free(hidden);
    Ok(sum)
}

/// A cache that grows by a token is copied to a new block.
fn grow(recorder: &mut Recorder, cached: &mut Block, tokens: u64) -> Result<(), NoRoom> {
    let larger = recorder.allocate(tokens_bytes(tokens, KEYS), 0)?;
    recorder.free(std::mem::replace(cached, larger));
    Ok(())
}
