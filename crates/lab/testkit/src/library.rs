//! What the platform's tools say of a library's file.

use std::io;
use std::path::Path;
use std::process::Command;

/// What a tool writes of a file.
///
/// # Errors
/// The tool is not there or fails; then what it says.
pub fn output_of(tool: &str, arguments: &[&str], file: &Path) -> io::Result<String> {
    let output = Command::new(tool).args(arguments).arg(file).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names in brackets of those lines of `readelf -d` that have a tag, such as `(NEEDED)`.
pub fn entries<'a>(dynamic: &'a str, tag: &str) -> Vec<&'a str> {
    let lines = dynamic.lines().filter(|line| line.contains(tag));
    lines.filter_map(|line| line.split(['[', ']']).nth(1)).collect()
}
