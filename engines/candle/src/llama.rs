//! A Llama of 1.1 billion parameters in bf16 (the shape of TinyLlama), whose cache grows by a
//! token a step: candle makes a new tensor of each layer's keys and values, and drops the old.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};

use crate::shapes::Shapes;

fn config() -> Config {
    Config {
        hidden_size: 2048,
        intermediate_size: 5632,
        vocab_size: 32000,
        num_hidden_layers: 22,
        num_attention_heads: 32,
        num_key_value_heads: 4,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 4096,
        tie_word_embeddings: false,
    }
}

/// Requests of 16 to 1,799 tokens, answered with 16 to 63.
pub fn run(device: &Device, requests: usize) -> Result<()> {
    let config = config();
    let model = Llama::load(VarBuilder::zeros(DType::BF16, device), &config)?;
    let mut shapes = Shapes::new();
    for _ in 0..requests {
        let (prompt, answer) = (shapes.next(16, 1800), shapes.next(16, 64));
        let mut cache = Cache::new(true, DType::BF16, &config, device)?;
        let prompt: Vec<u32> = (0..prompt as u32).map(|at| at % 32000).collect();
        let mut input = Tensor::new(prompt.as_slice(), device)?.unsqueeze(0)?;
        let mut position = 0;
        for _ in 0..answer {
            let logits = model.forward(&input, position, &mut cache)?;
            position += input.dim(1)?;
            let token = logits.squeeze(0)?.to_dtype(DType::F32)?.argmax(0)?.to_scalar::<u32>()?;
            input = Tensor::new(&[token], device)?.unsqueeze(0)?;
        }
    }
    Ok(())
}
