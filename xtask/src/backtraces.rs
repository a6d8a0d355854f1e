//! A library without what prints backtraces, which is a fifth of it.
//!
//! A panic's message says what went wrong and where. On top of that Rust's standard library brings
//! a reader of debug information, of which a stripped library has none, and no setting leaves it
//! out.
//! One function leads there. Here it becomes one that prints nothing, before the library is linked:
//! the linker drops what nobody calls.

use std::path::Path;

use anyhow::{Context, Result};
use object::{File, Object, ObjectSection, Section};

use crate::command::{cmd, sh};

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
    let listed = cmd!("ar t {archive}").read()?;
    let mut ours = listed.lines().filter(|name| name.starts_with("drystone"));
    let (Some(name), None) = (ours.next(), ours.next()) else { return Ok(false) };
    let mut bytes = cmd!("ar p {archive} {name}").ignore_stderr().output()?.stdout;
    let elf = File::parse(&*bytes)?;
    let is_function = |section: &Section| {
        let name = section.name().unwrap_or_default();
        name.starts_with(FUNCTION[0]) && FUNCTION.iter().all(|part| name.contains(part))
    };
    let Some(function) = elf.sections().find(is_function) else { return Ok(false) };
    let place = |section: Section| section.file_range();
    let relocations = elf.section_by_name(&format!(".rela{}", function.name()?)).and_then(place);
    let function = place(function);
    let mut fill = |(at, size): (u64, u64), byte, code: &[u8]| -> Option<()> {
        let section = bytes.get_mut(at as usize..(at + size) as usize)?;
        section.fill(byte);
        section.get_mut(..code.len())?.copy_from_slice(code);
        Some(())
    };
    let (code, rest) = DOES_NOTHING;
    function.and_then(|place| fill(place, rest, code)).context("too short a function")?;
    if let Some(place) = relocations {
        // Relocations of zeros do nothing.
        fill(place, 0, &[]).context("a section is beyond its file")?;
    }
    sh().write_file(object, bytes)?;
    Ok(true)
}
