//! mistral.rs as it is.

fn main() -> anyhow::Result<()> {
    engine_mistral::run()
}
