//! Running other programs, in the repository's root: shown before they run, and an error if they
//! fail. Files and folders, with errors that name them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::Shell;

/// The PyTorch whose snapshots are written and whose viewer must read them.
pub const TORCH_VERSION: &str = "2.11.0";

/// A command, as it would be given to a shell in the repository's root.
macro_rules! cmd {
    ($line:literal) => {
        xshell::cmd!($crate::command::sh(), $line)
    };
}
pub(crate) use cmd;

/// Who runs commands and reads files: in the repository's root, one for each thread.
#[expect(clippy::expect_used, reason = "there is no other place to work in")]
pub fn sh() -> &'static Shell {
    thread_local! {
        static SHELL: &'static Shell = {
            let shell = Shell::new().expect("the folder of the caller");
            shell.change_dir(root());
            Box::leak(Box::new(shell))
        };
    }
    SHELL.with(|shell| *shell)
}

pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

pub fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Installs a command of cargo's unless it is there.
pub fn install(name: &str) -> Result<()> {
    if cmd!("cargo {name} --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!("cargo install --locked cargo-{name}").run()?;
    }
    Ok(())
}

/// The folders of a variable such as `PATH`, after one that is looked in first.
pub fn path_after(first: &Path, variable: &str) -> Result<OsString> {
    let others = env::var_os(variable).unwrap_or_default();
    let all = [first.to_path_buf()].into_iter().chain(env::split_paths(&others));
    Ok(env::join_paths(all)?)
}

/// A folder that is there, by its whole name: callers may name one from where they are.
pub fn made_folder(folder: PathBuf) -> Result<PathBuf> {
    let named = || format!("make {}", folder.display());
    fs::create_dir_all(&folder).and_then(|()| folder.canonicalize()).with_context(named)
}

/// Copies a file, into a folder that need not be there. A program that is running may be replaced,
/// not written to.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    sh().create_dir(to.parent().context("a file is in a folder")?)?;
    sh().remove_path(to)?;
    Ok(sh().copy_file(from, to)?)
}

pub fn files_of(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = sh().read_dir(folder)?;
    files.retain(|file| file.extension().is_some_and(|one| one == extension));
    Ok(files)
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
    let is_new = fs::read_to_string(file).ok().as_deref() != Some(text);
    if is_new {
        sh().write_file(file, text)?;
    }
    Ok(is_new)
}
