//! Fuzzing: `cargo xtask fuzz`.
//!
//! Lives here: how a target is run. What a run finds goes to a folder that git ignores; the
//! committed seeds stay as they are.

use anyhow::Result;

use crate::command::{cmd, install, root, sh};
use crate::suite;

/// As in `fuzz/Cargo.toml`.
const FUZZ_TARGETS: [&str; 6] = ["pickle", "csv", "rmm", "options", "heap", "board"];

/// Runs every target for so many seconds, side by side.
pub fn fuzz(seconds: u32) -> Result<()> {
    install("fuzz")?;
    let folder = root().join("fuzz");
    let seconds = seconds.to_string();
    let command = |target| {
        let (found, seeds) = (format!("corpus/{target}"), format!("seeds/{target}"));
        sh().create_dir(folder.join(&found))?;
        // Without a sanitizer the stable toolchain can build the targets.
        Ok(cmd!(
            "env --chdir={folder} cargo fuzz run --sanitizer none {target} {found} {seeds}
            -- -rss_limit_mb=2048 -timeout=10 -max_total_time={seconds}"
        )
        .into())
    };
    suite::side_by_side(FUZZ_TARGETS.map(command).into_iter().collect::<Result<_>>()?)
}
