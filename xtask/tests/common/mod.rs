//! What the tests of the house rules share: the repository's files, and a report that names
//! every finding.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Every file of the repository with one of these extensions, by its path from the root.
pub fn files(extensions: &[&str]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|one| extensions.iter().any(|&any| one == any)) {
                let text = fs::read_to_string(&path).unwrap();
                let from_root = path.strip_prefix(root()).unwrap();
                files.insert(from_root.to_string_lossy().into_owned(), text);
            }
        }
    }
    files
}

/// Fails with every finding at once.
pub fn report(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// Fails with all that a rule finds in the lines of files, each with its place.
pub fn check_lines(
    rule: &str,
    files: &BTreeMap<String, String>,
    mut found: impl FnMut(&str, &str) -> Vec<String>,
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

/// Every Rust file of the repository, by its path from the root.
pub fn rust_files() -> BTreeMap<String, String> {
    let files = files(&["rs"]);
    assert!(files.len() > 50, "found {} files only", files.len());
    files
}

/// The heads of a type's methods in a folder, by file, without those of traits and of tests.
pub fn methods(folder: &str, name: &str) -> BTreeMap<String, Vec<String>> {
    let open = format!("impl {name} {{");
    let mut found = BTreeMap::new();
    for (path, text) in rust_files() {
        if !path.starts_with(folder) || path.contains("/tests") {
            continue;
        }
        let mut is_inside = false;
        let mut heads = Vec::new();
        for line in text.lines() {
            is_inside = line == open || (is_inside && line != "}");
            let head = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '));
            let is_method = |head: &&str| !head.starts_with("//") && head.contains("fn ");
            heads.extend(head.filter(|_| is_inside).filter(is_method).map(str::to_owned));
        }
        if !heads.is_empty() {
            found.insert(path, heads);
        }
    }
    found
}

/// What a program in Python prints that imports the files of a folder.
pub fn python(folder: &str, program: &str) -> String {
    let mut python = Command::new("python3");
    python.args(["-B", "-c", program]).env("PYTHONPATH", root().join(folder));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
