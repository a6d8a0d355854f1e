//! Candle from crates.io as it is, on models of candle-transformers with weights of zero.
//!
//! Its arguments are `llama|bert|quantized REQUESTS`: shapes are pseudorandom, and the same in each
//! run. What is computed means nothing; what is asked for, and when it is freed, is candle's own.

mod bert;
mod llama;
mod quantized;
mod shapes;

use anyhow::{Context, Result, bail};
use candle_core::Device;

/// Does what the program's arguments say.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().context("which model: llama, bert or quantized")?;
    let requests = arguments.next().context("how many requests")?.parse()?;
    let device = Device::new_cuda(0)?;
    match model.as_str() {
        "llama" => llama::run(&device, requests)?,
        "bert" => bert::run(&device, requests)?,
        "quantized" => quantized::run(&device, requests)?,
        _ => bail!("no model is called {model}: llama, bert or quantized"),
    }
    device.synchronize()?;
    engine_watch::report();
    Ok(())
}
