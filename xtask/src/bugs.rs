//! Public reports under each allocator: `cargo xtask bugs`, of memory held and requests refused,
//! and `cargo xtask matrix`, of what breaks with mapped memory.
//!
//! Lives here: the environment that their programs run in. What is run and compared is in
//! `xtask/bugs.py`.

use std::path::Path;

use anyhow::Result;

use crate::command::{TORCH_VERSION, sh};
use crate::python::native_cache;
use crate::{capi, torch};

/// Runs the programs of a folder, prints what they come to, and holds that against a page.
pub fn bugs(folder: &str, arguments: &[String]) -> Result<()> {
    let mut torch = torch::set_up(TORCH_VERSION)?;
    if let Ok(packages) = sh().read_file(Path::new(folder).join("packages.txt")) {
        torch = torch.on_top(folder, packages.trim())?;
    }
    let libraries = capi::assemble(None)?.join("lib");
    let script = torch.python().arg("xtask/bugs.py").arg(folder).arg(libraries).args(arguments);
    Ok(script.envs([native_cache()]).run()?)
}
