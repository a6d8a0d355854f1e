//! BERT base in f32, of batches whose shapes vary.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};

use crate::shapes::Shapes;

/// Batches of 1 to 32 texts of 8 to 499 tokens.
pub fn run(device: &Device, batches: usize) -> Result<()> {
    let config = Config {
        vocab_size: 30522,
        hidden_size: 768,
        num_hidden_layers: 12,
        num_attention_heads: 12,
        intermediate_size: 3072,
        ..Default::default()
    };
    let model = BertModel::load(VarBuilder::zeros(DType::F32, device), &config)?;
    let mut shapes = Shapes::new();
    for _ in 0..batches {
        let shape = (shapes.next(1, 33), shapes.next(8, 500));
        let tokens = Tensor::zeros(shape, DType::U32, device)?;
        let types = tokens.zeros_like()?;
        let mask = Tensor::ones(shape, DType::U32, device)?;
        let hidden = model.forward(&tokens, &types, Some(&mask))?;
        hidden.mean(1)?.to_vec2::<f32>()?;
    }
    Ok(())
}
