//! What the platform's tools say of a library's file, and make of a program in C.

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

/// Compiles a program in C, strictly, with threads; `simulated` has a `libcuda.so.1` to link.
///
/// # Errors
/// The compiler is not there or fails; then what it says.
pub fn compile_c(
    source: &Path,
    program: &Path,
    simulated: &Path,
    arguments: &[&str],
) -> io::Result<()> {
    let (program, simulated) = (program.to_string_lossy(), simulated.to_string_lossy());
    let first = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", &program];
    let libraries = ["-Wl,--no-as-needed", "-lpthread", "-ldl", "-L", &simulated];
    // Libraries go behind the program that needs them.
    let mut compiler = Command::new("cc");
    compiler.args(first).arg(source).args(libraries).args(arguments);
    let output = compiler.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// The names in brackets of those lines of `readelf -d` that have a tag, such as `(NEEDED)`.
pub fn entries<'a>(dynamic: &'a str, tag: &str) -> Vec<&'a str> {
    let lines = dynamic.lines().filter(|line| line.contains(tag));
    lines.filter_map(|line| line.split(['[', ']']).nth(1)).collect()
}
