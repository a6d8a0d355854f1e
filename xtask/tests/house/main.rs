//! The house rules that no tool checks, and the tests of xtask's scripts.
//!
//! Each rule is one test that names every place that breaks it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bugs;
mod circles;
mod documents;
mod gpu;
mod markdown;
mod modules;
mod prose;
mod structure;
mod tidy;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use walkdir::WalkDir;

/// These tests speak of what they forbid.
const THIS: &str = "xtask/tests/house/";

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Every file of the repository with one of these extensions, by its path from the root.
fn files(extensions: &[&str]) -> BTreeMap<String, String> {
    let walk = WalkDir::new(root()).min_depth(1).into_iter().filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        name != "target" && !name.starts_with('.')
    });
    let paths = walk.map(|entry| entry.unwrap().into_path()).filter(|path| path.is_file());
    let paths =
        paths.filter(|path| path.extension().is_some_and(|it| extensions.iter().any(|&e| it == e)));
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

/// Every Rust file of the repository, by its path from the root.
fn rust_files() -> BTreeMap<String, String> {
    let files = files(&["rs"]);
    assert!(files.len() > 50, "found {} files only", files.len());
    files
}

/// Fails with every finding at once.
fn report(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// Fails with all that a rule finds in the lines of files, each with its place.
fn check_lines<F: IntoIterator<Item = String>>(
    rule: &str,
    files: &BTreeMap<String, String>,
    mut found: impl FnMut(&str, &str) -> F,
) {
    let mut findings = Vec::new();
    for (path, text) in files {
        for (at, line) in text.lines().enumerate() {
            let found = found(path, line).into_iter();
            findings.extend(found.map(|what| format!("{path}:{}: {what}", at + 1)));
        }
    }
    report(rule, findings);
}

/// The heads of a type's methods in a folder, by file, without those of traits and of tests.
fn methods(folder: &str, name: &str) -> BTreeMap<String, Vec<String>> {
    let open = format!("impl {name} {{");
    let mut found = rust_files();
    found.retain(|path, _| path.starts_with(folder) && !path.contains("/tests"));
    let heads = |text: &str| {
        let mut is_inside = false;
        let heads = text.lines().filter_map(|line| {
            is_inside = line == open || (is_inside && line != "}");
            let head = line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '/']));
            head.filter(|head| is_inside && head.contains("fn ")).map(str::to_owned)
        });
        heads.collect::<Vec<_>>()
    };
    let found = found.into_iter().map(|(path, text)| (path, heads(&text)));
    found.filter(|(_, heads)| !heads.is_empty()).collect()
}

/// What a program prints, in the repository's root.
fn said(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Functions in Python have their tests in Python.
#[test]
fn scripts_pass_their_own_tests() {
    let discover = ["-B", "-m", "unittest", "discover", "--start-directory", "xtask/tests"];
    said(Command::new("python3").args(discover));
}
