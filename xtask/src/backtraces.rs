//! A library without what prints backtraces, which is a fifth of it.
//!
//! A panic's message says what went wrong and where. On top of that Rust's standard library brings
//! a reader of debug information, of which a stripped library has none, and no setting leaves it
//! out.
//! One function leads there. Here it becomes one that prints nothing, before the library is linked:
//! the linker drops what nobody calls.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::command::said;

/// What the function's section is called, with the names of its crate and types between.
const FUNCTION: [&str; 3] = [".text.", "16DisplayBacktrace", "7Display3fmt"];

/// Returns that all went well, and the byte that fills the rest.
const DOES_NOTHING: (&[u8], u8) = if cfg!(target_arch = "x86_64") {
    // xor eax, eax; ret; and traps.
    (&[0x31, 0xc0, 0xc3], 0xcc)
} else {
    // mov w0, 0; ret; and what is no instruction.
    (&[0x00, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6], 0)
};

/// Writes the one object of ours in an archive to a file, without backtraces. False where it has
/// none, or leads to them in another way.
pub fn take_out(archive: &Path, object: &Path) -> Result<bool> {
    let listed = output("ar", &["t"], archive)?;
    let mut ours = listed.lines().filter(|name| name.starts_with("drystone"));
    let (Some(name), None) = (ours.next(), ours.next()) else { return Ok(false) };
    let file = File::create(object).with_context(|| format!("make {}", object.display()))?;
    let mut extract = Command::new("ar");
    extract.arg("p").arg(archive).arg(name).stdout(file).stderr(Stdio::null());
    anyhow::ensure!(extract.status().context("start ar")?.success(), "ar p {name} failed");
    let sections = output("readelf", &["-S", "-W"], object)?;
    let is_function = |name: &str| FUNCTION.iter().all(|part| name.contains(part));
    let mut functions = sections.lines().filter_map(section);
    let Some((name, at, size)) =
        functions.find(|&(name, ..)| name.starts_with(FUNCTION[0]) && is_function(name))
    else {
        return Ok(false);
    };
    let relocations = format!(".rela{name}");
    let relocations = sections.lines().filter_map(section).find(|&(name, ..)| name == relocations);
    let (code, rest) = DOES_NOTHING;
    let mut bytes = fs::read(object)?;
    let function = bytes.get_mut(at..at + size).context("a section is beyond its file")?;
    function.fill(rest);
    function.get_mut(..code.len()).context("too short a function")?.copy_from_slice(code);
    // Relocations of zeros do nothing.
    if let Some((_, at, size)) = relocations {
        bytes.get_mut(at..at + size).context("a section is beyond its file")?.fill(0);
    }
    fs::write(object, bytes).with_context(|| format!("write {}", object.display()))?;
    Ok(true)
}

/// Name, offset in the file and size, of a line of `readelf -S -W`.
fn section(line: &str) -> Option<(&str, usize, usize)> {
    let (_, line) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let mut fields = line.split_ascii_whitespace();
    let name = fields.next()?;
    let mut number = |at: usize| usize::from_str_radix(fields.nth(at)?, 16).ok();
    // Type and address are before the offset.
    Some((name, number(2)?, number(0)?))
}

/// What a program says of a file.
fn output(program: &str, arguments: &[&str], of: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).arg(of.canonicalize()?);
    said(command)
}
