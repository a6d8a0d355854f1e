//! The binary interface is the one that `abi.txt` tells: what programs that were compiled
//! before rely on. Struct by struct with every field's place, and function by function.
//!
//! A line that is new is an addition, which old programs do not see. One that changed or went away
//! breaks them: then `DRYSTONE_ABI_VERSION` goes up, and with it the name that programs are linked
//! with. Only `drystone_stats` may grow, at its end, for it brings its size.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fmt::Write;
use std::fs;
use std::process::Command;

use common::root;
use drystone_testkit::describe;

/// Set to write the file anew instead of comparing.
const BLESS: &str = "DRYSTONE_BLESS";

/// The declarations of the header, with single blanks and without comments.
fn declarations() -> Vec<String> {
    let header = fs::read_to_string(root().join("crates/capi/include/drystone.h")).unwrap();
    let mut text = String::new();
    let mut rest = header.as_str();
    while let Some((code, comment)) = rest.split_once("/*") {
        text.push_str(code);
        rest = comment.split_once("*/").unwrap().1;
    }
    text.push_str(rest);
    // Of the preprocessor's lines one goes on in the next.
    let is_code = |line: &&str| !line.starts_with('#') && !line.contains("DRYSTONE_VERSION_");
    let code = text.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    let text = code.replace("extern \"C\" {", "").replace("}  // extern \"C\"", "");
    let mut declarations = Vec::new();
    let (mut depth, mut declaration) = (0, String::new());
    for letter in text.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ';' && depth == 0 {
            let words: Vec<&str> = declaration.split_whitespace().collect();
            declarations.push(words.join(" "));
            declaration.clear();
        } else {
            declaration.push(letter);
        }
    }
    declarations
}

/// The fields of a struct, as they are declared.
fn fields(body: &str) -> impl Iterator<Item = &str> {
    body.split(';').map(str::trim).filter(|field| !field.is_empty())
}

fn name_of(field: &str) -> &str {
    field.rsplit([' ', '*']).next().unwrap()
}

/// A program that says where each field of each struct is.
fn places(structs: &[(&str, &str)]) -> String {
    let mut source = "#include <drystone.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for (name, body) in structs {
        let sized = format!("(int)sizeof(struct {name})");
        writeln!(source, "printf(\"struct {name}: %d bytes\\n\", {sized});").unwrap();
        for field in fields(body) {
            let member = name_of(field);
            let at = format!("(int)offsetof(struct {name}, {member})");
            writeln!(source, "printf(\"    %d: {field}\\n\", {at});").unwrap();
        }
    }
    source + "return 0; }\n"
}

fn interface() -> String {
    let declarations = declarations();
    let with_body = |kind: &str| {
        let parts = declarations.iter().filter_map(move |one| one.strip_prefix(kind));
        parts.filter_map(|one| one.strip_suffix(" }")?.split_once(" { ")).collect::<Vec<_>>()
    };
    let source = places(&with_body("struct "));
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("places.c"), folder.path().join("places"));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-I"]).arg(root().join("crates/capi/include"));
    let output = compiler.arg(&file).arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));

    let mut text = format!(
        "The binary interface {} of libdrystone.so (64 bits), held by tests/abi.rs.\n\n",
        common::SONAME.rsplit('.').next().unwrap()
    );
    for (name, body) in with_body("enum ") {
        writeln!(text, "enum {name}:").unwrap();
        for value in body.trim_end_matches(',').split(", ") {
            writeln!(text, "    {value}").unwrap();
        }
    }
    text.push_str(&String::from_utf8(output.stdout).unwrap());
    let mut functions: Vec<_> = declarations.iter().filter(|one| one.contains('(')).collect();
    functions.sort_by_key(|one| one.split('(').next().map(name_of).map(str::to_owned));
    for function in functions {
        writeln!(text, "{function}").unwrap();
    }
    text
}

#[test]
fn interface_is_the_one_that_programs_were_compiled_with() {
    let path = root().join("crates/capi/abi.txt");
    let found = interface();
    if std::env::var_os(BLESS).is_some() {
        fs::write(&path, &found).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(
        committed == found,
        "the binary interface changed. If lines were only added: run with {BLESS}=1 and commit {}; \
         else DRYSTONE_ABI_VERSION goes up, too",
        path.display()
    );
    assert!(found.contains("drystone_allocate(") && found.contains("    0: size_t struct_size"));
}
