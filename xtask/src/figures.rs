//! What each trace costs on devices from ample to barely enough: `cargo xtask figures`.
//!
//! Lives here: the build of the command `drystone`. Which replays are made, and what they are held
//! against, is in `xtask/figures.py`.

use std::env;

use anyhow::Result;

use crate::command::{cmd, root, target};

/// Replays what the arguments ask for. Calls and modelled times are those of a release, which takes
/// longer to build.
pub fn figures(arguments: &[String]) -> Result<()> {
    cmd!("cargo build --profile quick --quiet --package drystone-cli").run()?;
    let (script, program) = (root().join("xtask/figures.py"), target().join("quick/drystone"));
    // Names of files are meant from where the caller is.
    let here = env::current_dir()?;
    Ok(cmd!("env --chdir={here} python3 -B {script} {arguments...} --program {program}").run()?)
}
