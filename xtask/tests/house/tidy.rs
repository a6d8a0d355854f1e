//! The house rules of the code: layers, top comments, lengths, where unsafe may be.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{check_lines, files, read, report, root, rust_files, said};

/// Columns of a line, as rustfmt keeps them in code; comments and texts are kept here. And of a
/// line of prose in Markdown.
const COLUMNS_MAX: usize = 100;
const MARKDOWN_COLUMNS_MAX: usize = 120;
/// Lines of a file. Longer ones are to be cut in two.
const LINES_MAX: usize = 500;
const TOP_COMMENT_LINES_MAX: usize = 15;
/// Crates that may hold unsafe code: those that talk to a foreign ABI.
#[rustfmt::skip]
const UNSAFE_CRATES: [&str; 9] = [
    "cuda", "process", "interpose", "cudarc", "capi", "preload", "lab/simcuda", "lab/simcudart",
    "lab/testkit",
];

/// The crates of `crates/README.md`, bottom first: folder and package.
fn layers() -> Vec<(String, String)> {
    let text = read("crates/README.md");
    let of_line = |line: &str| {
        let (folder, rest) = line.strip_prefix("| `")?.split_once("` | `")?;
        Some((folder.to_owned(), rest.split_once("` |")?.0.to_owned()))
    };
    text.lines().filter_map(of_line).collect()
}

/// Each crate by its folder in `crates/`: its name, and what it depends on outside of its tests.
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let told = said(Command::new("cargo").args(["metadata", "--no-deps", "--format-version", "1"]));
    let metadata: Value = serde_json::from_str(&told).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let crates = metadata["packages"].as_array().unwrap().iter().filter_map(|package| {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        let folder = folder.strip_prefix(root().join("crates")).ok()?.to_str()?.to_owned();
        let used = package["dependencies"].as_array()?.iter().filter(|one| one["kind"].is_null());
        Some((folder, (name(package), used.map(name).collect())))
    });
    crates.collect()
}

#[test]
fn a_crate_uses_only_those_above_it_in_the_list() {
    let (layers, mut crates) = (layers(), crates());
    let mut findings = Vec::new();
    for (at, (folder, package)) in layers.iter().enumerate() {
        let (name, used) = crates.remove(folder).unwrap_or_default();
        if name != *package {
            findings.push(format!("crates/{folder} is {name}, the list says {package}"));
        }
        let is_in = |list: &[(String, String)], other: &String| {
            list.iter().any(|(_, listed)| listed == other)
        };
        let may = |other: &String| match folder.as_str() {
            // They know nothing of each other; serde only where a program asks for it.
            "core" | "driver" => other == "thiserror" || other == "serde",
            _ => is_in(&layers[..at], other) || !is_in(&layers, other),
        };
        let wrong = used.iter().filter(|other| !may(other));
        findings.extend(wrong.map(|other| format!("{name} uses {other}, which is not above it")));
    }
    let unlisted = crates.keys().map(|name| format!("crates/{name} is not in crates/README.md"));
    findings.extend(unlisted);
    assert!(layers.len() >= 7);
    report("layers", findings);
}

#[test]
fn every_file_says_at_its_top_what_lives_there() {
    let mut findings = Vec::new();
    for (path, text) in rust_files() {
        let top: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        // An example does not count: it is code that is tested.
        let prose = top.split(|line| line.contains("```")).step_by(2).map(<[_]>::len);
        let lines: usize = prose.sum();
        if !(1..=TOP_COMMENT_LINES_MAX).contains(&lines) {
            findings.push(format!("{path} opens with {lines} lines of comment"));
        }
    }
    report("top comments", findings);
}

#[test]
fn lines_and_files_stay_short() {
    let mut is_code = false;
    check_lines("lengths", &files(&["rs", "md"]), |path, line| {
        let is_page = path.ends_with(".md");
        is_code ^= is_page && line.trim_start().starts_with("```");
        let is_table = is_page && (line.starts_with('|') || line.starts_with("    "));
        let columns = line.chars().count();
        let most = if is_page { MARKDOWN_COLUMNS_MAX } else { COLUMNS_MAX };
        let is_long = columns > most && !is_code && !is_table && !line.contains("://");
        let is_wrong = is_long || !is_page && line.ends_with(' ');
        is_wrong.then(|| format!("{columns} columns, or a space at its end"))
    });
    let files = rust_files();
    let lines = files.iter().map(|(path, text)| (text.lines().count(), path));
    let long = lines.filter(|(lines, _)| *lines > LINES_MAX);
    report("files", long.map(|(lines, path)| format!("{path} has {lines} lines")).collect());
}

#[test]
fn unsafe_lives_only_where_a_foreign_abi_does() {
    let mut files = rust_files();
    files.retain(|path, _| {
        let inside = path.strip_prefix("crates/").unwrap_or_default();
        let may = UNSAFE_CRATES.iter().any(|folder| inside.starts_with(&format!("{folder}/")));
        // It stands before functions of the driver.
        let may = may || path.starts_with("engines/watch/") || path.starts_with("benches/");
        !may && !path.contains("/tests/")
    });
    check_lines("unsafe", &files, |_, line| {
        let code = line.split("//").next().unwrap_or_default();
        let is_found = code.contains("unsafe ") && !code.contains("unsafe_code");
        is_found.then(|| code.to_owned())
    });
}
