//! The files of a Llama of TinyLlama's shape, with 8 of its 22 layers, in bf16.
//!
//! Weights are zero, and take no room where the file system keeps holes. Invariant: a letter of a
//! prompt is a token, and what zeros choose (the first token) never ends an answer.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

const WIDTH: usize = 2048;
const INNER: usize = 5632;
const LAYERS: usize = 8;
const HEADS: usize = 32;
const CACHE_HEADS: usize = 4;
const VOCABULARY: usize = 32000;

/// Writes them into a folder.
pub fn write(folder: &Path) -> Result<()> {
    fs::write(folder.join("config.json"), config().to_string())?;
    fs::write(folder.join("tokenizer.json"), tokenizer().to_string())?;
    let template = json!({
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
        "bos_token": "!",
        "eos_token": "\"",
    });
    fs::write(folder.join("tokenizer_config.json"), template.to_string())?;
    weights(&folder.join("model.safetensors"))
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": CACHE_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    })
}

/// Bytes as tokens, by GPT-2's letters for them: those that print stand for themselves, the others
/// are letters from 256 on.
fn tokenizer() -> Value {
    let prints = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let others = (0..256).filter(|byte| !prints(byte)).zip(256..);
    let letters = (0..256).filter(prints).map(|byte| (byte, byte)).chain(others);
    let letters = letters.filter_map(|(byte, letter)| Some((char::from_u32(letter)?, byte)));
    let vocabulary: Map<_, _> =
        letters.map(|(letter, byte)| (letter.into(), json!(byte))).collect();
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": { "type": "BPE", "vocab": vocabulary, "merges": [] },
    })
}

/// The names and shapes of all tensors.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let cache = WIDTH / HEADS * CACHE_HEADS;
    let of_a_layer = [
        ("self_attn.q_proj", vec![WIDTH, WIDTH]),
        ("self_attn.k_proj", vec![cache, WIDTH]),
        ("self_attn.v_proj", vec![cache, WIDTH]),
        ("self_attn.o_proj", vec![WIDTH, WIDTH]),
        ("mlp.gate_proj", vec![INNER, WIDTH]),
        ("mlp.up_proj", vec![INNER, WIDTH]),
        ("mlp.down_proj", vec![WIDTH, INNER]),
        ("input_layernorm", vec![WIDTH]),
        ("post_attention_layernorm", vec![WIDTH]),
    ];
    let layers = (0..LAYERS).flat_map(|layer| {
        let name = move |name: &str| format!("model.layers.{layer}.{name}.weight");
        of_a_layer.clone().map(|(tensor, shape)| (name(tensor), shape))
    });
    let around = [
        ("model.embed_tokens.weight", vec![VOCABULARY, WIDTH]),
        ("model.norm.weight", vec![WIDTH]),
        ("lm_head.weight", vec![VOCABULARY, WIDTH]),
    ];
    around.map(|(name, shape)| (name.to_owned(), shape)).into_iter().chain(layers).collect()
}

/// A file of zeros: its header alone is written.
fn weights(path: &Path) -> Result<()> {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors() {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let tensor = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
        header.insert(name, tensor);
    }
    let mut header = serde_json::to_string(&header)?;
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    file.set_len((8 + header.len() + end) as u64)?;
    Ok(())
}
