//! A Llama of 8 layers in four bits (Q4_0), loaded from a GGUF file that is made here.

use std::borrow::Cow;
use std::io::Cursor;

use anyhow::Result;
use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

use crate::shapes::Shapes;

const WIDTH: usize = 2048;
const INNER: usize = 5632;
const HEADS: usize = 32;
const VOCABULARY: usize = 32000;
const LAYERS: usize = 8;

/// Weights of zero.
fn zeros(dtype: GgmlDType, shape: &[usize]) -> Result<QTensor> {
    let elements: usize = shape.iter().product();
    let bytes = elements / dtype.block_size() * dtype.type_size();
    let storage = QStorage::from_data(Cow::Owned(vec![0; bytes]), &Device::Cpu, dtype)?;
    Ok(QTensor::new(storage, shape)?)
}

fn file() -> Result<Vec<u8>> {
    let (quantized, plain) = (GgmlDType::Q4_0, GgmlDType::F32);
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), zeros(quantized, &[VOCABULARY, WIDTH])?),
        ("output_norm.weight".to_owned(), zeros(plain, &[WIDTH])?),
        ("output.weight".to_owned(), zeros(quantized, &[VOCABULARY, WIDTH])?),
    ];
    for layer in 0..LAYERS {
        for (name, dtype, shape) in [
            ("attn_q", quantized, &[WIDTH, WIDTH][..]),
            ("attn_k", quantized, &[WIDTH, WIDTH]),
            ("attn_v", quantized, &[WIDTH, WIDTH]),
            ("attn_output", quantized, &[WIDTH, WIDTH]),
            ("ffn_gate", quantized, &[INNER, WIDTH]),
            ("ffn_up", quantized, &[INNER, WIDTH]),
            ("ffn_down", quantized, &[WIDTH, INNER]),
            ("attn_norm", plain, &[WIDTH]),
            ("ffn_norm", plain, &[WIDTH]),
        ] {
            tensors.push((format!("blk.{layer}.{name}.weight"), zeros(dtype, shape)?));
        }
    }
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let number = |number: usize| Value::U32(number as u32);
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(
        &mut file,
        &[
            ("general.architecture", &Value::String("llama".to_owned())),
            ("llama.attention.head_count", &number(HEADS)),
            ("llama.attention.head_count_kv", &number(HEADS)),
            ("llama.block_count", &number(LAYERS)),
            ("llama.embedding_length", &number(WIDTH)),
            ("llama.rope.dimension_count", &number(WIDTH / HEADS)),
            ("llama.attention.layer_norm_rms_epsilon", &Value::F32(1e-5)),
        ],
        &tensors,
    )?;
    Ok(file.into_inner())
}

/// Requests of 16 to 1,023 tokens, answered with 16 to 63.
pub fn run(device: &Device, requests: usize) -> Result<()> {
    let mut file = Cursor::new(file()?);
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, device)?;
    let mut shapes = Shapes::new();
    for _ in 0..requests {
        let (prompt, answer) = (shapes.next(16, 1024), shapes.next(16, 64));
        let tokens: Vec<u32> = (0..prompt as u32).collect();
        let mut input = Tensor::new(tokens.as_slice(), device)?.unsqueeze(0)?;
        let mut position = 0;
        for _ in 0..answer {
            let logits = model.forward(&input, position)?;
            position += input.dim(1)?;
            let token = logits.squeeze(0)?.argmax(0)?.to_scalar::<u32>()?;
            input = Tensor::new(&[token], device)?.unsqueeze(0)?;
        }
    }
    Ok(())
}
