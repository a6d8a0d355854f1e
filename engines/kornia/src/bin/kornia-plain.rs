//! kornia as it is.

fn main() -> anyhow::Result<()> {
    engine_kornia::run()
}
