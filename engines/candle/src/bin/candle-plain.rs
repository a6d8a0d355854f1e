//! Candle as it is.

fn main() -> anyhow::Result<()> {
    engine_candle::run()
}
