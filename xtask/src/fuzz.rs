//! Fuzzing: `cargo xtask fuzz`.
//!
//! Lives here: how a target is run. What a run finds goes to a folder that git ignores; the
//! committed seeds stay as they are.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{install, root};
use crate::suite;

/// Fuzz targets, as in `fuzz/Cargo.toml`.
const FUZZ_TARGETS: [&str; 6] = ["pickle", "csv", "rmm", "options", "heap", "board"];

/// Runs every target for so many seconds, side by side.
pub fn fuzz(seconds: u32) -> Result<()> {
    install("fuzz")?;
    let mut targets = Vec::new();
    for target in FUZZ_TARGETS {
        let found = root().join("fuzz/corpus").join(target);
        let seeds = root().join("fuzz/seeds").join(target);
        std::fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
        let mut command = Command::new("cargo");
        // Without a sanitizer the stable toolchain can build the targets.
        command.args(["fuzz", "run", "--sanitizer", "none", target]);
        command.arg(found).arg(seeds).args(["--", "-rss_limit_mb=2048", "-timeout=10"]);
        command.arg(format!("-max_total_time={seconds}")).current_dir(root().join("fuzz"));
        targets.push(command);
    }
    suite::side_by_side(targets)
}
