//! What the platform's tools say of a library's file, and make of a program in C.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a program wrote, and how it ended.
pub fn describe(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The folder of the simulated `libcuda.so.1` that `DRYSTONE_SIMCUDA` names, or that is in the
/// repository's own target folder; says so if there is none.
pub fn simulated_cuda() -> Option<PathBuf> {
    let named = std::env::var_os("DRYSTONE_SIMCUDA").map(PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/simcuda");
    let folder = named.unwrap_or(own);
    let is_there = folder.join("libcuda.so.1").exists();
    if !is_there {
        eprintln!("skipped: {} has no libcuda.so.1; run `cargo xtask simcuda`", folder.display());
    }
    is_there.then_some(folder)
}

/// Whether a library is small, has this name, needs only the C library and is never unloaded.
/// Errors: It is not so; then what is otherwise.
pub fn is_self_contained(library: &Path, name: &str, bytes_max: u64) -> io::Result<()> {
    let bytes = std::fs::metadata(library)?.len();
    let dynamic = output_of("readelf", &["-d", "-W"], library)?;
    let is_c_library = |needed: &&str| *needed == "libc.so.6" || needed.starts_with("ld-linux");
    let is_so = bytes < bytes_max
        && entries(&dynamic, "(NEEDED)").iter().all(is_c_library)
        && entries(&dynamic, "(SONAME)") == [name]
        && dynamic.contains("NODELETE");
    if is_so { Ok(()) } else { Err(io::Error::other(format!("{bytes} bytes\n{dynamic}"))) }
}

/// The names that a library offers.
/// Errors: `nm` is not there or fails; then what it says.
pub fn offered_by(library: &Path) -> io::Result<String> {
    output_of("nm", &["-D", "--defined-only", "--format=just-symbols"], library)
}

/// What a tool writes of a file.
/// Errors: The tool is not there or fails; then what it says.
fn output_of(tool: &str, arguments: &[&str], file: &Path) -> io::Result<String> {
    let output = Command::new(tool).args(arguments).arg(file).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compiles a program in C, strictly, with threads; `simulated` has a `libcuda.so.1` to link.
/// Errors: The compiler is not there or fails; then what it says.
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
fn entries<'a>(dynamic: &'a str, tag: &str) -> Vec<&'a str> {
    let lines = dynamic.lines().filter(|line| line.contains(tag));
    lines.filter_map(|line| line.split(['[', ']']).nth(1)).collect()
}
