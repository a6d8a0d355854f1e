//! mistral.rs from crates.io as it is, serving a small Llama with weights of zero.
//!
//! Its arguments are `llama REQUESTS`: prompts of 16 to 1,799 tokens, answered with 16 to 63, of
//! which 1 to 8 are served together. They are the same in each run, but which of them meet in a
//! step is not: the engine is a thread of its own. What is computed means nothing.

mod model;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use mistralrs::{Model, ModelDType, RequestBuilder, TextMessageRole, TextModelBuilder};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Does what the program's arguments say.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    ensure!(arguments.next().as_deref() == Some("llama"), "there is one model: llama");
    let requests = arguments.next().context("how many requests")?.parse()?;
    Runtime::new()?.block_on(serve(requests))?;
    engine_watch::report();
    Ok(())
}

async fn serve(requests: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    model::write(folder.path())?;
    let model = TextModelBuilder::new(folder.path().display()).with_dtype(ModelDType::BF16);
    let model = Arc::new(model.build().await?);
    let mut next = shapes();
    let mut served = 0;
    while served < requests {
        let mut together = JoinSet::new();
        for _ in 0..next(1, 9).min(requests - served) {
            together.spawn(ask(model.clone(), next(16, 1800), next(16, 64)));
            served += 1;
        }
        while let Some(answered) = together.join_next().await {
            answered??;
        }
    }
    Ok(())
}

/// A request of so many tokens, answered with so many.
async fn ask(model: Arc<Model>, prompt: usize, answer: usize) -> Result<()> {
    // Each letter is a token.
    let request = RequestBuilder::new().add_message(TextMessageRole::User, "a".repeat(prompt));
    let request = request.set_deterministic_sampler().set_sampler_max_len(answer);
    let usage = model.send_chat_request(request).await?.usage;
    let tokens = (usage.prompt_tokens, usage.completion_tokens);
    ensure!(tokens == (prompt, answer), "{tokens:?} tokens, not {:?}", (prompt, answer));
    Ok(())
}

/// Pseudorandom sizes from the first to below the second, the same in each run: Knuth's linear
/// congruential generator (MMIX), its upper bits.
fn shapes() -> impl FnMut(usize, usize) -> usize {
    let mut state = 7_u64;
    move |least, end| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) as usize % (end - least)
    }
}
