//! kornia with one call more.

fn main() -> anyhow::Result<()> {
    engine_watch::drystone_is_here();
    drystone_cudarc::install(&drystone::Options::from_env()?)?;
    engine_kornia::run()
}
