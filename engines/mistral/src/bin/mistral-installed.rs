//! mistral.rs with one call more.

fn main() -> anyhow::Result<()> {
    drystone_cudarc::install(&drystone::Options::from_env()?)?;
    engine_mistral::run()
}
