//! `docs/evidence/bugs.md` names what the tests guard against: each entry its tests, which exist.
//! And no suite forgives a call with a handle that is gone, but those that make such calls
//! themselves.

use std::collections::BTreeMap;

use super::{THIS, check_lines, files, read, report, rust_files};

/// What takes the rule away that a call with a handle that is gone ends the process, and who may:
/// tests of the device and of `libcuda` themselves, and those that pass such handles on purpose.
const FORGIVING: [&str; 3] = ["stale_handles_end", "Harsh::NONE", "harsh:false"];
const MAY_FORGIVE: [&str; 5] = [
    "crates/lab/sim/",
    "crates/lab/simcuda/",
    "crates/capi/src/tests.rs",
    "crates/cudarc/tests/suite/as_preloaded.rs",
    "crates/preload/tests/behaves.rs",
];

/// The numbers that a line cites: B29 in a comment, `b29` in the name of a test.
fn bugs_cited(line: &str) -> Vec<u8> {
    let is_comment = line.trim_start().starts_with("//");
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let parts = words.flat_map(|word| word.split('_').map(move |part| (word, part)));
    let numbers = parts.filter_map(|(word, part)| {
        let is_cited = (part.starts_with('B') && is_comment) || word.len() > part.len();
        part.strip_prefix(['B', 'b']).filter(|_| is_cited)?.parse().ok()
    });
    numbers.collect()
}

#[test]
fn bugs_in_code_are_in_the_document_and_their_tests_exist() {
    let document = read("docs/evidence/bugs.md");
    let files = files(&["rs", "py"]);
    check_lines("bugs", &rust_files(), |_, line| {
        let cited = bugs_cited(line).into_iter().map(|bug| format!("B{bug}"));
        cited.filter(|bug| !document.contains(&format!("- **{bug}** "))).collect()
    });
    let mut findings = Vec::new();
    for entry in document.split("- **").skip(1) {
        let (about, tests) = entry.split_once("  Tests: ").unwrap_or((entry, ""));
        let names = tests.split("\n\n").next().unwrap_or_default().split('`').skip(1).step_by(2);
        let names: Vec<&str> = names.collect();
        let bug = about.split("**").next().unwrap_or_default();
        if names.is_empty() {
            findings.push(format!("docs/evidence/bugs.md: {bug} names no test"));
        }
        let missing = names.iter().filter(|name| !is_a_test(&files, name));
        findings
            .extend(missing.map(|name| format!("docs/evidence/bugs.md: {bug}: no test {name}")));
    }
    report("bugs", findings);
}

/// Whether a test of this name is in one of the files, which are Rust and Python.
fn is_a_test(files: &BTreeMap<String, String>, name: &str) -> bool {
    let rust = [format!("fn {name}("), format!(" {name}: \"")];
    let python = format!("def {name}(self");
    files.iter().any(|(path, text)| match path.ends_with(".py") {
        true => text.contains(&python),
        false => rust.iter().any(|form| text.contains(form)),
    })
}

#[test]
fn no_suite_forgives_a_handle_that_is_gone() {
    let mut findings = Vec::new();
    for (path, text) in files(&["rs", "py", "c", "cpp", "sh"]) {
        let may = MAY_FORGIVE.iter().any(|place| path.starts_with(place));
        let is_this = path.starts_with(THIS);
        let found = FORGIVING.iter().filter(|&&words| text.contains(words));
        findings.extend(found.filter(|_| !may && !is_this).map(|words| format!("{path}: {words}")));
    }
    report("handles that are gone", findings);
}
