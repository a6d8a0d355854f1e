//! The documents as a whole: links lead somewhere, the book has every page, pages are short and
//! begin with what a reader can do afterwards, the README fits two screens in both languages.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::read;
use super::{files, report, root};

/// Words of `docs` and both READMEs together, as `wc -w` counts them.
const WORDS_MAX: usize = 35_000;
/// Words of a page that is read from its beginning to its end.
const PAGE_WORDS_MAX: usize = 1_250;
/// Pages in which a reader looks something up, and those that show how the code works.
const REFERENCE: [&str; 9] = [
    "docs/use/pytorch-reference.md",
    "docs/use/traces.md",
    "docs/use/simcuda.md",
    "docs/evidence/bugs.md",
    "docs/evidence/bugs-2026.md",
    "docs/evidence/measurements.md",
    "docs/inside/architecture.md",
    "docs/inside/design.md",
    "docs/inside/driver-assumptions.md",
];
const README_LINES_MAX: usize = 70;
const SUMMARY: &str = "docs/SUMMARY.md";

/// The documents that people read, by path.
fn pages() -> BTreeMap<String, String> {
    let mut pages = files(&["md"]);
    pages.retain(|path, _| path.starts_with("docs/") || path.starts_with("README"));
    assert!(pages.len() > 25, "found {} pages only", pages.len());
    pages
}

#[test]
fn links_lead_somewhere() {
    let all = files(&["md"]);
    let mut findings = Vec::new();
    let mut seen = 0;
    for (file, text) in &all {
        for (line, link) in read(text).links.into_iter().filter(|(_, link)| !link.contains("://")) {
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let here = root().join(file);
            let path = if path.is_empty() { here } else { here.parent().unwrap().join(path) };
            let Ok(to) = path.canonicalize() else {
                findings.push(format!("{file}:{line}: nothing at {link}"));
                continue;
            };
            let to = to.strip_prefix(root().canonicalize().unwrap()).map(|to| to.to_str().unwrap());
            let to = to.unwrap_or_else(|_| panic!("{file}: {link} leaves the repository"));
            if file.starts_with("docs/") && !to.starts_with("docs/") {
                findings.push(format!("{file}:{line}: {link} is not in the book; name the path"));
            } else if !anchor.is_empty()
                && !all
                    .get(to)
                    .is_some_and(|text| read(text).anchors.iter().any(|one| one == anchor))
            {
                findings.push(format!("{file}:{line}: no heading {link}"));
            }
        }
    }
    assert!(seen > 100, "found {seen} links only");
    report("links", findings);
}

#[test]
fn the_book_has_every_page_once() {
    let pages = pages();
    let listed: Vec<_> = read(&pages[SUMMARY]).links.into_iter().map(|(_, link)| link).collect();
    let unique: BTreeSet<_> = listed.iter().map(|link| format!("docs/{link}")).collect();
    assert_eq!(unique.len(), listed.len(), "a page stands twice in {SUMMARY}");
    let there = pages.keys().filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    assert_eq!(there.cloned().collect::<BTreeSet<_>>(), unique);
}

#[test]
fn pages_are_short_and_begin_with_what_a_reader_can_do_afterwards() {
    let mut findings = Vec::new();
    let mut all = 0;
    for (path, text) in pages() {
        let is_page = path.starts_with("docs/") && path != SUMMARY && !path.ends_with(".zh.md");
        let first = read(&text).prose.into_iter().next().map(|(_, text)| text).unwrap_or_default();
        if is_page && !first.starts_with("After this page you ") && !first.contains("replaces") {
            findings.push(format!("{path} begins: {first}"));
        }
        let words = text.split_whitespace().count();
        all += words;
        if words > PAGE_WORDS_MAX && !REFERENCE.contains(&path.as_str()) {
            findings.push(format!("{path} has {words} words; {PAGE_WORDS_MAX} is the most"));
        }
    }
    if all > WORDS_MAX {
        findings.push(format!("{all} words in all; {WORDS_MAX} is the most: cut what is old"));
    }
    report("pages", findings);
}

#[test]
fn the_readme_is_short_and_the_same_in_both_languages() {
    let pages = pages();
    let commands = |text: &str| -> BTreeSet<String> {
        let code = text.split('`').skip(1).step_by(2).filter(|code| code.contains(' '));
        code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let [english, chinese] = ["README.md", "README.zh.md"].map(|path| &pages[path]);
    for text in [english, chinese] {
        assert!(text.lines().count() <= README_LINES_MAX, "{} lines", text.lines().count());
        assert!(text.contains("expandable_segments:True") && text.contains("cargo xtask test"));
    }
    assert!(commands(english).len() > 10, "found {:?} only", commands(english));
    assert_eq!(commands(english), commands(chinese));
}
