//! Virtual environments of Python: each made once, and installed into anew where what it is to have
//! changed.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{cmd, sh, write_if_changed};

/// Makes one in a folder, with packages and options of pip in one text; returns its interpreter.
/// It also sees the packages of the interpreter `below`.
pub fn make(folder: &Path, packages: &str, below: Option<&Path>) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    let installed = folder.join("installed.txt");
    if python.exists() && sh().read_file(&installed).is_ok_and(|text| text == packages) {
        return Ok(python);
    }
    cmd!("python3 -m venv {folder}").run()?;
    if let Some(below) = below {
        let below = site_packages(below)?.display().to_string();
        write_if_changed(&site_packages(&python)?.join("below.pth"), &below)?;
    }
    pip_install(&python, packages)?;
    write_if_changed(&installed, packages)?;
    Ok(python)
}

/// Installs packages beside an interpreter, named with options of pip in one text.
pub fn pip_install(python: &Path, packages: &str) -> Result<()> {
    let words = packages.split_whitespace();
    Ok(cmd!("{python} -m pip install --quiet --disable-pip-version-check {words...}").run()?)
}

pub fn site_packages(python: &Path) -> Result<PathBuf> {
    let ask = "import sysconfig; print(sysconfig.get_path('platlib'))";
    Ok(cmd!("{python} -c {ask}").read()?.into())
}
