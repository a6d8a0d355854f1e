//! Files and folders: made, copied and linked, with errors that name them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that is there, by its whole name.
pub fn made_folder(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("find {}", folder.display()))
}

/// Copies a file, into a folder that need not be there. A program that is running may be replaced,
/// not written to.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let _ = fs::remove_file(to);
    let copied = fs::copy(from, to);
    copied.map(drop).with_context(|| format!("copy {} to {}", from.display(), to.display()))
}

/// Makes a link, or points an old one elsewhere.
pub fn link(to: &Path, at: &Path) -> Result<()> {
    if fs::read_link(at).is_ok_and(|old| old == to) {
        return Ok(());
    }
    let _ = fs::remove_file(at);
    symlink(to, at).with_context(|| format!("link {}", at.display()))
}

/// Writes a text where it is not already; says whether it was not.
pub fn write_if_changed(file: &Path, text: &str) -> Result<bool> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(false);
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(true)
}
