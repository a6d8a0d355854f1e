//! Engines from crates.io, unmodified, on the simulated device: `cargo xtask engines`.
//!
//! Lives here: how they are built, as they are and with the call of `install`. Which of their
//! programs run, and what they are held against, is in `xtask/engines.py`.

mod patched;
mod toolkit;

use anyhow::Result;

use crate::capi;
use crate::command::cmd;
use toolkit::{MANIFEST, Toolkit, engines_target};

/// The crates of `engines/`, the cheapest to build first. The package of one is `engine-NAME`, its
/// programs are `NAME-plain` and `NAME-installed`.
pub const ENGINES: [&str; 4] = ["candle", "burn", "kornia", "mistral"];

/// Builds one engine, or all, and what is preloaded; runs their programs.
pub fn engines(only: Option<&str>) -> Result<()> {
    let engines = only.map_or(ENGINES.to_vec(), |engine| vec![engine]);
    let toolkit = Toolkit::make()?;
    // First, for the programs of the same names take their places.
    if engines.contains(&"burn") {
        patched::build(&toolkit)?;
    }
    for engine in &engines {
        let is_apart = *engine == "mistral";
        let manifest = if is_apart { "engines/mistral/Cargo.toml" } else { MANIFEST };
        toolkit.build(engine, manifest, &["--locked"])?;
    }
    let (builds, preloaded) = (engines_target(), capi::assemble(None)?.join(capi::PRELOAD));
    let programs = cmd!("python3 -B xtask/engines.py {builds} {preloaded} {engines...}");
    Ok(toolkit.set_up(programs)?.run()?)
}
