//! Where results go: standard output, and files that appear whole or not at all.
//!
//! Invariant: a result file is written beside its target and renamed onto it, so a failure leaves
//! the target as it was. A reader that goes away (broken pipe) is no error.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::input::Input;

/// One line on standard error, whatever the names in it contain.
pub fn complain(message: &str) {
    // Standard error may be gone as well; then there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "drystone: {}", printable(message));
}

/// The text on one line, without control characters and those that turn the order of others.
pub fn printable(text: &str) -> String {
    let is_plain = |c: char| {
        let turns = ['\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
        !c.is_control() && !turns.iter().any(|range| range.contains(&c))
    };
    text.chars().map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Writes to standard output; what cannot be delivered because nobody reads is dropped.
pub fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// The same for what is no text.
pub fn print_bytes(content: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(content).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}

/// Refuses files that would be written twice, or read and written: one would be lost. Standard
/// output has the table, and is no file.
pub fn ensure_apart(outputs: &[&Path], inputs: &[Input]) -> Result<()> {
    let read: Vec<PathBuf> = inputs.iter().filter_map(Input::path).filter_map(place_of).collect();
    let mut written = Vec::new();
    for output in outputs {
        anyhow::ensure!(
            *output != Path::new("-"),
            "-: standard output has the table; name a file for the report"
        );
        let Some(place) = place_of(output) else { continue };
        let name = output.display();
        anyhow::ensure!(!read.contains(&place), "{name}: is read; write to another file");
        anyhow::ensure!(
            !written.contains(&place),
            "{name}: named twice; each report needs its own"
        );
        written.push(place);
    }
    Ok(())
}

/// Where a path leads, links resolved; `None` for devices and pipes, which hold nothing to lose.
fn place_of(path: &Path) -> Option<PathBuf> {
    if let Ok(whole) = path.canonicalize() {
        return whole.is_file().then_some(whole);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// A result file that does not exist yet. Dropped without [`finish`](Self::finish), it never will.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    /// `None` for targets that cannot be renamed onto: devices and pipes.
    file: Option<NamedTempFile>,
}

impl Pending {
    /// Makes sure that `path` can be written, before any work is done for it.
    pub fn create(path: &Path) -> Result<Self> {
        let name = || path.display().to_string();
        if let Ok(metadata) = path.metadata() {
            if metadata.is_dir() {
                anyhow::bail!("{}: is a directory; name a file in it", path.display());
            }
            if !metadata.is_file() {
                return Ok(Self { path: path.to_owned(), file: None });
            }
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        builder.prefix(".drystone-").suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(plain)
            .with_context(|| format!("{}: cannot write", name()))?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    /// Puts the whole content in place.
    pub fn finish(self, content: &[u8]) -> Result<()> {
        let name = self.path.display().to_string();
        self.place(content).map_err(plain).with_context(|| format!("{name}: cannot write"))
    }

    fn place(self, content: &[u8]) -> std::io::Result<()> {
        let Some(mut file) = self.file else { return std::fs::write(&self.path, content) };
        file.write_all(content)?;
        file.flush()?;
        file.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// The system's reason alone: the temporary file's name would only confuse.
fn plain(error: std::io::Error) -> std::io::Error {
    match error.kind() {
        ErrorKind::NotFound => std::io::Error::other("its folder does not exist"),
        ErrorKind::PermissionDenied => std::io::Error::other("permission denied"),
        ErrorKind::NotADirectory => std::io::Error::other("its folder is not a directory"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::Pending;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        drop(Pending::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        Pending::create(&path).unwrap().finish(b"done").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"done");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn unwritable_places_are_named_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        let error = Pending::create(&folder.path().join("no/such/place.html")).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.ends_with("place.html: cannot write: its folder does not exist"), "{text}");
        let error = Pending::create(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("is a directory"));
    }
}
