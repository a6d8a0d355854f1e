//! Burn as it is.

fn main() -> anyhow::Result<()> {
    engine_burn::run()
}
