//! `docs/evidence/bugs.md` names what the tests guard against: each entry its tests, which exist.
//! What code cites is there, or in `docs/inside/invariants.md`. And no suite forgives a call with a
//! handle that is gone, but those that make such calls themselves.

use std::collections::BTreeMap;

use super::{THIS, check_lines, files, read, report, rust_files};

/// What takes the rule away that a call with a handle that is gone ends the process, and who may:
/// tests of the device and of `libcuda` themselves, and those that pass such handles on purpose.
const FORGIVING: [&str; 3] = ["stale_handles_end", "Harsh::NONE", "harsh:false"];
const MAY_FORGIVE: [&str; 6] = [
    THIS,
    "crates/lab/sim/",
    "crates/lab/simcuda/",
    "crates/capi/src/tests.rs",
    "crates/cudarc/tests/suite/as_preloaded.rs",
    "crates/preload/tests/behaves.rs",
];

/// What a line cites: B29 or I7 in a comment, `b29` in the name of a test.
fn cited(line: &str) -> Vec<String> {
    let is_comment = line.trim_start().starts_with("//");
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let parts = words.flat_map(|word| word.split('_').map(move |part| (word, part)));
    let numbers = parts.filter_map(|(word, part)| {
        let (kind, number) = part.split_at_checked(1)?;
        let is_cited = match kind {
            "B" | "I" => is_comment,
            _ => kind == "b" && word.len() > part.len(),
        };
        Some(format!("{}{}", kind.to_uppercase(), number.parse::<u8>().ok().filter(|_| is_cited)?))
    });
    numbers.collect()
}

#[test]
fn bugs_and_invariants_in_code_are_in_the_documents_and_tests_of_bugs_exist() {
    let document = read("docs/evidence/bugs.md");
    let invariants = read("docs/inside/invariants.md");
    let is_listed = |one: &String| {
        document.contains(&format!("- **{one}** ")) || invariants.contains(&format!("| {one} |"))
    };
    let files = files(&["rs", "py"]);
    check_lines("bugs, invariants", &rust_files(), |_, line| {
        cited(line).into_iter().filter(|one| !is_listed(one)).collect::<Vec<_>>()
    });
    let mut findings = Vec::new();
    for entry in document.split("- **").skip(1) {
        // What follows the first line that begins with one.
        let at = entry.find("\n  `").unwrap_or(entry.len());
        let (about, tests) = entry.split_at(at);
        let names = tests.split("\n\n").next().unwrap_or_default().split('`').skip(1).step_by(2);
        let names: Vec<&str> = names.collect();
        let bug = about.split("**").next().unwrap_or_default();
        let missing = names.iter().filter(|name| !is_a_test(&files, name));
        let missing = missing.map(|name| format!("docs/evidence/bugs.md: {bug}: no test {name}"));
        findings.extend(missing);
        if names.is_empty() {
            findings.push(format!("docs/evidence/bugs.md: {bug} names no test"));
        }
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
    let mut files = files(&["rs", "py", "c", "cpp", "sh"]);
    files.retain(|path, _| !MAY_FORGIVE.iter().any(|place| path.starts_with(place)));
    check_lines("handles that are gone", &files, |_, line| {
        FORGIVING.iter().any(|words| line.contains(words)).then(|| line.to_owned())
    });
}
