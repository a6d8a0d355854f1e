//! Burn from crates.io as it is, over cubecl: a transformer's encoder of 12 layers in f32.
//!
//! Its arguments are `encoder BATCHES`: batches of 1 to 32 texts of 8 to 499 tokens, the same in
//! each run. What is computed means nothing.

use anyhow::{Context, Result, ensure};
use burn::backend::Cuda;
use burn::nn::EmbeddingConfig;
use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
use burn::tensor::{Int, Tensor};

type Backend = Cuda<f32, i32>;

const WIDTH: usize = 768;
const INNER: usize = 3072;
const HEADS: usize = 12;
const LAYERS: usize = 12;
const VOCABULARY: usize = 30522;

/// Does what the program's arguments say.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    ensure!(arguments.next().as_deref() == Some("encoder"), "there is one model: encoder");
    let batches = arguments.next().context("how many batches")?.parse()?;
    let device = Default::default();
    let model = TransformerEncoderConfig::new(WIDTH, INNER, HEADS, LAYERS).init::<Backend>(&device);
    let embedding = EmbeddingConfig::new(VOCABULARY, WIDTH).init::<Backend>(&device);
    // Knuth's linear congruential generator (MMIX), its upper bits.
    let mut state = 7_u64;
    let mut next = |least: usize, end: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) as usize % (end - least)
    };
    for _ in 0..batches {
        let shape = [next(1, 33), next(8, 500)];
        let tokens = Tensor::<Backend, 2, Int>::zeros(shape, &device);
        let hidden = model.forward(TransformerEncoderInput::new(embedding.forward(tokens)));
        hidden.mean_dim(1).into_data();
    }
    engine_watch::report();
    Ok(())
}
