//! Virtual environments of Python: each made once, and installed into anew where what it is to have
//! changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{run, said};
use crate::files::write_if_changed;

/// Makes one in a folder, with packages and options of pip in one text; returns its interpreter.
/// It also sees the packages of the interpreter `below`.
pub fn make(folder: &Path, packages: &str, below: Option<&Path>) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    let installed = folder.join("installed.txt");
    if python.exists() && fs::read_to_string(&installed).is_ok_and(|text| text == packages) {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(folder);
    run(make)?;
    if let Some(below) = below {
        let below = site_packages(below)?.display().to_string();
        write_if_changed(&site_packages(&python)?.join("below.pth"), &below)?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(packages.split_whitespace());
    run(pip)?;
    write_if_changed(&installed, packages)?;
    Ok(python)
}

/// Where an interpreter's packages are.
pub fn site_packages(python: &Path) -> Result<PathBuf> {
    let mut ask = Command::new(python);
    ask.args(["-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]);
    Ok(PathBuf::from(said(ask)?.trim_end()))
}
